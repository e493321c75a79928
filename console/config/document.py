"""Strict reader of one hosts.toml: unknown keys, wrong types and ranges are errors with their line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..text.format import size
from .model import ConfigError, Origin, PlacedRule, Setting, all_of
from .nodeset import NodeAddress, expand, fold
from .nodeset_parser import MAX_NAMES, BadNodeSet
from .schema import BadValue, Key, Value, all_keys, keys, nearest, overrides, sections, shown
from .strict_modes import reason_to_reject
from .toml_positions import Path as KeyPath
from .toml_positions import TomlPosition, places
from .watch_rules import rules_of

#: Bytes. Larger than a hosts.toml with 16,384 separately listed nodes.
_MAX_BYTES = 16 << 20
#: A host name or an IPv4 address with a port.
_WITH_PORT = re.compile(r"([^:]+):([0-9]{1,5})")


class Document(msgspec.Struct, frozen=True):
    """A hosts.toml with valid TOML syntax, and the positions of its keys."""

    name: str  # the path as entered; errors begin with it
    path: Path
    text: str
    data: dict[str, Any]
    places: Mapping[KeyPath, TomlPosition]

    def line(self, *path: str | int) -> int:
        """The line of a key, or of the nearest enclosing table in the file."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]].line
        return 1

    def error(self, path: KeyPath, key: str, text: str, near: str = "") -> ConfigError:
        """An error at the line of a key."""
        return ConfigError(f"{self.name}:{self.line(*path)}", key, text, near)

    def place(self, *path: str | int) -> str:
        """File and line of a key as text."""
        return f"{self.name}:{self.line(*path)}"

    def origin(self, *path: str | int) -> Origin:
        """File and line of a key."""
        return Origin("file", self.place(*path))

    def value(self, path: KeyPath, key: Key, value: object) -> Value:
        """The checked value of a key at `path`; local paths are relative to the file. Raises ConfigError."""
        try:
            return resolve_path(key, key.check(value), self.path.parent)
        except BadValue as error:
            raise self.error(path, str(key), error.text, error.nearest) from None


class Entry(msgspec.Struct, frozen=True):
    """One [[nodes]] entry, checked."""

    index: int  # in the file, from 0
    text: str  # `hosts` as written
    hosts: tuple[NodeAddress, ...]
    origin: Origin  # of `hosts`
    own: Mapping[str, Setting]  # its settings by full name: "ssh.port", "nodes.address"


class Contents(msgspec.Struct, frozen=True):
    """The checked content of a hosts.toml."""

    settings: Mapping[str, Setting]  # by full name; only those in the file
    entries: tuple[Entry, ...]
    rules: tuple[PlacedRule, ...] = ()


def read(path: Path, name: str) -> Document:
    """Read a file; errors begin with `name`. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
            reason = reason_to_reject(path, os.fstat(file.fileno()))
    except FileNotFoundError:
        raise ConfigError(
            name, "", "file not found; create one with: gconsole config init FILE", _neighbour(path)
        ) from None
    except IsADirectoryError:
        raise ConfigError(name, "", "is a folder, not a file", _neighbour(path / "hosts")) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ConfigError(name, "", f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if reason is not None:
        text = f"{reason}, and it may name programs to run; use a copy of your own that only you can write to"
        raise ConfigError(name, "", text)
    if len(raw) > _MAX_BYTES:
        raise ConfigError(name, "", f"is larger than the limit for hosts.toml, {size(_MAX_BYTES)}")
    return parse(decode(raw, name), path, name)


def decode(raw: bytes, name: str) -> str:
    """The decoded text. Raises ConfigError if it is not UTF-8 or begins with a byte order mark."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        text = f"byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise ConfigError(f"{name}:{line}", "", text) from None
    if text.startswith("\ufeff"):
        raise ConfigError(f"{name}:1", "", "begins with a byte order mark; save the file as UTF-8 without one")
    return text


def parse(text: str, path: Path, name: str) -> Document:
    """Parse TOML with key positions. Raises ConfigError with the line of a syntax error."""
    import tomli

    try:
        data = tomli.loads(text)
        return Document(name, path, text, data, places(text))
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}", "", f"not valid TOML: {_lower(error.msg)}") from error
    except RecursionError:
        raise ConfigError(name, "", "not valid TOML: lists or tables are nested too deeply") from None
    except ValueError as error:  # an integer with thousands of digits
        raise ConfigError(name, "", f"not valid TOML: {_lower(str(error))}") from error


def check(document: Document) -> Contents:
    """Check a document. Raises ConfigError with all errors."""
    errors: list[ConfigError] = []
    settings = dict(_file_settings(document, errors))
    entries: tuple[Entry, ...] = ()
    rules: tuple[PlacedRule, ...] = ()
    try:
        entries = tuple(_entries(document, errors))
    except ConfigError as error:
        errors.append(error)
    try:
        rules = tuple(rules_of(document))
    except ConfigError as error:
        errors.append(error)
    if errors:
        raise all_of(errors)
    return Contents(settings, entries, rules)


def _file_settings(document: Document, errors: list[ConfigError]) -> Iterator[tuple[str, Setting]]:
    """The settings of all sections but [[nodes]], by full name."""
    for section, table in document.data.items():
        if section == "nodes":
            continue
        if section not in sections():
            errors.append(_unknown_section(document, section, table))
        elif not isinstance(table, dict):
            text = f"must be a section, [{section}], is {shown(table)}"
            errors.append(document.error((section,), section, text))
        else:
            yield from _table_settings(document, (section,), table, section, keys(section), errors)


