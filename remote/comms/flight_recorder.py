"""Dumps of PyTorch's Flight Recorder, JSON or pickle, of one rank.

Formats 1.x (torch 2.2) to 2.10 (torch 2.13), and later ones with the same names. Missing values are None; malformed
parts are dropped and listed as problems. Quirks:

- numbers of pg_status are strings in JSON, -1 is unset; `ranks` of pg_config is a string;
- gloo's pg_config has one unnamed group with the ranks of the default group, or none ([]) once there is a second one;
- `pg_id` counts the groups of a process; only the group's name is the same on all ranks;
- unset times are None in a pickle and 0 in JSON; JSON has no frames;
- gloo never advances `state` beyond "scheduled" and its last_completed may lag: `retired` is correct.
"""

import json
import re

from . import safe_pickle
from .values import count, elements, figure, instant, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    Fields = dict[str, Any]
    GroupName = list[str]  # [name, description]
    Members = dict[str, tuple[str, "list[int] | None"]]  # name: (description, ranks)

#: Newest operations kept per group and per rank.
MAX_PER_GROUP, MAX_ENTRIES = 64, 512
#: A rank is typically in a few dozen groups (data, tensor, pipeline, expert parallel).
MAX_GROUPS = 256
MAX_TENSORS, MAX_DIMENSIONS, MAX_FRAMES = 16, 16, 64
MAX_RANKS = 1 << 17
#: Name and description of the group of all ranks (torch/distributed/distributed_c10d.py).
DEFAULT_PG = ("0", "default_pg")
_NAME, _FILE = 256, 512


class BadDump(ValueError):
    """The data is not a Flight Recorder dump; the text is the reason."""


class FlightRecorderDump(object):
    """`entries`: fields of `collective` records, the newest of each group and those that wait, oldest first; `earlier`:
    the others; `groups`: fields of `pg_status` records; `held`: number of operations in the buffer; `problems`: dropped
    parts, a sentence each."""

    def __init__(
        self, version: "str | None", entries: "list[Fields]", groups: "list[Fields]", held: int, problems: "list[str]"
    ) -> None:
        self.version = version
        self.entries = _newest(entries)
        kept = {id(fields) for fields in self.entries}
        self.earlier = [fields for fields in entries if id(fields) not in kept]
        self.groups = groups
        self.held = held
        self.problems = problems


def parse(data: bytes, deadline: "float | None" = None) -> "FlightRecorderDump":
    """Parse a dump, JSON or pickle; `deadline` in time.monotonic(). Raises BadDump."""
    return parse_document(decode(data, deadline))


def decode(data: bytes, deadline: "float | None" = None) -> "Any":
    """The Python values in a dump. Raises BadDump."""
    head = data[:64].lstrip()[:1]
    if not head:
        raise BadDump("empty file")
    if head in (b"{", b"["):
        try:
            return json.loads(data.decode("utf-8", "backslashreplace"))
        except (ValueError, RecursionError) as error:
            raise BadDump("invalid JSON: %s" % error)
    try:
        return safe_pickle.loads(data, deadline)
    except safe_pickle.BadPickle as error:
        raise BadDump("invalid pickle: %s" % error)


def parse_document(document: "Any") -> "FlightRecorderDump":
    """Parse a decoded dump. Raises BadDump."""
    if not isinstance(document, dict) or not any(key in document for key in ("entries", "pg_status", "pg_config")):
        raise BadDump("neither entries nor groups in it")
    problems: "list[str]" = []
    listed = document.get("entries", [])
    if not isinstance(listed, (list, tuple)):
        problems.append("entries: not a list")
        listed = []
    entries = _entries(listed, problems)
    groups = _groups(document, entries, problems)
    version = document.get("version")
    oldest = min((entry["record_id"] for entry in entries if entry["record_id"] is not None), default=None)
    for group in groups:
        group["oldest_record_id"] = oldest
        group["entries"] = len(listed)
    return FlightRecorderDump(
        text(version, 32) if version is not None else None, entries, groups, len(listed), problems
    )


# -- operations ------------------------------------------------------------------------------------------------------


