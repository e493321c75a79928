"""Names of keys as users write them, and which of them a terminal can send."""

from __future__ import annotations

import string
from typing import Final

from textual.binding import Binding
from textual.keys import Keys

_MODIFIERS: Final = ("alt", "ctrl", "hyper", "meta", "shift", "super")
#: Common names → Textual's.
_ALIASES: Final = {
    "esc": "escape", "return": "enter", "pgup": "pageup", "page_up": "pageup", "pgdn": "pagedown",
    "pgdown": "pagedown", "page_down": "pagedown", "del": "delete", "ins": "insert", "?": "question_mark",
    "/": "slash", ":": "colon", ",": "comma", ".": "full_stop", " ": "space",
}  # fmt: skip
_NAMED: Final = frozenset(key.value for key in Keys if "+" not in key.value and "<" not in key.value)
#: Terminals send the same byte for both keys.
_SAME_BYTE: Final = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape", "ctrl+h": "backspace"}


def _textual_name(character: str) -> str:
    """Textual's name of a character that is neither letter nor digit."""
    return next(iter(Binding.make_bindings([Binding(character, "")]))).key


#: Names of punctuation characters; comma separates keys in a binding, and is listed by hand.
_CHARACTERS: Final = frozenset(
    ["comma", "space", *(_textual_name(character) for character in string.punctuation if character != ",")]
)


class KeyNameError(ValueError):
    """The text is not the name of a key that can be bound; the message says why."""


def key_name(text: str) -> str:
    """Textual's name of the key: `Ctrl+F` → ctrl+f, `PgDn` → pagedown, `?` → question_mark. Raises KeyNameError."""
    *modifiers, base = text.strip().split("+") if text.strip() not in ("", "+") else [text.strip() or text]
    modifiers = [modifier.strip().lower() for modifier in modifiers]
    base = _base(base.strip() or base, text)
    for modifier in modifiers:
        if modifier not in _MODIFIERS:
            raise KeyNameError(f"{text!r} is not a key: {modifier!r} is not one of {', '.join(_MODIFIERS)}")
    if modifiers == ["shift"] and len(base) == 1 and base.isalpha():
        raise KeyNameError(f"{text!r}: write {base.upper()!r}")
    if "ctrl" in modifiers and len(base) == 1:
        base = base.lower()
    name = "+".join([*sorted(modifiers), base])
    if name in _SAME_BYTE:
        raise KeyNameError(f"terminals send {name} as {_SAME_BYTE[name]}; use another key")
    return name


def is_character(key: str) -> bool:
    """Whether the key inserts text in an input line: x, question_mark, space."""
    return len(key) == 1 or key in _CHARACTERS


def _base(base: str, text: str) -> str:
    """The key without its modifiers."""
    lower = base.lower()
    if base in _ALIASES or lower in _ALIASES:
        return _ALIASES.get(base, _ALIASES.get(lower, ""))
    if len(base) == 1 and base.isprintable():
        return base if base.isalnum() else _textual_name(base)
    if lower in _NAMED or lower in _CHARACTERS:
        return lower
    raise KeyNameError(f"{text!r} is not a key; use e.g. x, X, f5, ctrl+x, pagedown, ?")
