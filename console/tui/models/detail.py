"""Details of one thing as labelled facts, for dialogs, and facts and sections as lines, for pages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from ...analysis.finding import name_of
from ...analysis.stacks.async_tasks import main_first, newest_tasks, task_text
from ...core.store import GpuNow, NodeNow
from ...present.spans import GLYPHS, SEVERITY_STATUS, Line, Span, Status, confidence_word, plain, state_word, wrapped
from ...records import Finding, Missing, Process, Stack
from ...text import format
from ...text.cells import clean, fit
from ...text.nodeset_fold import fold_ranks
from .destination import Destination
from .heat_map import index_of
from .job_ranks import JobSummary, RankListRow, state_spans
from .node_summary import NodeSummary


class Fact(msgspec.Struct, frozen=True):
    """One labelled line; an empty label is an empty line."""

    label: str
    text: str
    style: str = "text"


class Detail(msgspec.Struct, frozen=True):
    """A title with a status, facts, and the places where its things are."""

    title: str
    status: Status
    facts: tuple[Fact, ...]
    places: tuple[Destination, ...] = ()


def node_detail(node: NodeSummary, now: NodeNow | None) -> Detail:
    """A node: error with remedy, identity, load, missing data sources."""
    return Detail(f"{node.name}  {state_word(node.word)}", node.status, tuple(_node_facts(node, now)))


def _node_facts(node: NodeSummary, now: NodeNow | None) -> Iterator[Fact]:
    state = now.state if now else None
    if state and state.error:
        yield Fact("error", clean(state.error.name), node.status)
        yield Fact("message", clean(state.error.text))
        if state.error.try_:
            yield Fact("try", clean(state.error.try_), "accent")
    elif node.reason:
        yield Fact("message", node.reason, node.status)
        yield Fact("try", node.try_, "accent")
    if node.age_ns is not None:
        yield Fact("last data", f"{format.age(node.age_ns)} ago", "text" if node.fresh else "stale")
    if state:
        yield Fact("attempts", str(state.attempt))
        if state.state != "ok":
            again = "not scheduled; R reconnects now" if state.retry_at is None else format.clock_time(state.retry_at)
            yield Fact("next attempt", again)
        if state.via:
            yield Fact("via", f"{clean(state.via)}: host key checked there")
        if state.tags:
            yield Fact("tags", clean(", ".join(state.tags)))
    if now is None or now.node is None:
        return
    yield from _identity(now)
    yield from _load(now)
    for missing in now.node.missing:
        yield from _missing(missing)


def _identity(now: NodeNow) -> Iterator[Fact]:
    node = now.node
    assert node is not None
    yield Fact("", "")
    yield Fact("hostname", clean(node.hostname))
    yield Fact("system", clean(f"{node.os or 'Linux'}, kernel {node.kernel}, {node.arch}"))
    yield Fact("resources", f"{format.count(node.cpus)} CPUs, {format.size(node.mem_total_bytes)} memory")
    yield Fact("agent", clean(f"pid {node.pid}, Python {node.python}, as {node.user or node.uid}"))
    if node.simulated:
        yield Fact("simulated", "some data of this node is simulated", "warning")


def _load(now: NodeNow) -> Iterator[Fact]:
    host, cost = now.host, now.cost
    if host:
        yield Fact("CPU", f"{format.percent(host.cpu_pct)} %   load {format.percent(host.load_1m)}")
        yield Fact("memory used", format.size(host.mem_used_bytes))
        stalls = (host.cpu_stall_pct, host.mem_stall_pct, host.io_stall_pct)
        yield Fact("PSI stall", "CPU {} %   memory {} %   I/O {} %".format(*map(format.percent, stalls)))
    if cost:
        yield Fact(
            "agent load",
            f"{format.percent(cost.cpu_pct)} % of a core, RSS {format.size(cost.rss_bytes)}, sampling interval "
            f"{cost.sample_interval_ms} ms",
        )


def _missing(missing: Missing) -> Iterator[Fact]:
    yield Fact("missing", f"{clean(missing.text)} ({clean(missing.name)})", "muted")
    if missing.try_:
        yield Fact("try", clean(missing.try_), "accent")


#: asyncio tasks listed on the page of a rank.
_MOST_TASKS: Final = 16


def gpu_detail(node: NodeSummary, gpu: GpuNow) -> Detail:
    """A GPU: its newest metrics."""
    return Detail(f"{node.name} gpu{index_of(gpu)}", node.status, tuple(_gpu_facts(node, gpu)))


def _gpu_facts(node: NodeSummary, gpu: GpuNow) -> Iterator[Fact]:
    info, now = gpu.info, gpu.gpu
    if (info and info.simulated) or (now and now.simulated):
        yield Fact("simulated", "simulated data", "warning")
    if not node.fresh and node.age_ns is not None:
        yield Fact("last data", f"{format.age(node.age_ns)} ago", "stale")
    if info:
        yield Fact("name", clean(info.name or format.UNKNOWN))
        yield Fact("uuid", clean(info.uuid))
        yield Fact("PCI", clean(info.pci_bus_id or format.UNKNOWN))
    if now:
        total = info.mem_total_bytes if info else None
        limit = info.power_limit_w if info else None
        yield Fact("GPU util", f"{format.percent(now.util_pct)} %")
        yield Fact("memory", f"{format.size(now.mem_used_bytes)} of {format.size(total)}")
        yield Fact("power", f"{format.whole(now.power_w)} of {format.whole(limit)} W")
        yield Fact("temperature", f"{format.whole(now.temp_c)} °C")
        yield Fact("clocks", f"SM {format.whole(now.sm_clock_mhz)} MHz, memory {format.whole(now.mem_clock_mhz)} MHz")
        if now.clocks_event_reasons:
            yield Fact("throttled by", clean(", ".join(now.clocks_event_reasons)), "warning")


def rank_detail(row: RankListRow, process: Process | None, stacks: Sequence[Stack] = ()) -> Detail:
    """A rank: its process and what that does; `stacks` are those of the process in the shown capture."""
    return Detail(
        f"rank {format.integer(row.number)}  {state_word(row.state)}", row.status,
        (*_rank_facts(row, process), *_task_facts(stacks)),
    )  # fmt: skip


def _task_facts(stacks: Sequence[Stack]) -> Iterator[Fact]:
    """The asyncio tasks of a process, that which its event loop runs first."""
    for stack in newest_tasks(stacks):
        tasks = stack.tasks or ()
        yield Fact("", "")
        yield Fact("asyncio", f"{format.plural(len(tasks), 'task')} of {clean(stack.thread_name or 'a thread')}")
        for task in main_first(tasks)[:_MOST_TASKS]:
            yield Fact("task", clean(task_text(task, tasks)))


def _rank_facts(row: RankListRow, process: Process | None) -> Iterator[Fact]:
    rank, stat = row.rank, row.stat
    if row.reason:
        yield Fact("reason", row.reason, row.status)
    if row.silent:
        yield Fact("last data", f"{row.silent} ago", "stale")
    if row.progress is not None and row.progress.source != "none":
        yield Fact("progress", clean(f"{row.progress.state.replace('_', ' ')}: {row.progress.evidence}"), row.status)
    yield Fact("job", clean(row.job))
    if rank is None:
        return
    yield Fact("attempt", str(row.attempt))
    yield Fact(
        "node",
        f"{clean(rank.node)}   local rank {format.integer(rank.local_rank)} of {format.integer(rank.local_world_size)}",
    )
    inner = f" ({rank.ns_pid} in its container)" if rank.ns_pid else ""
    yield Fact("process", f"pid {rank.pid}{inner}, uid {format.integer(rank.uid)}")
    if process is not None and process.cmdline:
        yield Fact("command", clean(process.cmdline))
    if process is not None and process.part:
        yield Fact("part", clean(process.part))
    yield Fact("gpu", clean(rank.gpu or format.UNKNOWN))
    yield Fact("detected by", clean(", ".join(filter(None, (rank.launcher, rank.source)))))
    if stat:
        yield Fact("", "")
        letter, wchan = stat.proc_state or format.UNKNOWN, stat.wchan or format.UNKNOWN
        yield Fact("kernel state", clean(f"{letter}   wchan {wchan}"))
        yield Fact("CPU", f"{format.percent(stat.cpu_pct)} % of a core, {format.plural(stat.threads, 'thread')}")
        yield Fact("memory", format.size(stat.rss_bytes))
        yield Fact("ctx switches", f"{format.rate(stat.ctx_switches_s)}/s")
        yield Fact("step", format.count(stat.step))
        yield from (
            Fact(clean(name), format.value(value)) for name, value in (stat.watched or {}).items() if name != "step"
        )
        if stat.watched is not None and stat.watched_at is not None:
            yield Fact("sampled", f"{format.age(stat.t - stat.watched_at)} ago (from stack frames)")


def job_detail(job: JobSummary) -> Detail:
    """A job: ranks, their states, missing ranks with reasons."""
    facts = [
        Fact("ranks", f"{format.seen(job.discovered, job.world_size)} discovered"),
        Fact("states", "".join(span.text for span in state_spans(job.counts))),
        Fact("launcher", job.launcher or format.UNKNOWN),
        Fact("step", f"{format.count(job.step)} (median)"),
    ]
    absent = GLYPHS["unknown"]
    facts += [Fact(f"{absent} rank {fold_ranks(ranks)}", clean(why), "unknown") for why, ranks in job.missing]
    facts += [Fact(f"{GLYPHS['warning']} conflict", text, "warning") for text in job.conflicts]
    return Detail(job.title, "unknown" if job.missing else "ok", tuple(facts))


def finding_detail(finding: Finding) -> Detail:
    """A finding: culprits, victims, evidence."""
    seen = Fact("first seen", format.clock_time(finding.first_seen))
    facts = (Fact("finding", clean(finding.text)), *finding_facts(finding, seen))
    return Detail(clean(name_of(finding.id)), SEVERITY_STATUS[finding.severity], facts)


def finding_facts(finding: Finding, *more: Fact) -> Iterator[Fact]:
    """Confidence, culprits and victims, then `more`, then the evidence."""
    yield Fact("confidence", confidence_word(finding.confidence))
    yield Fact("culprits", clean(", ".join(finding.culprits)) or "none")
    yield Fact("victims", clean(", ".join(finding.victims)) or "none")
    yield from more
    yield from (Fact("evidence", clean(text)) for text in finding.evidence)


_LABEL = 14

T = TypeVar("T")
PageItemKind = Literal["fact", "gpu", "rank", "process", "event", "link", "node"]


class PageItem(NamedTuple):
    """Identifies the subject of a line; `key` is unique within `kind`."""

    kind: PageItemKind
    key: Hashable


def fact_lines(facts: Sequence[Fact], width: int) -> tuple[Line, ...]:
    """One line per fact, more for long texts; an empty line for an empty label."""
    lines: list[Line] = []
    for number, fact in enumerate(facts):
        if not fact.label:
            lines.append(plain(""))
            continue
        key = PageItem("fact", (fact.label, number))
        lines += [Line(spans, key) for spans in _fact_spans(fact, width)]
    return tuple(lines)


def _fact_spans(fact: Fact, width: int) -> list[tuple[Span, ...]]:
    label = fit(fact.label, _LABEL)
    parts = wrapped(fact.text, max(10, width - _LABEL - 1)) or [""]
    head = (Span(f"{label} ", "muted"), Span(parts[0], fact.style))
    return [head, *((Span(" " * (_LABEL + 1)), Span(part, fact.style)) for part in parts[1:])]


def section(title: str, things: Sequence[T], line: Callable[[T, int], Line], width: int) -> list[Line]:
    """A heading with a count, one line per thing, an empty line."""
    count = Span(f" {len(things)}", "muted")
    return [
        Line((Span(title, "accent"), count)),
        *(line(thing, width) for thing in things),
        plain(""),
    ]
