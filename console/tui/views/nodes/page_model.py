"""The page of one node as lines; each line has a key for its details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ....analysis.checks.result import CheckResult, CheckState
from ....core.store import GpuNow, NodeNow
from ....present.spans import GLYPHS, SEVERITY_STATUS, Line, Span, cut, plain, state_word
from ....records import Process
from ....text import format
from ....text.cells import clean, fit
from ...models.detail import Detail, Fact, PageItem, fact_lines, node_detail, section
from ...models.heat_map import index_of, uuid_of
from ...models.job_ranks import RankListRow
from ...models.node_summary import NodeSummary
from ..events.model import EventRow, event_line

#: In this order.
_CHECK_WORDS: Final[dict[CheckState, str]] = {
    "fail": "failed",
    "unknown": "unknown",
    "pass": "passed",
    "absent": "not applicable",
}
#: Events. The Events view has all of them.
EVENTS_SHOWN = 100


class NodePageData(msgspec.Struct, frozen=True):
    """Everything about one node at one instant (`now`: console time, ns)."""

    summary: NodeSummary
    now: int
    node: NodeNow | None = None
    gpus: Sequence[GpuNow] = ()
    ranks: Sequence[RankListRow] = ()
    processes: Sequence[Process] = ()
    events: Sequence[EventRow] = ()  # newest first
    checks: Sequence[CheckResult] = ()  # as of `gconsole check`


def facts_lines(data: NodePageData, width: int) -> tuple[Line, ...]:
    """State with remedy, identity, load, and missing data sources."""
    return fact_lines([*node_detail(data.summary, data.node).facts, *_more(data.node)], width)


def list_lines(data: NodePageData, width: int) -> tuple[Line, ...]:
    """Failed checks, GPUs, ranks, processes and events, one line each; no counts before the first sample."""
    has_sampled = data.node is not None and data.node.cost is not None
    return (
        *(_check_lines(data.checks, width) if data.checks and has_sampled else ()),
        *(section("GPUs", data.gpus, _gpu_line, width) if data.gpus else ()),
        *(section("RANKS", data.ranks, _rank_line, width) if data.ranks or has_sampled else ()),
        *(section("PROCESSES", data.processes, _process_line, width) if data.processes or has_sampled else ()),
        *section("EVENTS, newest first", data.events, event_line, width),
    )


def _check_lines(checks: Sequence[CheckResult], width: int) -> Iterator[Line]:
    """How many checks passed, and each that failed with its values."""
    counts = Counter(result.state for result in checks)
    words = [f"{counts[state]} {word}" for state, word in _CHECK_WORDS.items() if counts[state]]
    yield Line(cut((Span("CHECKS", "accent"), Span(f" {' · '.join(words)}", "muted")), width))
    for result in checks:
        if result.state == "fail":
            status = SEVERITY_STATUS[result.severity]
            spans = (Span(f"{GLYPHS[status]} {fit(result.id, 17)} ", status), Span(clean(result.text)))
            yield Line(cut(spans, width))
    yield plain("")


def _more(now: NodeNow | None) -> Iterator[Fact]:
    """Facts that the details dialog omits."""
    if now is None:
        return
    host, node = now.host, now.node
    if host:
        rates = (host.disk_read_bytes_s, host.disk_write_bytes_s, host.net_rx_bytes_s, host.net_tx_bytes_s)
        read, write, received, sent = map(format.byte_rate, rates)
        yield Fact("disk", f"read {read}   write {write}")
        yield Fact("network", f"RX {received}   TX {sent}")
        yield Fact("swap used", format.size(host.swap_used_bytes))
        yield Fact("uptime", format.age(None if host.uptime_s is None else int(host.uptime_s * 1e9)))
        if host.unreadable:
            yield Fact("unreadable", f"{host.unreadable} Python processes of other users (no permission)", "warning")
    if node:
        yield Fact("data sources", clean(", ".join(node.capabilities)) or format.UNKNOWN)
        if node.ptrace_scope is not None:
            yield Fact("ptrace_scope", str(node.ptrace_scope))
        yield Fact("boot id", clean(node.boot_id), "muted")
    if now.cost:
        yield Fact("agent sends", format.byte_rate(now.cost.tx_bytes_s))


def _gpu_line(gpu: GpuNow, width: int) -> Line:
    index = index_of(gpu)
    name = clean(gpu.info.name or "") if gpu.info else ""
    now = gpu.gpu
    parts = [f"gpu{index}"]
    if now:
        parts += [f"{format.percent(now.util_pct):>4} %", f"{format.size_compact(now.mem_used_bytes):>5}",
                  f"{format.whole(now.power_w):>4} W", f"{format.whole(now.temp_c):>3} °C"]  # fmt: skip
    figures = "  ".join(parts) + "  "
    sim = [Span("SIM ", "warning")] if now and now.simulated else []
    spans = (Span(figures), *sim, Span(name, "muted"))
    return Line(cut(spans, width), PageItem("gpu", uuid_of(gpu)))


def _rank_line(row: RankListRow, width: int) -> Line:
    number = format.UNKNOWN if row.number is None else str(row.number)
    stat = row.stat
    state = Span(fit(f"{GLYPHS[row.status]} {state_word(row.state)}", 18), row.status)
    pid = f"pid {row.rank.pid:<8}" if row.rank else ""
    busy = f"{format.percent(stat.cpu_pct):>5} %  {format.size_compact(stat.rss_bytes):>5}  " if stat else ""
    job = Span(clean(row.job), "muted")
    spans = (Span(f"{number:>5}  "), state, Span(pid, "muted"), Span(busy), job)
    return Line(cut(spans, width), PageItem("rank", row.key))


def _process_line(process: Process, width: int) -> Line:
    command = clean(process.cmdline or f"[{process.comm}]")
    user = fit(clean(process.user or str(process.uid)), 9)
    role = fit(clean(process.role).replace("_", " "), 17)
    spans = (Span(f"{process.pid:>7}  "), Span(f"{user} {role} ", "muted"), Span(command))
    return Line(cut(spans, width), PageItem("process", (process.node, process.pid, process.start_ticks)))


def process_detail(process: Process) -> Detail:
    """Everything in the record of a process."""
    rank = format.UNKNOWN if process.rank is None else str(process.rank)
    facts = [
        Fact("command", clean(process.cmdline or "command line not readable")),
        Fact("name", clean(process.comm)),
        Fact("role", clean(process.role).replace("_", " ")),
        Fact("parent", f"pid {process.ppid}"),
        Fact("user", clean(f"{process.user or format.UNKNOWN} ({process.uid})")),
        Fact("start", f"{process.start_ticks} clock ticks after boot"),
    ]
    if process.job:
        facts.append(Fact("job", clean(f"{process.job}, rank {rank}")))
    return Detail(f"process {process.pid}  {clean(process.node)}", "ok", tuple(facts))
