"""What a filter may say of a rank: its own fields, and those of its node and its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....present.status import rank_status
from ....records import Gpu
from ....text.cells import clean
from ...models.filter_language import Field, Value, Vocabulary
from ...models.job_ranks import RankRow
from ...models.row_context import Seen


def _node(seen: Seen[RankRow]) -> str | None:
    return seen.row.rank.node if seen.row.rank else None


def _gpu_of(seen: Seen[RankRow]) -> Gpu | None:
    """The GPU that the rank says is its own, by index or uuid."""
    rank = seen.row.rank
    if rank is None or not rank.gpu:
        return None
    found = (now.gpu for now in seen.around.gpus.of(rank.node) if now.gpu)
    return next((gpu for gpu in found if rank.gpu in (str(gpu.index), gpu.uuid)), None)


def _rank(name: str) -> Callable[[Seen[RankRow]], Value]:
    return lambda seen: _shown(getattr(seen.row.rank, name)) if seen.row.rank else None


def _stat(name: str) -> Callable[[Seen[RankRow]], Value]:
    return lambda seen: _shown(getattr(seen.row.stat, name)) if seen.row.stat else None


def _gpu(name: str) -> Callable[[Seen[RankRow]], Value]:
    def read(seen: Seen[RankRow]) -> Value:
        gpu = _gpu_of(seen)
        return getattr(gpu, name) if gpu else None

    return read


def _shown(value: Any) -> Value:
    """As it stands on the screen; an empty text is not known."""
    return (clean(value) or None) if isinstance(value, str) else value


def _wchan(seen: Seen[RankRow]) -> Value:
    value = _stat("wchan")(seen)
    return None if value == "0" else value


def _states(seen: Seen[RankRow]) -> Value:
    """What it does, and how bad that is: `state:failed` is everything drawn as failed."""
    row = seen.row
    return (row.state, row.status, *(() if row.silent else (rank_status(row.state),)))


def _words(seen: Seen[RankRow]) -> Iterable[str]:
    row = seen.row
    yield row.state
    yield row.state.replace("_", " ")
    yield clean(row.job)
    yield row.reason
    for read in (_rank("node"), _rank("source"), _rank("launcher"), _wchan):
        value = read(seen)
        if isinstance(value, str):
            yield value
    yield from seen.around.tags(_node(seen))
    if seen.around.is_simulated(_node(seen)):
        yield "simulated"


RANKS: Vocabulary[Seen[RankRow]] = Vocabulary(
    (
        Field("state", "word", _states, "what the rank does, or ok, warning, failed, stale, unknown"),
        Field("node", "word", _rank("node"), "a node's name, e.g. node0[1-3]*"),
        Field("job", "text", lambda seen: clean(seen.row.job), "a part of the job's name"),
        Field("tag", "word", lambda seen: seen.around.tags(_node(seen)), "a tag of its node in hosts.toml"),
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
        Field("class", "text", lambda seen: seen.around.class_of(_node(seen)), "a part of what its node is built of"),
        Field("reason", "text", lambda seen: seen.row.reason or None, "why it is missing or cannot be read"),
    ),
    _words,
)
