"""Adds and removes entries of a hosts.toml; every other byte of the file is kept.

The text is edited at positions of `toml_positions`, because a TOML writer moves or drops comments between entries. The
result is parsed, compared with the expected data and checked before it replaces the file. Inline tables
(`nodes = [{…}, …]`) are edited by tomlkit.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..text.atomic_files import replace_same_mode
from .document import Document, Entry, check, parse, read
from .model import ConfigError
from .nodeset import expand, fold
from .nodeset_parser import BadNodeSet, terms
from .toml_positions import TomlPosition


def entries(name: str) -> tuple[Entry, ...]:
    """The entries of a file. Raises ConfigError."""
    return check(read(Path(name), name)).entries


def add(name: str, hosts: str, values: Mapping[str, str | int | Sequence[str] | None]) -> int:
    """Append an entry; `values` are its other keys by bare name, without None and empty ones.

    Returns its number of nodes. Raises ConfigError; the file is then unchanged.
    """
    document = read(Path(name), name)
    table: dict[str, Any] = {"hosts": hosts}
    given = {key: value for key, value in values.items() if value is not None and value != ()}
    table |= {key: value if isinstance(value, str | int) else list(value) for key, value in given.items()}
    text = _appended_inline(document, table) if _is_inline(document) else _appended(document, table)
    expected = copy.deepcopy(document.data)
    expected.setdefault("nodes", []).append(table)
    return len(_replace(document, text, expected)[-1].hosts)


def remove(name: str, hosts: str) -> int:
    """Remove nodes from their entries; an entry without nodes is removed.

    In an entry with a group they are excluded: "@rack1!node003". Returns the number of removed nodes. Raises
    ConfigError; the file is then unchanged.
    """
    document = read(Path(name), name)
    entries = check(document).entries
    leaving = _leaving(document, entries, hosts)
    if all(host.name in leaving for entry in entries for host in entry.hosts):
        raise ConfigError(name, "nodes", "no node would be left; remove the file instead")
    expected = copy.deepcopy(document.data)
    text = document.text
    for entry in reversed(entries):  # from the end, so that earlier positions stay valid
        remaining = [host for host in entry.hosts if host.name not in leaving]
        if len(remaining) == len(entry.hosts):
            continue
        if remaining:
            expected["nodes"][entry.index]["hosts"] = _without(entry, leaving)
            text = _spliced(text, document.places["nodes", entry.index, "hosts"], _without(entry, leaving))
        else:
            del expected["nodes"][entry.index]
            text = _cut_inline(text, entry.index) if _is_inline(document) else _cut(document, text, entry.index)
    _replace(document, text, expected)
    return len(leaving)


def _leaving(document: Document, entries: Sequence[Entry], hosts: str) -> frozenset[str]:
    """The names to remove. Raises ConfigError if one is not in the file."""
    try:
        leaving = frozenset(host.name for host in expand(hosts))
    except BadNodeSet as error:
        raise ConfigError("hosts", "", error.text, error.nearest) from None
    unknown = sorted(leaving - {host.name for entry in entries for host in entry.hosts})
    if unknown:
        raise ConfigError(document.name, "", f"has no node {fold(unknown)}")
    return leaving


def _without(entry: Entry, leaving: Collection[str]) -> str:
    """The `hosts` of an entry without these nodes; order and operands are kept."""
    gone = {host.text for host in entry.hosts if host.name in leaving}
    operands = terms(entry.text)
    if not all(term.is_plain for term in operands):
        return f"{entry.text}!{fold(sorted(gone))}"
    kept = []
    for term in operands:
        names = list(term.names())
        remaining = [name for name in names if name not in gone]
        if remaining:
            kept.append(term.text if len(remaining) == len(names) else fold(remaining))
    return ",".join(kept)


def _replace(document: Document, text: str, expected: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Check and write the new text; returns its entries."""
    edited = parse(text, document.path, document.name)
    entries = check(edited).entries
    if edited.data != expected:
        raise ConfigError(document.name, "", "cannot be edited automatically; edit it by hand")
    try:
        replace_same_mode(document.path, text.encode())
    except OSError as error:
        raise ConfigError(document.name, "", f"cannot be written ({error.strerror})") from error
    return entries


def _is_inline(document: Document) -> bool:
    """Whether the entries are written `nodes = [{…}]` instead of [[nodes]]."""
    place = document.places.get(("nodes",))
    return place is not None and document.text[place.start] != "["


def _appended(document: Document, table: Mapping[str, Any]) -> str:
    text = document.text
    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += newline
    gap = newline if text.strip() else ""
    lines = ["[[nodes]]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""]
    return text + gap + newline.join(lines)


def _spliced(text: str, place: TomlPosition, value: str) -> str:
    return text[: place.value_start] + _toml(value) + text[place.value_end :]


def _cut(document: Document, text: str, index: int) -> str:
    """`text` without one [[nodes]] entry, from its header to its last value; comments around it are kept."""
    own = [place for path, place in document.places.items() if path[:2] == ("nodes", index)]
    start = text.rfind("\n", 0, min(place.start for place in own)) + 1
    line_end = text.find("\n", max(place.value_end for place in own))
    before, after = text[:start], text[line_end + 1 :] if line_end >= 0 else ""
    newline = "\r\n" if before.endswith("\r\n") else "\n"
    if not before.endswith(newline * 2):
        return before + after
    if not after:
        return before.removesuffix(newline)
    return before + after.removeprefix(newline)  # one blank line between the neighbours


def _appended_inline(document: Document, table: Mapping[str, Any]) -> str:
    import tomlkit

    edited: Any = tomlkit.parse(document.text)
    entry = tomlkit.inline_table()
    entry.update(table)
    edited["nodes"].append(entry)
    return tomlkit.dumps(edited)


def _cut_inline(text: str, index: int) -> str:
    import tomlkit

    edited: Any = tomlkit.parse(text)
    del edited["nodes"][index]
    return tomlkit.dumps(edited)


def _toml(value: object) -> str:
    import tomlkit

    return tomlkit.item(value).as_string()
