"""What a filter may say of a rank: its own fields, and those of its node and its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....present.status import rank_status, state_word
from ....records import Gpu
from ....records.metrics import RANK as METRICS
from ....records.metrics import Metric
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.job_ranks import RankListRow
from ...models.row_context import RowInContext


def _node(entry: RowInContext[RankListRow]) -> str | None:
    return entry.row.rank.node if entry.row.rank else None


def _gpu_of(entry: RowInContext[RankListRow]) -> Gpu | None:
    """The GPU that the rank says is its own, by index or uuid."""
    rank = entry.row.rank
    if rank is None or not rank.gpu:
        return None
    gpus = (now.gpu for now in entry.context.gpus.of(rank.node) if now.gpu)
    return next((gpu for gpu in gpus if rank.gpu in (str(gpu.index), gpu.uuid)), None)


def _rank(name: str) -> Callable[[RowInContext[RankListRow]], Value]:
    return lambda entry: _shown(getattr(entry.row.rank, name)) if entry.row.rank else None


def _stat(name: str) -> Callable[[RowInContext[RankListRow]], Value]:
    return lambda entry: _shown(getattr(entry.row.stat, name)) if entry.row.stat else None


def _read(metric: Metric, entry: RowInContext[RankListRow]) -> Value:
    value: Value = metric.read(entry.row.stat)
    return value


def _gpu(name: str) -> Callable[[RowInContext[RankListRow]], Value]:
    def read(entry: RowInContext[RankListRow]) -> Value:
        gpu = _gpu_of(entry)
        return getattr(gpu, name) if gpu else None

    return read


def _shown(value: Any) -> Value:
    """As it stands on the screen; an empty text is not known."""
    return (clean(value) or None) if isinstance(value, str) else value


def _wchan(entry: RowInContext[RankListRow]) -> Value:
    value = _stat("wchan")(entry)
    return None if value == "0" else value


def _states(entry: RowInContext[RankListRow]) -> tuple[str, ...]:
    """The state as recorded and as displayed, and its status: `state:failed` matches everything drawn as failed."""
    row = entry.row
    return (row.state, state_word(row.state), row.status, *(() if row.silent else (rank_status(row.state),)))


def _words(entry: RowInContext[RankListRow]) -> Iterable[str]:
    row = entry.row
    yield row.state
    yield state_word(row.state)
    yield clean(row.job)
    yield row.reason
    for read in (_rank("node"), _rank("source"), _rank("launcher"), _wchan):
        value = read(entry)
        if isinstance(value, str):
            yield value
    yield from entry.context.tags(_node(entry))
    if entry.context.is_simulated(_node(entry)):
        yield "simulated"


RANKS: Vocabulary[RowInContext[RankListRow]] = Vocabulary(
    (
        FilterField(
            "state",
            "word",
            _states,
            "state of the rank, or ok, warning, failed, stale, unknown",
            offers=lambda entry: _states(entry)[1:],
        ),
        FilterField("node", "word", _rank("node"), "node name, e.g. node0[1-3]*"),
        FilterField("job", "text", lambda entry: clean(entry.row.job), "part of the job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: entry.row.number, "rank numbers, e.g. 0-7,137"),
        FilterField("util", "number", _gpu("util_pct"), "utilisation of its GPU in %, e.g. <10", ("gpu_util",)),
        FilterField("mem", "size", _gpu("mem_used_bytes"), "memory used on its GPU, e.g. >40G", ("gpu_mem",)),
        *metric_filters(METRICS[:3], _read),
        FilterField("local", "number", _rank("local_rank"), "local rank", ("local_rank",)),
        FilterField("gpu", "word", _rank("gpu"), "index or UUID of its GPU"),
        FilterField("pid", "number", _rank("pid"), "process id"),
        *metric_filters(METRICS[3:], _read),
        FilterField("wchan", "text", _wchan, "part of the kernel wait channel"),
        FilterField(
            "attempt",
            "number",
            lambda entry: entry.row.attempt if entry.row.rank else None,
            "restart attempt of the job",
        ),
        FilterField("source", "text", _rank("source"), "where the rank was detected"),
        FilterField(
            "class",
            "text",
            lambda entry: entry.context.class_of(_node(entry)),
            "part of the hardware class of its node",
        ),
        FilterField("reason", "text", lambda entry: entry.row.reason or None, "why it is missing or not readable"),
    ),
    _words,
)
