"""The user's keys.toml: key names, validation, and the commented file that `gconsole config keys` prints."""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs
from textual.binding import Binding
from textual.keys import Keys

from ...config.document import Document, decode, parse
from ...config.model import ConfigError, one_line
from ...text import format
from .actions import FIXED, Action, is_typed_into, keys_of, places

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
    """The text is not the name of a key that can be bound; the message states the cause."""


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


#: Ids of release 0.1 that were renamed. They work for one more release, with a warning.
_RENAMED: Final = {
    "hang.walk": "hang.next_pane", "hang.walk_back": "hang.previous_pane", "hang.earlier": "hang.previous_capture",
    "hang.later": "hang.next_capture", "gpus.figure": "gpus.metric", "gpus.span": "gpus.time_range",
    "skew.meetings": "skew.mode", "columns.show": "columns.toggle", "columns.earlier": "columns.move_up",
    "columns.later": "columns.move_down", "columns.first": "columns.reset", "topology.picture": "topology.drawing",
    "filter.keep": "filter.apply", "filter.recall": "filter.previous", "sql.ask": "sql.run",
    "sql.recall": "sql.previous", "sql.leave": "sql.cancel", "app.examine": "app.doctor",
    "app.examine_all": "app.doctor_all", "app.remove": "app.remove_node", "replay.earlier": "replay.previous_event",
    "replay.later": "replay.next_event", "replay.go": "replay.go_to", "diff.order": "diff.sort",
    "app.freeze": "app.pause", "prompt.drop": "prompt.cancel", "export.form": "export.next_format",
    "export.form_before": "export.previous_format", "export.drop": "export.cancel", "app.forget": "app.reset_layout",
}  # fmt: skip
_NAME: Final = "keys.toml"
#: Bytes. The whole table with comments is a tenth of this.
_MOST_BYTES: Final = 256 * 1024


class OwnKeys(msgspec.Struct, frozen=True):
    """`keymap`: binding id → its keys, separated by commas, "" for none; `complaints`: warnings, with their line."""

    keymap: Mapping[str, str]
    complaints: tuple[str, ...] = ()


NO_KEYS: Final = OwnKeys({})


def keys_path() -> Path:
    """Path of the user's keys.toml."""
    return platformdirs.user_config_path("gconsole") / _NAME


def read_keys(path: Path, actions: Sequence[Action]) -> OwnKeys:
    """The keymap in the file, checked against these actions; empty without a file."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            return OwnKeys({}, (f"{_NAME}: larger than {format.size(_MOST_BYTES)}, the limit for keys.toml",))
        document = parse(decode(raw, _NAME), path, _NAME)
    except FileNotFoundError:
        return NO_KEYS
    except OSError as error:
        return OwnKeys({}, (f"{path}: cannot be read ({error.strerror or error})",))
    except ConfigError as error:
        return OwnKeys({}, (str(error),))
    return _checked(document, actions)


def _checked(document: Document, actions: Sequence[Action]) -> OwnKeys:
    by_id = {action.id: action for action in actions}
    keymap: dict[str, str] = {}
    lines: dict[str, int] = {}
    complaints: list[str] = []
    entries = [(".".join(path), document.line(*path), value) for path, value in _entries(document.data)]
    ids = {id for id, *_ in entries}
    for id, line, value in entries:
        if _RENAMED.get(id) in ids:
            complaints.append(f"{_NAME}:{line}: {id} is ignored because its new name, {_RENAMED[id]}, is set, too")
            continue
        if id in _RENAMED:
            complaints.append(f"{_NAME}:{line}: {id} was renamed to {_RENAMED[id]}; the next release ignores {id}")
            id = _RENAMED[id]
        try:
            if id not in by_id:
                raise KeyNameError(_unknown(id, by_id))
            keymap[id] = ",".join(_keys(by_id[id], value))
            lines[id] = line
        except KeyNameError as error:
            complaints.append(f"{_NAME}:{line}: {one_line(id)}: {error}")
    for id, why in _clashes(keymap, lines, actions):
        complaints.append(f"{_NAME}:{lines[id]}: {id}: {why}")
        del keymap[id]
    return OwnKeys(keymap, tuple(complaints))


def _entries(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value with its path: `list.sort = "s"`, `"list.sort" = "s"` and `[list]` with `sort = "s"` are equal."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _entries(value, (*above, name))
        else:
            yield (*above, name), value


def _unknown(id: str, by_id: Mapping[str, Action]) -> str:
    near = difflib.get_close_matches(id, by_id, 1)
    hint = f"did you mean {near[0]}?" if near else "list them: gconsole config keys"
    return f"unknown action; {hint}"


def _keys(action: Action, value: object) -> list[str]:
    """The keys of one entry, in Textual's names, then the action's fixed keys. Raises KeyNameError."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise KeyNameError('not a key; use "x", or several as in ["x", "ctrl+x"]')
    own = action.keys.split(",")
    keys: list[str] = []
    for text in texts:
        key = key_name(text)
        if key in FIXED and key not in own:
            raise KeyNameError(f"{text} is a fixed key ({', '.join(FIXED)}); use another key")
        if is_typed_into(action) and is_character(key):
            raise KeyNameError(f"{text} inserts text there; use a key with ctrl+")
        if key not in keys:
            keys.append(key)
    return [*keys, *(key for key in own if key in FIXED and key not in keys)]


def _clashes(
    keymap: Mapping[str, str], lines: Mapping[str, int], actions: Sequence[Action]
) -> Iterator[tuple[str, str]]:
    """Entries dropped because another action has that key where both would work, with the reason.

    Of two entries the later one is dropped. Its default key may clash in turn, so the check repeats.
    """
    left = dict(keymap)
    while True:
        clash = next(_doubles(left, actions), None)
        if clash is None:
            return
        key, *ids = clash
        loser = max((id for id in ids if id in left), key=lambda id: lines[id])
        winner = next(id for id in ids if id != loser)
        yield loser, f"{key} is already the key of {winner}; change that one, too"
        del left[loser]


def _doubles(keymap: Mapping[str, str], actions: Sequence[Action]) -> Iterator[tuple[str, str, str]]:
    """Keys with two actions in one place, at least one of them from the user's keymap."""
    for place in places(actions):
        taken: dict[str, str] = {}
        for action in place:
            for key in keys_of(action, keymap):
                if key in FIXED:  # the innermost widget handles it: Escape cancels before it goes back
                    continue
                other = taken.setdefault(key, action.id)
                if other != action.id and (action.id in keymap or other in keymap):
                    yield key, other, action.id


def keys_text(actions: Sequence[Action]) -> str:
    """A commented keys.toml with every action and its keys, as `gconsole config keys` prints it."""
    lines = [
        "# Key bindings of gconsole. Uncomment a line to change its keys; [] removes them.",
        f"# Fixed keys, not configurable: {', '.join(FIXED)}.",
    ]
    scope = ""
    for action in actions:
        if action.scope != scope:
            scope = action.scope
            lines += ["", f"# -- {scope} --"]
        keys = action.keys.split(",") if action.keys else []
        names = ", ".join(f'"{key}"' for key in keys)
        value = names if len(keys) == 1 else f"[{names}]"
        lines.append(f"{f'# {action.id} = {value}':<44} # {action.help}")
    return "\n".join(lines) + "\n"
