"""What a filter may say of a node: its own figures, those of its GPUs, and the jobs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....text.cells import clean
from ...models.filter_language import Field, Value, Vocabulary
from ...models.row_context import Seen
from .model import NodeRow, memory_pct


def _host(name: str) -> Callable[[Seen[NodeRow]], Value]:
    return lambda seen: getattr(seen.row.host, name) if seen.row.host else None


def _cost(name: str) -> Callable[[Seen[NodeRow]], Value]:
    return lambda seen: getattr(seen.row.cost, name) if seen.row.cost else None


def _node(name: str) -> Callable[[Seen[NodeRow]], Value]:
    return lambda seen: clean(getattr(seen.row.node, name)) or None if seen.row.node else None


def _gpus(name: str) -> Callable[[Seen[NodeRow]], Value]:
    """The figure of each of its GPUs that has one."""

    def read(seen: Seen[NodeRow]) -> Value:
        found = (getattr(now.gpu, name) for now in seen.around.gpus.of(seen.row.key) if now.gpu)
        return tuple(float(value) for value in found if value is not None)

    return read


def _states(seen: Seen[NodeRow]) -> Value:
    """Its word, and how bad that is: `state:failed` is everything drawn as failed."""
    return (seen.row.summary.word, seen.row.summary.status)


def _jobs(seen: Seen[NodeRow]) -> Value:
    return seen.around.jobs_of.get(seen.row.key, ())


def _words(seen: Seen[NodeRow]) -> Iterable[str]:
    row = seen.row
    yield row.summary.word
    yield clean(row.key)
    yield row.summary.reason
    yield from seen.around.tags(row.key)
    yield from seen.around.jobs_of.get(row.key, ())
    yield seen.around.class_of(row.key) or ""
    if row.node is not None:
        yield clean(row.node.hostname)
        yield clean(row.node.kernel)
    if row.summary.simulated:
        yield "simulated"


NODES: Vocabulary[Seen[NodeRow]] = Vocabulary(
    (
        Field("state", "word", _states, "ok, stale, lost, failed, …; or warning, unknown"),
        Field("node", "word", lambda seen: clean(seen.row.key), "a node's name, e.g. node0[1-3]*"),
        Field("tag", "word", lambda seen: seen.around.tags(seen.row.key), "a tag of it in hosts.toml"),
        Field("job", "text", _jobs, "a part of the name of a job on it"),
        Field("class", "text", lambda seen: seen.around.class_of(seen.row.key), "a part of what it is built of"),
        Field("util", "number", _gpus("util_pct"), "% one of its GPUs is busy, e.g. <10", ("gpu_util",)),
        Field("gpumem", "size", _gpus("mem_used_bytes"), "memory used on one of its GPUs, e.g. >40G", ("gpu_mem",)),
        Field("temp", "number", _gpus("temp_c"), "°C of one of its GPUs, e.g. >80"),
        Field("cpu", "number", _host("cpu_pct"), "% of all its CPUs, e.g. >90"),
        Field("mem", "number", lambda seen: memory_pct(seen.row), "% of its memory in use, e.g. >90"),
        Field("cpu_stall", "number", _host("cpu_stall_pct"), "% of the time something waits for a CPU"),
        Field("mem_stall", "number", _host("mem_stall_pct"), "% of the time something waits for memory"),
        Field("io_stall", "number", _host("io_stall_pct"), "% of the time something waits for a disk"),
        Field("read", "size", _host("disk_read_bytes_s"), "bytes read a second, e.g. >100M"),
        Field("write", "size", _host("disk_write_bytes_s"), "bytes written a second"),
        Field("rx", "size", _host("net_rx_bytes_s"), "bytes received a second", ("in",)),
        Field("tx", "size", _host("net_tx_bytes_s"), "bytes sent a second", ("out",)),
        Field("gpus", "number", lambda seen: seen.row.gpus, "how many it has, e.g. <8"),
        Field("ranks", "number", lambda seen: seen.row.ranks, "how many run on it, e.g. 0"),
        Field("agent", "number", _cost("cpu_pct"), "% of one CPU that the agent takes"),
        Field("hostname", "text", _node("hostname"), "a part of what it calls itself"),
        Field("kernel", "text", _node("kernel"), "a part of its kernel's version"),
        Field("python", "word", _node("python"), "the version the agent runs on, e.g. 3.6*"),
        Field("reason", "text", lambda seen: seen.row.summary.reason or None, "why it is not here"),
    ),
    _words,
)
