"""PyTorch's Flight Recorder: one rank's dump, as JSON or as pickle, made plain.

Formats 1.x (torch 2.2) to 2.10 (torch 2.13) are read by the same rules, and so are later ones as far as they keep the
names: what is missing is None, what is odd is left out and said. What differs, and what is wrong in the dumps:

- numbers of pg_status are texts in JSON, and -1 means none; `ranks` of pg_config is a text;
- gloo's pg_config has one group without a name, whose ranks are those of the default group, or none ([]) once there
  is a second group;
- `pg_id` counts the groups of that process; only the group's name is the same on all ranks;
- instants that never came are None in a pickle and 0 in JSON; JSON has no frames;
- gloo leaves `state` at "scheduled" for ever, and its last_completed may be behind: `retired` is right.
"""

import json
import re

from . import safe_pickle
from .values import count, elements, figure, instant, text

#: Of each group so many of the newest operations are kept, and so many of one rank in all.
MOST_OF_GROUP, MOST_ENTRIES = 64, 512
#: A rank is in a few dozen groups (data, tensor, pipeline, expert parallel), not in more.
MOST_GROUPS = 256
MOST_TENSORS, MOST_DIMENSIONS, MOST_FRAMES = 16, 16, 64
MOST_RANKS = 1 << 17
#: Name and description of the group of all ranks (torch/distributed/distributed_c10d.py).
DEFAULT_PG = ("0", "default_pg")
_NAME, _FILE = 256, 512


class BadTrace(ValueError):
    """What was read is no dump of a Flight Recorder; the message says what is wrong with it."""


class Trace(object):
    """`entries`: fields of `collective` records, oldest first; `groups`: fields of `pg_status` records; `held`: how
    many operations the buffer had; `problems`: what was left out, a sentence each."""

    def __init__(self, version, entries, groups, held, problems):
        self.version = version
        self.entries = entries
        self.groups = groups
        self.held = held
        self.problems = problems


def parse(data, until=None):
    """The Trace in the bytes of a dump, JSON or pickle. Raises BadTrace."""
    return read_document(document_of(data, until))


def document_of(data, until=None):
    """What a dump's bytes hold, as Python values. Raises BadTrace."""
    head = data[:64].lstrip()[:1]
    if not head:
        raise BadTrace("it is empty")
    if head in (b"{", b"["):
        try:
            return json.loads(data.decode("utf-8", "backslashreplace"))
        except (ValueError, RecursionError) as error:
            raise BadTrace("it is no JSON: %s" % error)
    try:
        return safe_pickle.loads(data, until)
    except safe_pickle.BadPickle as error:
        raise BadTrace("as a pickle: %s" % error)


def read_document(said):
    """The Trace in a dump that has been decoded. Raises BadTrace."""
    if not isinstance(said, dict) or not ("entries" in said or "pg_status" in said or "pg_config" in said):
        raise BadTrace("it has neither entries nor groups")
    problems = []
    listed = said.get("entries", [])
    if not isinstance(listed, (list, tuple)):
        problems.append("entries are no list")
        listed = []
    entries = _entries(listed, problems)
    groups = _groups(said, entries, problems)
    version = said.get("version")
    oldest = min((entry["record_id"] for entry in entries if entry["record_id"] is not None), default=None)
    for group in groups:
        group["oldest_record_id"] = oldest
        group["entries"] = len(listed)
    return Trace(text(version, 32) if version is not None else None, _newest(entries), groups, len(listed), problems)


# -- operations ------------------------------------------------------------------------------------------------------


def _entries(listed, problems):
    entries, bad = [], 0
    for at, one in enumerate(listed):
        fields = _entry(one)
        if fields is None:
            bad += 1
            if bad == 1:
                problems.append("entry %d is none" % at)
        else:
            entries.append(fields)
    if bad > 1:
        problems.append("%d entries are none" % bad)
    return entries


def _entry(one):
    if not isinstance(one, dict):
        return None
    name = text(one.get("profiling_name"), _NAME)
    if not name:
        return None
    fields = {
        "record_id": count(one.get("record_id", one.get("id"))),
        "pg_id": count(one.get("pg_id")),
        "process_group": _group_name(one),
        "collective_seq_id": count(one.get("collective_seq_id", one.get("seq_id"))),
        "p2p_seq_id": count(one.get("p2p_seq_id")),
        "op_id": count(one.get("op_id")),
        "profiling_name": name,
        "is_p2p": bool(one.get("is_p2p", _is_p2p(name))),
        "state": text(one.get("state"), 32) or None,
        "retired": one["retired"] if isinstance(one.get("retired"), bool) else None,
        "time_created_ns": instant(one.get("time_created_ns")),
        "time_discovered_started_ns": instant(one.get("time_discovered_started_ns")),
        "time_discovered_completed_ns": instant(one.get("time_discovered_completed_ns")),
        "duration_ms": figure(one.get("duration_ms")),
        "timeout_ms": count(one.get("timeout_ms")),
        "thread_name": text(one.get("thread_name"), 64) or None,
        "frames": _frames(one.get("frames")),
    }
    for side in ("input", "output"):
        sizes = _sizes(one.get(side + "_sizes"))
        fields[side + "_sizes"] = None if sizes is None else sizes[:MOST_TENSORS]
        fields[side + "_numel"] = None if sizes is None else elements(sizes)
        fields[side + "_dtypes"] = _texts(one.get(side + "_dtypes"))
    if fields["retired"] is None and fields["state"] == "completed":
        fields["retired"] = True
    return fields


