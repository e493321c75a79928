"""The user's commands.toml: commands on the row under the cursor, with keys, views in which they work, and inputs.

Commands are argument lists: no shell reads them. Values of nodes and jobs are refused where a shell at the other end,
such as that of `ssh NODE COMMAND`, could read more than a word in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs

from ...config import strict_modes
from ...config.document import Document, decode, parse
from ...config.model import ConfigError
from ...config.schema import nearest
from ...text import format
from ...text.cells import clean
from .actions import FIXED, Action, keys_of
from .file import KeyNameError, key_name

_NAME: Final = "commands.toml"
#: Bytes; commands of one file.
_MOST_BYTES: Final = 256 * 1024
MOST_COMMANDS: Final = 64
#: What a command may name in braces, beside its inputs.
VARIABLES: Final = ("node", "rank", "pid", "pod", "namespace", "gpu", "job", "cluster")
#: A word in any shell, and no option.
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%+=,/~-]{0,500}")
_BRACES: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]+)\}")
#: Words of a command that is confirmed whatever `confirm` is.
_DESTRUCTIVE: Final = re.compile(
    r"\b(drain|kill|pkill|killall|scancel|reboot|shutdown|poweroff|halt|delete|rm|rmmod|reset|down|requeue|cordon|evict)\b"
    r"|--gpu-reset",
    re.IGNORECASE,
)


class CommandInput(msgspec.Struct, frozen=True):
    """A prompt before a command; its answer is {name}. Without a `default` an empty answer cancels the command."""

    name: str
    prompt: str = ""
    default: str = ""


class RowCommand(msgspec.Struct, frozen=True):
    """One command: `scopes` are names of views, `command` the program and its arguments."""

    name: str
    command: tuple[str, ...]
    scopes: tuple[str, ...]
    shortcut: str = ""  # Textual's name of the key; "": only in the palette
    confirm: bool = True
    interactive: bool = True  # gets the terminal; else its output is shown in a dialog
    inputs: tuple[CommandInput, ...] = ()

    @property
    def is_confirmed(self) -> bool:
        """Whether to ask before it runs: as configured, and always before what may destroy something."""
        return self.confirm or any(_DESTRUCTIVE.search(word) for word in self.command)

    @property
    def variables(self) -> frozenset[str]:
        """Names in braces."""
        return frozenset(match[1] for word in self.command for match in _BRACES.finditer(word) if match[1])


class CommandFileContents(msgspec.Struct, frozen=True):
    """The valid commands, and what is wrong with the others, each with its line."""

    commands: tuple[RowCommand, ...] = ()
    complaints: tuple[str, ...] = ()


NO_COMMANDS: Final = CommandFileContents()


class UnsafeValue(ValueError):
    """A value that is missing, or that a shell would read as more than one word; the text says which."""


def arguments(command: RowCommand, values: Mapping[str, object], answers: Mapping[str, str]) -> list[str]:
    """The argument list: `values` are those of the row, `answers` those of the inputs. Raises UnsafeValue."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name in answers:
            return answers[name]
        raw = values.get(name)
        if raw is None or raw == "":
            raise UnsafeValue(f"nothing under the cursor has a {name}; {command.name} needs one")
        if not _WORD.fullmatch(str(raw)):
            raise UnsafeValue(f"the {name} {clean(str(raw))[:60]!r} is not a plain word; {command.name} was not run")
        return str(raw)

    return [_BRACES.sub(value, word) for word in command.command]


# -- the file ----------------------------------------------------------------------------------------------------------


def commands_path() -> Path:
    """Path of the user's commands.toml."""
    return platformdirs.user_config_path("gconsole") / _NAME


def read_commands(
    path: Path, views: Sequence[str], actions: Sequence[Action], keymap: Mapping[str, str]
) -> CommandFileContents:
    """The commands in the file; none without a file. `views` are names of views; `actions` have keys, as `keymap` says.

    A file that others can change is not used.
    """
    try:
        with path.open("rb") as file:
            reason = strict_modes.reason_to_reject(path, os.fstat(file.fileno()))
            raw = file.read(_MOST_BYTES + 1)
        if reason is not None:
            return CommandFileContents((), (f"{path}: {reason}; its commands are not used",))
        if len(raw) > _MOST_BYTES:
            return CommandFileContents((), (f"{_NAME}: larger than {format.size(_MOST_BYTES)}",))
        document = parse(decode(raw, _NAME), path, _NAME)
    except FileNotFoundError:
        return CommandFileContents()
    except OSError as error:
        return CommandFileContents((), (f"{path}: cannot be read ({error.strerror or error})",))
    except ConfigError as error:
        return CommandFileContents((), (str(error),))
    return _checked(document, views, {key: action.id for action in actions for key in keys_of(action, keymap)})


