"""What a filter may say of a node: its own figures, those of its GPUs, and the jobs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....present.status import state_word
from ....records.metrics import AGENT, HOST
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.row_context import RowInContext
from .model import NodeRow


def _node(name: str) -> Callable[[RowInContext[NodeRow]], Value]:
    return lambda entry: clean(getattr(entry.row.node, name)) or None if entry.row.node else None


def _gpus(name: str) -> Callable[[RowInContext[NodeRow]], Value]:
    """The figure of each of its GPUs that has one."""

    def read(entry: RowInContext[NodeRow]) -> Value:
        figures = (getattr(now.gpu, name) for now in entry.context.gpus.of(entry.row.key) if now.gpu)
        return tuple(float(value) for value in figures if value is not None)

    return read


def _states(entry: RowInContext[NodeRow]) -> Value:
    """Its word, and how bad that is: `state:failed` is everything drawn as failed."""
    return (entry.row.summary.word, state_word(entry.row.summary.word), entry.row.summary.status)


def _jobs(entry: RowInContext[NodeRow]) -> Value:
    return entry.context.jobs_of.get(entry.row.key, ())


def _words(entry: RowInContext[NodeRow]) -> Iterable[str]:
    row = entry.row
    yield row.summary.word
    yield clean(row.key)
    yield row.summary.reason
    yield from entry.context.tags(row.key)
    yield from entry.context.jobs_of.get(row.key, ())
    yield entry.context.class_of(row.key) or ""
    if row.node is not None:
        yield clean(row.node.hostname)
        yield clean(row.node.kernel)
    if row.summary.simulated:
        yield "simulated"


NODES: Vocabulary[RowInContext[NodeRow]] = Vocabulary(
    (
        FilterField("state", "word", _states, "ok, stale, lost, failed, …; or warning, unknown"),
        FilterField("node", "word", lambda entry: clean(entry.row.key), "node name, e.g. node0[1-3]*"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.key), "tag in hosts.toml"),
        FilterField("job", "text", _jobs, "part of the name of a job on it"),
        FilterField("class", "text", lambda entry: entry.context.class_of(entry.row.key), "part of the hardware class"),
        FilterField(
            "util", "number", _gpus("util_pct"), "utilisation of one of its GPUs in %, e.g. <10", ("gpu_util",)
        ),
        FilterField(
            "gpumem", "size", _gpus("mem_used_bytes"), "memory used on one of its GPUs, e.g. >40G", ("gpu_mem",)
        ),
        FilterField("temp", "number", _gpus("temp_c"), "temperature of one of its GPUs in °C, e.g. >80"),
        *metric_filters(HOST, lambda metric, entry: metric.read(entry.row.host, entry.row.node)),
        FilterField("gpus", "number", lambda entry: entry.row.gpus, "number of GPUs, e.g. <8"),
        FilterField("ranks", "number", lambda entry: entry.row.ranks, "number of ranks on it, e.g. 0"),
        *metric_filters(AGENT, lambda metric, entry: metric.read(entry.row.cost)),
        FilterField("hostname", "text", _node("hostname"), "part of the hostname"),
        FilterField("kernel", "text", _node("kernel"), "part of the kernel version"),
        FilterField("python", "word", _node("python"), "Python version of the agent, e.g. 3.6*"),
        FilterField("reason", "text", lambda entry: entry.row.summary.reason or None, "part of the failure reason"),
    ),
    _words,
)
