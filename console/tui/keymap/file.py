"""A person's own keys: `keys.toml` in their config folder, binding ids and the key or the keys of each.

    list.columns = "c"                   # in place of C
    app.theme = "T"                      # what has no key gets one
    lines.page_down = ["pagedown", "ctrl+f"]
    app.mark = []                        # no key; the palette still has it

What cannot be used is told, line by line, and the rest holds. Nothing here raises for what stands in that file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import platformdirs

from ...config.document import Document, decode, parse
from ...config.model import ConfigError, one_line
from ...text import format
from .actions import FIXED, Action, is_typed_into, keys_of, places
from .key_names import KeyNameError, is_character, key_name

_NAME: Final = "keys.toml"
#: The whole table with comments is a tenth of this.
_MOST_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class OwnKeys:
    """`keymap`: binding id → its keys, separated by commas, "" for none; `complaints`: lines for the person."""

    keymap: Mapping[str, str]
    complaints: tuple[str, ...] = ()


NO_KEYS: Final = OwnKeys({})


def keys_path() -> Path:
    """Where whoever runs this keeps their keys."""
    return platformdirs.user_config_path("gconsole") / _NAME


def read_keys(path: Path, actions: Sequence[Action]) -> OwnKeys:
    """The keys that the file gives to these actions; without a file there are none, and nothing to complain of."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            return OwnKeys({}, (f"{_NAME}: larger than {format.size(_MOST_BYTES)}, which no table of keys is",))
        document = parse(decode(raw, _NAME), path, _NAME)
    except FileNotFoundError:
        return NO_KEYS
    except OSError as error:
        return OwnKeys({}, (f"{path}: cannot be read ({error.strerror or error})",))
    except ConfigError as error:
        return OwnKeys({}, (str(error),))
    return _checked(document, actions)


def _checked(document: Document, actions: Sequence[Action]) -> OwnKeys:
    known = {action.id: action for action in actions}
    keymap: dict[str, str] = {}
    lines: dict[str, int] = {}
    complaints: list[str] = []
    for path, value in _entries(document.data):
        id, line = ".".join(path), document.line(*path)
        try:
            if id not in known:
                raise KeyNameError(_unknown(id, known))
            keymap[id] = ",".join(_keys(known[id], value))
            lines[id] = line
        except KeyNameError as error:
            complaints.append(f"{_NAME}:{line}: {one_line(id)}: {error}")
    for id, why in _clashes(keymap, lines, actions):
        complaints.append(f"{_NAME}:{lines[id]}: {id}: {why}")
        del keymap[id]
    return OwnKeys(keymap, tuple(complaints))


def _entries(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value with its path: `list.sort = "s"`, `"list.sort" = "s"` and `[list]` with `sort = "s"` say the same."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _entries(value, (*above, name))
        else:
            yield (*above, name), value


def _unknown(id: str, known: Mapping[str, Action]) -> str:
    near = difflib.get_close_matches(id, known, 1)
    hint = f"did you mean {near[0]}?" if near else "gconsole config keys lists them"
    return f"there is no such action; {hint}"


def _keys(action: Action, value: object) -> list[str]:
    """The keys of one entry, in Textual's names; fixed ones of that action stay, behind them. Raises KeyNameError."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise KeyNameError('write a key, as in "x", or several, as in ["x", "ctrl+x"]')
    own = action.keys.split(",")
    found: list[str] = []
    for text in texts:
        key = key_name(text)
        if key in FIXED and key not in own:
            raise KeyNameError(f"{text} is a fixed key ({', '.join(FIXED)}); take another one")
        if is_typed_into(action) and is_character(key):
            raise KeyNameError(f"{text} is a letter that is typed there; take one with ctrl+")
        if key not in found:
            found.append(key)
    return [*found, *(key for key in own if key in FIXED and key not in found)]


def _clashes(
    keymap: Mapping[str, str], lines: Mapping[str, int], actions: Sequence[Action]
) -> Iterator[tuple[str, str]]:
    """Which entries cannot hold because another action has that key where both would work, and why.

    Of two entries the later one gives way. One that does has its first key again, which may be taken by then: so it is
    looked again until nothing clashes.
    """
    left = dict(keymap)
    while True:
        found = next(_doubles(left, actions), None)
        if found is None:
            return
        key, one, other = found
        loser = max((id for id in (one, other) if id in left), key=lambda id: lines[id])
        winner = other if loser == one else one
        yield loser, f"{key} is the key of {winner} already; give that another key, too"
        del left[loser]


def _doubles(keymap: Mapping[str, str], actions: Sequence[Action]) -> Iterator[tuple[str, str, str]]:
    """Keys with two actions in one place, at least one of which has it from the person."""
    for place in places(actions):
        taken: dict[str, str] = {}
        for action in place:
            for key in keys_of(action, keymap):
                if key in FIXED:  # what stands closer to the cursor takes it: Escape cancels before it climbs
                    continue
                other = taken.setdefault(key, action.id)
                if other != action.id and (action.id in keymap or other in keymap):
                    yield key, other, action.id


def with_own_keys(action: Action, keymap: Mapping[str, str]) -> Action:
    """The action as that person knows it: footer, `?` and palette tell these keys."""
    if action.id not in keymap:
        return action
    return replace(action, keys=keymap[action.id], shown_key="")


def keys_text(actions: Sequence[Action]) -> str:
    """A commented keys.toml with every action and its keys, as `gconsole config keys` prints it."""
    lines = [
        "# Keys of gconsole. Take the # from a line and change its keys; [] takes them away.",
        f"# Fixed, whatever stands here: {', '.join(FIXED)}.",
    ]
    scope = ""
    for action in actions:
        if action.scope != scope:
            scope = action.scope
            lines += ["", f"# -- {scope} --"]
        keys = action.keys.split(",") if action.keys else []
        said = ", ".join(f'"{key}"' for key in keys)
        value = said if len(keys) == 1 else f"[{said}]"
        lines.append(f"{f'# {action.id} = {value}':<44} # {action.help}")
    return "\n".join(lines) + "\n"