def _checked(document: Document, views: Sequence[str], taken: Mapping[str, str]) -> CommandFileContents:
    complaints = [
        str(document.error((name,), name, "unknown key; write [[command]] entries", ""))
        for name in document.data
        if name != "command"
    ]
    entries = document.data.get("command", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return CommandFileContents((), (str(document.error(("command",), "command", "must be [[command]] entries")),))
    commands: dict[str, RowCommand] = {}
    used = dict(taken)
    for index, entry in enumerate(entries[:MOST_COMMANDS]):
        path = ("command", index)
        problems = [str(document.error((*path, key), f"command.{key}", text)) for key, text in _problems(entry, views)]
        if not problems:
            command = _command(entry, views)
            key = command.shortcut
            if command.name in commands:
                problems.append(str(document.error((*path, "name"), "command.name", f"{command.name!r} occurs twice")))
            elif key and (key in used or key in FIXED):
                text = f"{key} is already the key of {used.get(key, 'a fixed action')}; use another one"
                problems.append(str(document.error((*path, "shortcut"), "command.shortcut", text)))
            else:
                commands[command.name] = command
                used |= {key: command.name} if key else {}
        complaints += problems
    if len(entries) > MOST_COMMANDS:
        complaints.append(f"{_NAME}: only the first {MOST_COMMANDS} commands are used")
    return CommandFileContents(tuple(commands.values()), tuple(complaints))


_KEYS: Final = {
    "name": str, "shortcut": str, "scopes": list, "command": list, "confirm": bool, "interactive": bool, "inputs": list,
}  # fmt: skip

_TYPES: Final = {str: "a text", list: "a list", bool: "true or false"}


def _problems(entry: Mapping[str, Any], views: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with it) of one entry."""
    for key, value in entry.items():
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            yield key, "unknown key" + (f"; did you mean {near}?" if near else f"; use {', '.join(_KEYS)}")
        elif not isinstance(value, _KEYS[key]):
            yield key, f"must be {_TYPES[_KEYS[key]]}"
    words = entry.get("command")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        yield "command", 'must be a list of texts, the program first: ["ssh", "{node}"]'
        words = []
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 40 or clean(name) != name:
        yield "name", "must be a text of 1 to 40 characters"
    yield from _scope_problems(entry.get("scopes"), views)
    yield from _variable_problems(words, entry.get("inputs", []))
    try:
        if isinstance(entry.get("shortcut"), str) and entry["shortcut"]:
            key_name(entry["shortcut"])
    except KeyNameError as error:
        yield "shortcut", str(error)


def _scope_problems(scopes: object, views: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(scopes, list) or not scopes:
        yield "scopes", f'must list views in which it works, or "all": {", ".join(views)}'
        return
    for scope in scopes:
        if scope not in (*views, "all"):
            yield "scopes", f'{clean(str(scope))[:40]!r} is not a view; use "all" or {", ".join(views)}'


def _variable_problems(words: Sequence[str], inputs: object) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    for entry in inputs if isinstance(inputs, list) else ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]{1,40}", name) or name in (*VARIABLES, *names):
            yield "inputs", 'each input needs a name of its own of letters: { name = "reason", prompt = "Reason" }'
            return
        if set(entry) - {"name", "prompt", "default"} or not all(isinstance(value, str) for value in entry.values()):
            yield "inputs", "an input has the texts name, prompt and default"
            return
        names.append(name)
    if words and _BRACES.search(words[0]):
        yield "command", "the program must not depend on the row"
    for word in words:
        for match in _BRACES.finditer(word):
            if match[1] and match[1] not in (*VARIABLES, *names):
                usable = ", ".join((*VARIABLES, *names))
                yield "command", f"{match[0]} is not a variable; use {usable}, or {{{match[0]}}} for the text itself"


def _command(entry: Mapping[str, Any], views: Sequence[str]) -> RowCommand:
    scopes = tuple(views) if "all" in entry["scopes"] else tuple(entry["scopes"])
    return RowCommand(
        entry["name"], tuple(entry["command"]), scopes, key_name(entry["shortcut"]) if entry.get("shortcut") else "",
        entry.get("confirm", True), entry.get("interactive", True),
        tuple(CommandInput(**values) for values in entry.get("inputs", [])),
    )  # fmt: skip
