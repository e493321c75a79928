"""NCCL Inspector's log (a profiler plugin of NCCL): a line of JSON each time an operation was completed.

What hangs is not in it: it says how long operations took, and which was the last. `coll_sn` counts the operations of
one name within a communicator.
"""

import json

from .values import count, figure, text


class Inspected(object):
    """`entries`: fields of `collective` records with `host` and `pid` beside them; `bad`: lines that made no sense."""

    def __init__(self, entries, bad):
        self.entries = entries
        self.bad = bad


def parse(data, most=4096):
    """The newest `most` operations in the bytes of a log; a first or last line that is cut short is passed over."""
    entries, bad = [], 0
    lines = data.splitlines()
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is not None:
            entries.append(entry)
        elif 0 < at < len(lines) - 1:
            bad += 1
    return Inspected(entries[-most:], bad)


def _entry(line):
    try:
        said = json.loads(line.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    header, about = _table(said, "header"), _table(said, "metadata")
    for kind, key in (("coll", "coll_perf"), ("p2p", "p2p_perf")):
        if isinstance(said.get(key), dict):
            return _operation(kind, said[key], header, about)
    return None


def _operation(kind, perf, header, about):
    name = text(perf.get(kind), 64)
    group = text(header.get("id"), 64)
    if not name or not group:
        return None
    took_us = figure(perf.get(kind + "_exec_time_us"))
    sequence = count(perf.get(kind + "_sn"))
    rank = count(header.get("rank"))
    fields = {
        "host": text(about.get("hostname"), 128) or None,
        "pid": count(about.get("pid")) or None,
        "version": text(about.get("inspector_output_format_version"), 32) or None,
        "process_group": [group, _known(text(header.get("comm_name"), 256))],
        "group_rank": rank,
        "group_size": count(header.get("n_ranks")),
        "collective_seq_id": sequence if kind == "coll" else None,
        "p2p_seq_id": sequence if kind == "p2p" else None,
        "is_p2p": kind == "p2p",
        "profiling_name": "nccl:" + name,
        "msg_size_bytes": count(perf.get(kind + "_msg_size_bytes")),
        "duration_ms": took_us / 1000.0 if took_us is not None else None,
        "busbw_gbs": figure(perf.get(kind + "_busbw_gbs")),
        "state": "completed",
        "retired": True,
    }
    peer = count(perf.get("p2p_peer"))
    if kind == "p2p" and None not in (peer, rank) and name in ("Send", "Recv"):
        fields["profiling_name"] = "nccl:%s %d%s%d" % (name.lower(), rank, "->" if name == "Send" else "<-", peer)
    return fields


def _table(said, key):
    value = said.get(key)
    return value if isinstance(value, dict) else {}


def _known(name):
    return "" if name == "unknown" else name
