"""What NCCL's RAS service answers to STATUS: JSON (from 2.28.7 on) or text; which ranks have launched how much.

RAS counts launches, on the CPU: equal counts say nothing of the operation that hangs. A rank is numbered within its
communicator; host and pid say which process that is. 2.28.9 leaves out a comma in `missing_ranks`.
"""

import json
import re

from .values import count, text

MOST_GROUPS, MOST_RANKS = 4096, 1 << 17
#: ncclResult_t (nccl.h): 0 success, 7 in progress.
_SUCCESS, _IN_PROGRESS = 0, 7
_MISSING_COMMA = re.compile(r'([0-9"}\]]|true|false|null)[ \t]*\n([ \t]*["{\[])')


class BadRas(ValueError):
    """What was read is no answer of RAS; the message says why."""


class Ras(object):
    """`groups`: fields of `pg_status` records, one a rank of a communicator; `repaired`: whether the JSON was mended;
    `problems`: what was left out."""

    def __init__(self, version, groups, repaired=False, problems=()):
        self.version = version
        self.groups = groups
        self.repaired = repaired
        self.problems = list(problems)


def parse(data):
    """The Ras in an answer, JSON or text. Raises BadRas."""
    said = data.decode("utf-8", "backslashreplace")
    begin = said.find("{")
    if begin >= 0 and '"communicators"' in said:
        return _parse_json(said[begin:])
    if "NCCL version" in said or "Job summary" in said or re.search(r"^#\d+-\d+ \(", said, re.MULTILINE):
        return parse_text(said)
    raise BadRas("neither RAS's JSON nor its text: %s" % (text(said, 80) or "nothing"))


def _parse_json(said):
    repaired = False
    try:
        document = json.loads(said)
    except (ValueError, RecursionError) as first:
        try:
            document = json.loads(_MISSING_COMMA.sub(r"\1,\n\2", said))
            repaired = True
        except (ValueError, RecursionError):
            raise BadRas("it is no JSON: %s" % first)
    if not isinstance(document, dict):
        raise BadRas("it is JSON of something else")
    groups, problems = [], []
    for at, group in enumerate(_listed(document.get("communicators"), MOST_GROUPS)):
        if not isinstance(group, dict) or not text(group.get("hash"), 64):
            problems.append("communicator %d is none" % at)
            continue
        groups.extend(_ranks(group, problems))
    return Ras(text(document.get("nccl_version"), 32) or None, groups[:MOST_RANKS], repaired, problems)


def _ranks(group, problems):
    name = text(group["hash"], 64)
    size = count(group.get("size"))
    for kind, state_of in (("ranks", _state), ("missing_ranks", _absence)):
        for at, one in enumerate(_listed(group.get(kind), MOST_RANKS)):
            if not isinstance(one, dict) or count(one.get("rank")) is None:
                problems.append("%s %d of %s is none" % (kind, at, name))
                continue
            counts = one.get("collective_counts")
            counts = counts if isinstance(counts, dict) else {}
            figures = {text(key, 64): count(value) for key, value in list(counts.items())[:64]}
            yield {
                "process_group": [name, ""],
                "group_size": size,
                "group_rank": count(one["rank"]),
                "pid": count(one.get("pid")) or None,
                "host": _host(one.get("host")),
                "op_counts": {key: value for key, value in figures.items() if key and value is not None},
                "group_state": state_of(one.get("status")),
            }


def _state(status):
    """What RAS itself makes of these flags (src/ras/client_support.cc), the worst first."""
    status = status if isinstance(status, dict) else {}
    for key in ("async_error", "init_state"):
        code = count(status.get(key))
        if code is not None and code not in (_SUCCESS, _IN_PROGRESS):
            return "error %d" % code
    if status.get("abort_flag") is True:
        return "abort"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "finalize"
    return "init" if status.get("init_state") == _IN_PROGRESS else "running"


def _absence(status):
    status = status if isinstance(status, dict) else {}
    if status.get("considered_dead") is True:
        return "considered_dead"
    return "unresponsive" if status.get("unresponsive") is True else "no_communicator"


def _host(said):
    name = text(said, 128)
    return name if name and name != "unknown" else None


def _listed(said, most):
    return said[:most] if isinstance(said, list) else []


# -- text ------------------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"^#\d+-\d+ \(([0-9a-fx]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_COUNTS = re.compile(r"^\s*Communicator ranks have different (\w+) operation counts")
_MANY = re.compile(r"^\s*(\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_RANK = re.compile(
    r"^\s*Rank (\d{1,9})(?: has (?:launched up to operation (\d{1,18})|(not launched any) operations"
    r"|status (\w+)))?(?: reported ([\w ]+?))? -- (.*)"
)
_PROCESS = re.compile(r"managed by process (\d{1,9}) on node (\S{1,128})")
_VERSION = re.compile(r"^NCCL version (\S{1,32})")


def parse_text(said):
    """The Ras in RAS's text, which names only outliers: those ranks, and no others, are in it."""
    groups, problems = [], []
    version = name = kind = operation = launched = None
    for line in said.splitlines():
        if _VERSION.match(line):
            version = _VERSION.match(line).group(1)
        head = _HEAD.match(line)
        if head:
            name, kind = "0x" + head.group(1).replace("0x", "").lstrip("0"), head.group(2)
            operation = launched = None
            continue
        if not line.strip():
            operation = launched = None
            continue
        if _COUNTS.match(line):
            operation, launched = _COUNTS.match(line).group(1), None
            continue
        many = _MANY.match(line)
        if many:
            launched = int(many.group(2) or 0)
            problems.append("%s of %s: %s ranks are at %d" % (operation, name, many.group(1), launched))
            continue
        found = _RANK.match(line)
        if found and name is not None and len(groups) < MOST_RANKS:
            groups.append(_outlier(found, name, kind, operation, launched))
    return Ras(version, groups, problems=problems)


def _outlier(found, name, kind, operation, launched):
    """A rank that the text names; without a count of its own it has that of the line above it."""
    number, own, none, status, error, rest = found.groups()
    process = _PROCESS.search(rest)
    at = int(own) if own else 0 if none else launched
    states = {"INCOMPLETE": "unresponsive", "ERROR": "error " + (error or "").strip()}
    return {
        "process_group": [name, ""],
        "group_size": None,
        "group_rank": int(number),
        "pid": int(process.group(1)) if process else None,
        "host": text(process.group(2), 128) if process else None,
        "op_counts": {operation: at} if operation and at is not None else {},
        "group_state": (status or "").lower() or states.get(kind, "running").strip(),
    }