def _table_settings(
    document: Document, path: KeyPath, table: dict[str, Any], section: str, allowed: Mapping[str, Key],
    errors: list[ConfigError],
) -> Iterator[tuple[str, Setting]]:  # fmt: skip
    """The settings of one table, by full name."""
    for name, value in table.items():
        if (section, name) == ("watch", "rule"):
            continue
        key = allowed.get(name)
        if key is None:
            errors.append(_unknown_key(document, (*path, name), section, allowed))
            continue
        try:
            yield str(key), _setting(document, (*path, name), key, value)
        except ConfigError as error:
            errors.append(error)


def resolve_path(key: Key, value: Value, folder: Path) -> Value:
    """The value; a local path is made absolute: `~` expanded, or relative to `folder`. Raises BadValue."""
    if not key.is_path or not isinstance(value, str) or not value:
        return value
    expanded = os.path.expanduser(value)  # noqa: PTH111 - Path.expanduser raises RuntimeError, and only sometimes
    if expanded.startswith("~"):
        raise BadValue(f"home directory does not exist: {shown(value)}")
    return str(folder.absolute() / expanded)


def _entries(document: Document, errors: list[ConfigError]) -> Iterator[Entry]:
    tables = document.data.get("nodes", [])
    if isinstance(tables, dict):
        raise document.error(("nodes",), "nodes", "must be a list of entries; write [[nodes]] with two brackets")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise document.error(("nodes",), "nodes", f"must be [[nodes]] entries, is {shown(tables)}")
    if not tables and errors:
        return  # perhaps [[nodes]] is what is misspelled
    if not tables:
        raise ConfigError(document.name, "nodes", 'no nodes; add [[nodes]] with hosts = "node[01-04]"')
    seen: dict[str, Origin] = {}
    for index, table in enumerate(tables):
        try:
            entry = _entry(document, index, table, errors)
            _refuse_known(document, entry, seen)
        except ConfigError as error:
            errors.append(error)
            continue
        seen.update((host.name, entry.origin) for host in entry.hosts)
        if len(seen) > MAX_NAMES:
            raise document.error(("nodes", index, "hosts"), "nodes.hosts", f"more than {MAX_NAMES:,} nodes up to here")
        yield entry


def _entry(document: Document, index: int, table: dict[str, Any], errors: list[ConfigError]) -> Entry:
    entry_path = ("nodes", index)
    allowed = {**keys("nodes"), **overrides()}
    before = len(errors)
    own = dict(_table_settings(document, entry_path, table, "nodes", allowed, errors))
    hosts = own.pop("nodes.hosts", None)
    if hosts is None and len(errors) > before:
        raise errors.pop()  # `hosts` may be the key that is wrong
    if hosts is None:
        raise document.error(entry_path, "nodes.hosts", 'is missing; add hosts = "node[01-04]"')
    text = str(hosts.value)
    try:
        members = expand(text)
    except BadNodeSet as error:
        raise document.error((*entry_path, "hosts"), "nodes.hosts", error.text, error.nearest) from None
    if "nodes.address" in own and len(members) > 1:
        why = f"an address belongs to one node, this entry has {len(members)}"
        raise document.error((*entry_path, "address"), "nodes.address", why)
    if "nodes.address" in own and (parts := _WITH_PORT.fullmatch(str(own["nodes.address"].value))):
        why = f'has a port; write address = "{parts[1]}" and port = {parts[2]}'
        raise document.error((*entry_path, "address"), "nodes.address", why)
    return Entry(index, text, members, hosts.origin, own)


def _refuse_known(document: Document, entry: Entry, seen: Mapping[str, Origin]) -> None:
    again = [host.name for host in entry.hosts if host.name in seen]
    if again:
        first = seen[again[0]]
        again = [name for name in again if seen[name] == first]
        text = f"{'duplicate node' if len(again) == 1 else 'duplicate nodes'} {fold(again)} (first at {first})"
        raise document.error(("nodes", entry.index, "hosts"), "nodes.hosts", text)


def _setting(document: Document, path: KeyPath, key: Key, value: object) -> Setting:
    return Setting(str(key), document.value(path, key, value), document.origin(*path))


def _unknown_section(document: Document, section: str, value: object) -> ConfigError:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        near = nearest(section, [*sections(), "nodes"])
        near = f"[[{near}]]" if near == "nodes" else f"[{near}]" if near else ""
        return document.error((section,), section, "unknown section", near)
    return document.error((section,), section, "unknown key outside of a section", _elsewhere(section))


def _unknown_key(document: Document, path: KeyPath, section: str, allowed: Mapping[str, Key]) -> ConfigError:
    name = str(path[-1])
    near = nearest(name, allowed) or _elsewhere(name)
    return document.error(path, f"{section}.{name}", "unknown key", near)


def _elsewhere(name: str) -> str:
    """The section of a key with a similar name, as a suggestion, or ""."""
    bare = {key.name: key for key in all_keys().values()}
    near = nearest(name, bare)
    return f"{near} in [{bare[near].section}]" if near else ""


def _neighbour(path: Path) -> str:
    """A TOML file in the same folder with a similar name, or ""."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".toml"]
    except (OSError, ValueError):
        return ""
    near = nearest(path.name, names)
    return str(path.parent / near) if near else ""


def _lower(message: str) -> str:
    return re.sub(r"^[A-Z](?=[a-z])", lambda match: match.group().lower(), message)
