"""What a filter may say of a GPU: its figures, its node, the jobs and ranks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....present.status import state_word
from ....records.metrics import GPU as METRICS
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.row_context import RowInContext
from .model import GpuRow


def _info(name: str) -> Callable[[RowInContext[GpuRow]], Value]:
    return lambda entry: clean(getattr(entry.row.info, name) or "") or None if entry.row.info else None


def _node(entry: RowInContext[GpuRow]) -> str:
    return entry.row.summary.name


def _reasons(entry: RowInContext[GpuRow]) -> Value:
    return tuple(clean(reason) for reason in entry.row.gpu.clocks_event_reasons) if entry.row.gpu else None


def _words(entry: RowInContext[GpuRow]) -> Iterable[str]:
    row = entry.row
    yield row.row_state[1]
    yield clean(row.summary.name)
    yield f"gpu{row.index}"
    yield clean(row.uuid)
    yield from entry.context.tags(_node(entry))
    yield from entry.context.jobs_of.get(_node(entry), ())
    if row.info is not None:
        yield clean(row.info.name or "")
    if (row.gpu and row.gpu.simulated) or (row.info and row.info.simulated):
        yield "simulated"


GPUS: Vocabulary[RowInContext[GpuRow]] = Vocabulary(
    (
        FilterField("state", "word", lambda entry: (entry.row.row_state[1], state_word(entry.row.row_state[1]),
            entry.row.row_state[0]),
              "ok, lost, throttled, …; or warning, failed, stale"),
        FilterField("node", "word", lambda entry: clean(_node(entry)), "node name, e.g. node0[1-3]*"),
        FilterField("gpu", "number", lambda entry: entry.row.index, "index on its node, e.g. 4"),
        FilterField("job", "text", lambda entry: entry.context.jobs_of.get(_node(entry), ()), "part of a job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: tuple(float(rank) for rank in entry.row.ranks),
            "rank using it, e.g. 0-7"),
        *metric_filters(METRICS, lambda metric, entry: metric.read(entry.row.gpu, entry.row.info), {
            "held": (FilterField("reason", "word", _reasons, "throttle reason, e.g. *thermal*"),),
        }),
        FilterField("model", "text", _info("name"), "part of the model name"),
        FilterField("driver", "word", _info("driver"), "driver version"),
        FilterField("uuid", "text", lambda entry: clean(entry.row.uuid), "part of the UUID", offered=False),
    ),
    _words,
)  # fmt: skip