def _entries(listed: "Sequence[Any]", problems: "list[str]") -> "list[Fields]":
    entries, bad = [], 0
    for index, entry in enumerate(listed):
        fields = _entry(entry)
        if fields is None:
            bad += 1
            if bad == 1:
                problems.append("entry %d is malformed" % index)
        else:
            entries.append(fields)
    if bad > 1:
        problems.append("%d entries are malformed" % bad)
    return entries


def _entry(entry: "Any") -> "Fields | None":
    if not isinstance(entry, dict):
        return None
    name = text(entry.get("profiling_name"), _NAME)
    if not name:
        return None
    fields: "Fields" = {
        "record_id": count(entry.get("record_id", entry.get("id"))),
        "pg_id": count(entry.get("pg_id")),
        "process_group": _group_name(entry),
        "collective_seq_id": count(entry.get("collective_seq_id", entry.get("seq_id"))),
        "p2p_seq_id": count(entry.get("p2p_seq_id")),
        "op_id": count(entry.get("op_id")),
        "profiling_name": name,
        "is_p2p": bool(entry.get("is_p2p", _is_p2p(name))),
        "state": text(entry.get("state"), 32) or None,
        "retired": entry["retired"] if isinstance(entry.get("retired"), bool) else None,
        "time_created_ns": instant(entry.get("time_created_ns")),
        "time_discovered_started_ns": instant(entry.get("time_discovered_started_ns")),
        "time_discovered_completed_ns": instant(entry.get("time_discovered_completed_ns")),
        "duration_ms": figure(entry.get("duration_ms")),
        "timeout_ms": count(entry.get("timeout_ms")),
        "thread_name": text(entry.get("thread_name"), 64) or None,
        "frames": _frames(entry.get("frames")),
    }
    for side in ("input", "output"):
        sizes = _sizes(entry.get(side + "_sizes"))
        fields[side + "_sizes"] = None if sizes is None else sizes[:MAX_TENSORS]
        fields[side + "_numel"] = None if sizes is None else elements(sizes)
        fields[side + "_dtypes"] = _texts(entry.get(side + "_dtypes"))
    if fields["retired"] is None and fields["state"] == "completed":
        fields["retired"] = True
    return fields


def _group_name(entry: "Fields") -> "GroupName | None":
    named = entry.get("process_group")
    if isinstance(named, (list, tuple)) and named:
        return [text(named[0], _NAME), text(named[1], _NAME) if len(named) > 1 else ""]
    for key in ("process_group", "pg_name"):  # before format 2.1
        if isinstance(entry.get(key), (str, int)):
            return [text(entry[key], _NAME), ""]
    return None


def _is_p2p(name: str) -> bool:
    operation = name.rpartition(":")[2].partition(" ")[0]
    return operation in ("send", "recv")


def _newest(entries: "list[Fields]") -> "list[Fields]":
    """The newest entries per group, sends and receives apart, and overall; up to as many pending ones besides."""
    if len(entries) <= MAX_PER_GROUP:
        return entries
    of_group: "dict[tuple[str, ...], int]" = {}
    kept: "list[Fields]" = []
    pending = 0
    for fields in reversed(entries):
        key = (str(fields["is_p2p"]),) + tuple(fields["process_group"] or ("", str(fields["pg_id"])))
        of_group[key] = of_group.get(key, 0) + 1
        if len(kept) < MAX_ENTRIES and of_group[key] <= MAX_PER_GROUP:
            kept.append(fields)
        elif fields["retired"] is False and pending < MAX_ENTRIES:
            pending += 1
            kept.append(fields)
    return kept[::-1]


# -- groups ----------------------------------------------------------------------------------------------------------


def _groups(document: "Fields", entries: "list[Fields]", problems: "list[str]") -> "list[Fields]":
    """Fields of every group of the process: from pg_status, from pg_config, or only from its operations."""
    names: "dict[int, GroupName]" = {}
    for fields in entries:
        if fields["pg_id"] is not None and fields["process_group"] is not None:
            names[fields["pg_id"]] = fields["process_group"]
    members = _members(document.get("pg_config"), names, problems)
    groups: "dict[int, Fields]" = {}
    status = document.get("pg_status") or {}
    if not isinstance(status, dict):
        problems.append("pg_status: not an object")
        status = {}
    for key, figures in list(status.items())[:MAX_GROUPS]:
        pg_id = count(key)
        if pg_id is None or not isinstance(figures, dict):
            problems.append("pg_status of %s is malformed" % text(key, 32))
            continue
        groups[pg_id] = _group(pg_id, names.get(pg_id), figures)
    for pg_id, name in names.items():
        if pg_id not in groups and len(groups) < MAX_GROUPS:
            groups[pg_id] = _group(pg_id, name, {})
    lines = [groups[pg_id] for pg_id in sorted(groups)]
    _join(lines, members)
    return lines