def _group_name(one):
    named = one.get("process_group")
    if isinstance(named, (list, tuple)) and named:
        return [text(named[0], _NAME), text(named[1], _NAME) if len(named) > 1 else ""]
    for key in ("process_group", "pg_name"):  # before format 2.1
        if isinstance(one.get(key), (str, int)):
            return [text(one[key], _NAME), ""]
    return None


def _is_p2p(name):
    operation = name.rpartition(":")[2].partition(" ")[0]
    return operation in ("send", "recv")


def _newest(entries):
    """The newest of each group, and of all; those that are not over in any case, up to as many again."""
    if len(entries) <= MOST_OF_GROUP:
        return entries
    kept, of_group, pending = [], {}, 0
    for fields in reversed(entries):
        key = tuple(fields["process_group"] or ("", str(fields["pg_id"])))
        of_group[key] = of_group.get(key, 0) + 1
        if len(kept) < MOST_ENTRIES and of_group[key] <= MOST_OF_GROUP:
            kept.append(fields)
        elif fields["retired"] is False and pending < MOST_ENTRIES:
            pending += 1
            kept.append(fields)
    return kept[::-1]


# -- groups ----------------------------------------------------------------------------------------------------------


def _groups(said, entries, problems):
    """A line a group that the process knows of: from pg_status, from pg_config, or only from its operations."""
    names = {}
    for fields in entries:
        if fields["pg_id"] is not None and fields["process_group"] is not None:
            names[fields["pg_id"]] = fields["process_group"]
    members = _members(said.get("pg_config"), names, problems)
    groups = {}
    status = said.get("pg_status") or {}
    if not isinstance(status, dict):
        problems.append("pg_status is no table")
        status = {}
    for key, figures in list(status.items())[:MOST_GROUPS]:
        pg_id = count(key)
        if pg_id is None or not isinstance(figures, dict):
            problems.append("pg_status of %s is none" % text(key, 32))
            continue
        groups[pg_id] = _group(pg_id, names.get(pg_id), figures)
    for pg_id, name in names.items():
        if pg_id not in groups and len(groups) < MOST_GROUPS:
            groups[pg_id] = _group(pg_id, name, {})
    lines = [groups[pg_id] for pg_id in sorted(groups)]
    _join(lines, members)
    return lines


def _group(pg_id, name, figures):
    fields = {"pg_id": pg_id, "process_group": name, "ranks": None}
    for what in ("enqueued", "started", "completed"):
        fields["last_%s_collective" % what] = count(figures.get("last_%s_collective" % what))
    return fields


def _members(config, names, problems):
    """{name: (description, ranks)} of pg_config. The nameless group of gloo is the default one, or nobody knows."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        problems.append("pg_config is no table")
        return {}
    found = {}
    for key, said in list(config.items())[:MOST_GROUPS]:
        if not isinstance(said, dict):
            problems.append("pg_config of %s is none" % text(key, 32))
            continue
        name = text(said.get("name"), _NAME) or text(key, _NAME)
        ranks = _ranks(said.get("ranks"))
        if not name and ranks and all(known[1] == DEFAULT_PG[1] for known in names.values()):
            name = next(iter(names.values()))[0] if names else DEFAULT_PG[0]
        if name:
            found[name] = (text(said.get("desc"), _NAME), ranks)
    return found


def _join(lines, members):
    """Put what pg_config says to the groups, and add those of which nothing else is known: nothing was done in them."""
    known = {line["process_group"][0] for line in lines if line["process_group"]}
    nameless = [line for line in lines if line["process_group"] is None]
    for line in lines:
        if line["process_group"]:
            line["ranks"] = members.get(line["process_group"][0], ("", None))[1]
    unknown = [name for name in members if name not in known]
    if len(unknown) == len(nameless) == 1:  # its operations have left the buffer
        nameless[0]["process_group"] = [unknown[0], members[unknown[0]][0]]
        nameless[0]["ranks"] = members[unknown[0]][1]
    elif not nameless:
        for name in unknown[: MOST_GROUPS - len(lines)]:
            line = _group(None, [name, members[name][0]], {})
            line["ranks"] = members[name][1]
            lines.append(line)


def _ranks(said):
    if isinstance(said, str):
        said = [int(word) for word in re.findall(r"\d{1,9}", said[: 8 * MOST_RANKS])]
    if not isinstance(said, (list, tuple)):
        return None
    ranks = sorted({rank for rank in said[:MOST_RANKS] if count(rank) is not None and count(rank) < MOST_RANKS})
    return ranks or None


# -- parts of an operation -------------------------------------------------------------------------------------------


def _sizes(said):
    """Shapes as lists of counts; None where one of them is not known. A single shape is a list of one."""
    if not isinstance(said, (list, tuple)):
        return None
    if said and all(count(size) is not None for size in said):
        said = [said]
    shapes = []
    for shape in said:
        if not isinstance(shape, (list, tuple)) or len(shape) > MOST_DIMENSIONS:
            return None
        sizes = [count(size) for size in shape]
        if None in sizes:
            return None
        shapes.append(sizes)
    return shapes


def _texts(said):
    if not isinstance(said, (list, tuple)):
        return None
    return [text(one, 64) for one in said[:MOST_TENSORS]]


def _frames(said):
    if not isinstance(said, (list, tuple)):
        return None
    frames = []
    for one in said[:MOST_FRAMES]:
        if isinstance(one, dict):
            name, file = text(one.get("name"), _NAME), text(one.get("filename"), _FILE)
            frames.append({"function": name, "file": file, "line": count(one.get("line")) or 0})
    return frames[::-1] or None  # torch begins with the innermost, a `stack` record with the outermost
