"""What a filter may say of a rank: its own fields, and those of its node and its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...nodesets import natural
from ...records import Gpu, NodeState
from ...store import NodeNow
from ..status import rank_status
from ..text import clean
from .filtering import Field, Filter, Value, Vocabulary
from .heat import GpuIndex
from .jobs import Jobs, RankRow
from .nodes import FleetSummary

#: As many values of a field are offered as anyone reads; what is typed narrows them first.
_MOST_VALUES = 1000


class Around(NamedTuple):
    """Where ranks are: what is known of nodes and GPUs at one frame."""

    fleet: FleetSummary
    nodes: dict[str, NodeNow]
    gpus: GpuIndex


class Seen(NamedTuple):
    """A rank and what is around it: what a filter looks at."""

    row: RankRow
    around: Around

    @property
    def state(self) -> NodeState | None:
        """What is known of its node's connection."""
        now = self.around.nodes.get(self.row.rank.node) if self.row.rank else None
        return now.state if now else None

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that the rank says is its own, by index or uuid."""
        rank = self.row.rank
        if rank is None or not rank.gpu:
            return None
        found = (now.gpu for now in self.around.gpus.of(rank.node) if now.gpu)
        return next((gpu for gpu in found if rank.gpu in (str(gpu.index), gpu.uuid)), None)


def _rank(name: str) -> Callable[[Seen], Value]:
    return lambda seen: _shown(getattr(seen.row.rank, name)) if seen.row.rank else None


def _stat(name: str) -> Callable[[Seen], Value]:
    return lambda seen: _shown(getattr(seen.row.stat, name)) if seen.row.stat else None


def _gpu(name: str) -> Callable[[Seen], Value]:
    return lambda seen: getattr(seen.gpu, name) if seen.gpu else None


def _shown(value: Any) -> Value:
    """As it stands on the screen; an empty text is not known."""
    return (clean(value) or None) if isinstance(value, str) else value


def _wchan(seen: Seen) -> Value:
    value = _stat("wchan")(seen)
    return None if value == "0" else value


def _states(seen: Seen) -> Value:
    """What it does, and how bad that is: `state:failed` is everything drawn as failed."""
    row = seen.row
    return (row.state, row.status, *(() if row.silent else (rank_status(row.state),)))


def _tags(seen: Seen) -> Value:
    return tuple(clean(tag) for tag in seen.state.tags) if seen.state else ()


def _is_simulated(seen: Seen) -> bool:
    node = seen.around.fleet.by_name.get(seen.row.rank.node) if seen.row.rank else None
    return bool(node and node.simulated)


def _words(seen: Seen) -> Iterable[str]:
    row = seen.row
    yield row.state
    yield row.state.replace("_", " ")
    yield clean(row.job)
    yield row.reason
    for read in (_rank("node"), _rank("source"), _rank("launcher"), _wchan):
        value = read(seen)
        if isinstance(value, str):
            yield value
    tags = _tags(seen)
    yield from tags if isinstance(tags, tuple) else ()
    if _is_simulated(seen):
        yield "simulated"


RANKS: Vocabulary[Seen] = Vocabulary(
    (
        Field("state", "word", _states, "what the rank does, or ok, warning, failed, stale, unknown"),
        Field("node", "word", _rank("node"), "a node's name, e.g. node0[1-3]*"),
        Field("job", "text", lambda seen: clean(seen.row.job), "a part of the job's name"),
        Field("tag", "word", _tags, "a tag of its node in hosts.toml"),
        Field("rank", "number", lambda seen: seen.row.number, "numbers, e.g. 0-7,137"),
        Field("util", "number", _gpu("util_pct"), "% its GPU is busy, e.g. <10", ("gpu_util",)),
        Field("mem", "size", _gpu("mem_used_bytes"), "memory used on its GPU, e.g. >40G", ("gpu_mem",)),
        Field("cpu", "number", _stat("cpu_pct"), "% of one CPU, e.g. <5"),
        Field("rss", "size", _stat("rss_bytes"), "memory of the process, e.g. >2.5G"),
        Field("step", "number", _stat("step"), "the step it is at, e.g. <18204"),
        Field("local", "number", _rank("local_rank"), "its number on its node", ("local_rank",)),
        Field("gpu", "word", _rank("gpu"), "the index or uuid of its GPU"),
        Field("pid", "number", _rank("pid"), "its process"),
        Field("threads", "number", _stat("threads"), "threads of the process", ("thr",)),
        Field("ctx", "number", _stat("ctx_switches_s"), "context switches a second, e.g. <1k"),
        Field("wchan", "text", _wchan, "a part of the kernel function it sleeps in"),
        Field("attempt", "number", lambda seen: seen.row.attempt if seen.row.rank else None, "the job's restarts"),
        Field("source", "text", _rank("source"), "where its numbers were found"),
        Field("reason", "text", lambda seen: seen.row.reason or None, "why it is missing or cannot be read"),
    ),
    _words,
)


def passing(wanted: Filter[Seen], around: Around) -> Callable[[RankRow], bool]:
    """Whether a rank passes that filter, with this around it."""
    return lambda row: wanted.matches(Seen(row, around))


def values_now(name: str, jobs: Jobs, around: Around) -> Sequence[str]:
    """The values of a field that occur now, in their natural order; figures are not offered."""
    field = RANKS.field(name)
    if field is None or field.kind not in ("word", "text"):
        return ()
    found: set[str] = set()
    for job in jobs.jobs:
        for row in job.rows:
            value = field.read(Seen(row, around))
            found.update(value if isinstance(value, tuple) else () if value is None else (str(value),))
    return sorted(found, key=natural)[:_MOST_VALUES]
