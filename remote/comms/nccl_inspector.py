"""Log of NCCL Inspector (an NCCL profiler plugin): one JSON line per completed operation, with its duration.

A hanging operation is not in it. `coll_sn` counts the operations of one name within a communicator.
"""

import json

from .values import count, figure, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class InspectorLog(object):
    """`entries`: fields of `collective` records plus `host` and `pid`; `bad`: number of malformed lines."""

    def __init__(self, entries: "list[dict[str, Any]]", bad: int) -> None:
        self.entries = entries
        self.bad = bad


def parse(data: bytes, limit: int = 4096) -> "InspectorLog":
    """The newest `limit` operations of a log; a truncated first or last line is ignored."""
    entries, bad = [], 0
    lines = data.splitlines()
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is not None:
            entries.append(entry)
        elif 0 < index < len(lines) - 1:
            bad += 1
    return InspectorLog(entries[-limit:], bad)


def _entry(line: bytes) -> "dict[str, Any] | None":
    try:
        document = json.loads(line.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    header, metadata = _table(document, "header"), _table(document, "metadata")
    for kind, key in (("coll", "coll_perf"), ("p2p", "p2p_perf")):
        if isinstance(document.get(key), dict):
            return _operation(kind, document[key], header, metadata)
    return None


def _operation(
    kind: str, perf: "dict[str, Any]", header: "dict[str, Any]", metadata: "dict[str, Any]"
) -> "dict[str, Any] | None":
    name = text(perf.get(kind), 64)
    group = text(header.get("id"), 64)
    if not name or not group:
        return None
    took_us = figure(perf.get(kind + "_exec_time_us"))
    sequence = count(perf.get(kind + "_sn"))
    rank = count(header.get("rank"))
    fields = {
        "host": text(metadata.get("hostname"), 128) or None,
        "pid": count(metadata.get("pid")) or None,
        "version": text(metadata.get("inspector_output_format_version"), 32) or None,
        "process_group": [group, _group_description(text(header.get("comm_name"), 256))],
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
    if kind == "p2p" and rank is not None and peer is not None and name in ("Send", "Recv"):
        fields["profiling_name"] = "nccl:%s %d%s%d" % (name.lower(), rank, "->" if name == "Send" else "<-", peer)
    return fields


def _table(document: "dict[str, Any]", key: str) -> "dict[str, Any]":
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _group_description(name: str) -> str:
    return "" if name == "unknown" else name