def _group(pg_id: "int | None", name: "GroupName | None", figures: "Fields") -> "Fields":
    fields: "Fields" = {"pg_id": pg_id, "process_group": name, "ranks": None}
    for what in ("enqueued", "started", "completed"):
        fields["last_%s_collective" % what] = count(figures.get("last_%s_collective" % what))
    return fields


def _members(config: "Any", names: "dict[int, GroupName]", problems: "list[str]") -> "Members":
    """{name: (description, ranks)} of pg_config. gloo's unnamed group is the default one, or unknown."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        problems.append("pg_config: not an object")
        return {}
    members: "Members" = {}
    for key, group in list(config.items())[:MAX_GROUPS]:
        if not isinstance(group, dict):
            problems.append("pg_config of %s is malformed" % text(key, 32))
            continue
        name = text(group.get("name"), _NAME) or text(key, _NAME)
        ranks = _ranks(group.get("ranks"))
        if not name and ranks and all(other[1] == DEFAULT_PG[1] for other in names.values()):
            name = next(iter(names.values()))[0] if names else DEFAULT_PG[0]
        if name:
            members[name] = (text(group.get("desc"), _NAME), ranks)
    return members


def _join(lines: "list[Fields]", members: "Members") -> None:
    """Add the ranks of pg_config to the groups, and the groups that are only there: without any operation."""
    with_operations = {line["process_group"][0] for line in lines if line["process_group"]}
    unnamed = [line for line in lines if line["process_group"] is None]
    for line in lines:
        if line["process_group"]:
            line["ranks"] = members.get(line["process_group"][0], ("", None))[1]
    only_configured = [name for name in members if name not in with_operations]
    if len(only_configured) == len(unnamed) == 1:  # its operations were overwritten
        unnamed[0]["process_group"] = [only_configured[0], members[only_configured[0]][0]]
        unnamed[0]["ranks"] = members[only_configured[0]][1]
    elif not unnamed:
        for name in only_configured[: MAX_GROUPS - len(lines)]:
            line = _group(None, [name, members[name][0]], {})
            line["ranks"] = members[name][1]
            lines.append(line)


def _ranks(value: "Any") -> "list[int] | None":
    if isinstance(value, str):
        value = [int(word) for word in re.findall(r"\d{1,9}", value[: 8 * MAX_RANKS])]
    if not isinstance(value, (list, tuple)):
        return None
    numbers = map(count, value[:MAX_RANKS])
    ranks = sorted({rank for rank in numbers if rank is not None and rank < MAX_RANKS})
    return ranks or None


# -- parts of an operation -------------------------------------------------------------------------------------------


def _sizes(value: "Any") -> "list[list[int]] | None":
    """Shapes as lists of sizes, a single shape as a list of one; None if any is malformed."""
    if not isinstance(value, (list, tuple)):
        return None
    if value and all(count(size) is not None for size in value):
        value = [value]
    shapes = []
    for shape in value:
        if not isinstance(shape, (list, tuple)) or len(shape) > MAX_DIMENSIONS:
            return None
        sizes = [size for size in map(count, shape) if size is not None]
        if len(sizes) < len(shape):
            return None
        shapes.append(sizes)
    return shapes


def _texts(value: "Any") -> "list[str] | None":
    if not isinstance(value, (list, tuple)):
        return None
    return [text(item, 64) for item in value[:MAX_TENSORS]]


def _frames(value: "Any") -> "list[Fields] | None":
    if not isinstance(value, (list, tuple)):
        return None
    frames = []
    for frame in value[:MAX_FRAMES]:
        if isinstance(frame, dict):
            name, file = text(frame.get("name"), _NAME), text(frame.get("filename"), _FILE)
            frames.append({"function": name, "file": file, "line": count(frame.get("line")) or 0})
    return frames[::-1] or None  # torch: innermost first; records: outermost first
