"""From clock records to results: windows in a store, findings, the report and its exit code."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from gconsole.analysis.clock.findings import clock_findings
from gconsole.analysis.clock.windows import ClockFold, ClockLimits
from gconsole.config.sections import ClockConfig, HealthConfig, SkewConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor.clock_estimator import ClockFindings
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.monitor.skew import SkewFindings, skew_of
from gconsole.present.skew import skew_text
from gconsole.records import ClockNode, ClockSource, ClockWindow, NodeState, RankStat, Record
from gconsole.report import exit_code, make_report, unknown_words

from .synthetic import EPOCH, MS, SECOND, US, VETH, Node, make_nodes, probe_records, regular_edges
from .test_skew import NODES, entries


class FindingPipeline:
    """A store on a hub, with the clock and lateness findings."""

    def __init__(self, max_bound_us: float = 100.0, max_ms: float = 10.0, max_offset_ms: float = 1e9) -> None:
        self.hub, self.store = Hub(), Store()
        self.hub.subscribe(self.store.apply)
        self.clocks = ClockFindings(self.store, ClockConfig(max_bound_us=max_bound_us, max_offset_ms=max_offset_ms))
        self.lateness = SkewFindings(self.store, SkewConfig(max_ms=max_ms))
        self.findings = FindingTracker(self.hub, HealthConfig(), sources=(self.clocks, self.lateness))

    def probe(self, nodes: Sequence[Node], **limits: int | str) -> None:
        """Three windows of these nodes, folded as in a running console."""
        fold = ClockFold(ClockLimits(**limits))
        records: list[Record] = []
        for window in range(3):
            records += probe_records(
                nodes, regular_edges(len(nodes), 1), window, 1.0 + 4 * window, path=lambda _a, _b: VETH
            )
        records.sort(key=lambda record: record.rx)
        self.hub.publish(records)  # type: ignore[arg-type]
        self.hub.publish_own(*(NodeState(node=node.name, state="ok") for node in nodes))
        outputs = [*fold.add(records), *fold.finish()]
        assert all(isinstance(output, ClockNode | ClockWindow) for output in outputs)
        self.hub.publish_own(*outputs)

    async def ids(self) -> set[str]:
        await self.findings.evaluate(is_last=True)
        return {finding.id for finding in self.store.findings.values()}


async def test_operations_from_before_the_newest_of_a_capture_count_for_lateness() -> None:
    pipeline = FindingPipeline(max_ms=1.0)
    pipeline.probe(NODES)
    records = entries({5: 2 * MS})
    for record in records:
        record.is_earlier = True
    pipeline.hub.publish(records)
    assert await pipeline.ids() == {"straggler"}


async def test_rank_later_than_the_limit_is_a_straggler_and_fails_batch() -> None:
    pipeline = FindingPipeline(max_ms=1.0)
    pipeline.probe(NODES)
    pipeline.hub.publish(entries({5: 2 * MS}))
    assert await pipeline.ids() == {"straggler"}
    report = make_report(pipeline.store)
    assert [culprit.rank for culprit in report.skew.culprits] == [5]
    assert report.clocks.reference in {node.name for node in NODES}
    assert exit_code(report, ("straggler",)) == 1
    assert exit_code(report, ("clock_unsynced", "desync")) == 0
    assert "✖ 5 node002 40/40 100 %" in " ".join(skew_text(skew_of(pipeline.store)).split())


def step_records(late_s: dict[int, float]) -> list[RankStat]:
    """One rank per node, stepping every half second, sampled 50 ms apart."""

    def read(rank: int, step: int, second: float) -> RankStat:
        mono = int(NODES[rank].clock.at(np.array([int(second * SECOND)], dtype=np.int64))[0])
        identity = {"job": "llama", "rank": rank, "pid": 7 + rank, "start_ticks": 7, "state": "moving"}
        t = EPOCH + NODES[rank].real_off_ns + int(second * SECOND)
        return RankStat(node=NODES[rank].name, step=step, t=t, mono=mono, **identity)  # type: ignore[arg-type]

    records = []
    for step in range(5, 25):
        for rank in range(4):
            reached_s = step / 2 + late_s.get(rank, 0.0)
            records += [read(rank, step - 1, reached_s - 0.05), read(rank, step, reached_s)]
    return records


async def test_stragglers_are_found_from_steps_at_the_end_without_collective_records() -> None:
    pipeline = FindingPipeline(max_ms=100.0)
    pipeline.probe(NODES)
    pipeline.hub.publish(step_records({2: 0.2}))
    await pipeline.findings.evaluate()
    assert len(pipeline.store.findings) == 0
    assert await pipeline.ids() == {"straggler"}
    [finding] = pipeline.store.findings.values()
    assert finding.culprits == ("rank 2",) and " steps, " in finding.text
    assert make_report(pipeline.store).skew.steps_by == "a watched variable"


async def test_late_rank_under_the_limit_is_reported_without_a_finding() -> None:
    pipeline = FindingPipeline(max_ms=10.0)
    pipeline.probe(NODES)
    pipeline.hub.publish(entries({5: 2 * MS}))
    assert await pipeline.ids() == set()
    assert [culprit.rank for culprit in make_report(pipeline.store).skew.culprits] == [5]  # configured, not detected


async def test_lateness_within_clock_error_is_counted_as_unresolved() -> None:
    pipeline = FindingPipeline()
    pipeline.probe(NODES)
    pipeline.hub.publish(entries({5: 1 * US}))
    await pipeline.ids()
    skew = make_report(pipeline.store).skew
    assert skew.culprits == []
    [unresolved] = skew.unresolved
    assert (unresolved.analysed, unresolved.unresolved) == (40, 40)
    assert unresolved.judged == 40 and skew.meetings == skew.sync_points, "deprecated names stay for one release"
    assert [rank.meetings for rank in skew.ranks] == [rank.sync_points for rank in skew.ranks]
    assert not any(rank.is_resolved for rank in skew.ranks)


async def test_time_service_without_a_source_and_wide_bound_are_unsynced() -> None:
    pipeline = FindingPipeline(max_bound_us=1.0)
    nodes = make_nodes(3, 1)
    pipeline.probe(nodes)
    pipeline.hub.publish([ClockSource(node="node001", daemon="chrony", synced=False, text="chronyd has no source")])
    assert await pipeline.ids() == {"clock_unsynced"}
    texts = {finding.culprits[0]: finding.text for finding in pipeline.store.findings.values()}
    assert "chrony: chronyd has no source" in texts["node001"]
    reference = make_report(pipeline.store).clocks.reference
    assert {"node000", "node001", "node002"} - set(texts) <= {reference}


async def test_changed_limits_apply_to_a_running_session() -> None:
    pipeline = FindingPipeline(max_bound_us=100.0, max_ms=10.0)
    pipeline.probe(NODES)
    pipeline.hub.publish(entries({5: 2 * MS}))
    assert await pipeline.ids() == set()
    pipeline.clocks.config = ClockConfig(max_bound_us=1.0, max_offset_ms=1e9)
    pipeline.lateness.follow(SkewConfig(max_ms=1.0))
    assert await pipeline.ids() == {"clock_unsynced", "straggler"}


def a_line(node: str, offset_ns: int | None, bound_ns: int | None = 10_000) -> ClockNode:
    return ClockNode(
        node=node, window_id=1, reference="a", at_mono=1, at_common=1, alpha=1.0, offset_ns=offset_ns, bound_ns=bound_ns
    )


@pytest.mark.parametrize(
    ("offsets_ms", "culprits"),
    [
        ({"a": 0, "b": 0.2, "c": 5000}, [("c",)]),
        ({"a": 0, "b": -5000, "c": -5000.3, "d": -5000.1}, [("a",)]),  # the reference is the wrong one
        ({"a": 0, "b": 3, "c": -3, "d": 0.1, "e": 0}, [("b",), ("c",)]),
        ({"a": 0, "b": 250}, [("a", "b")]),
        ({"a": 0, "b": 0.9, "c": 0.5}, []),
        ({"a": 0}, []),
    ],
)
def test_clock_apart_from_most_others_is_a_finding(
    offsets_ms: dict[str, float], culprits: list[tuple[str, ...]]
) -> None:
    lines = [a_line(node, round(offset * MS)) for node, offset in offsets_ms.items()]
    found = list(clock_findings(lines, (), {}, 10**9, MS))
    assert [(draft.id, draft.culprits) for draft in found] == [("clock_offset", names) for names in culprits]


def test_offset_within_its_bound_or_without_one_is_no_finding() -> None:
    lines = [a_line("a", 0), a_line("b", 0), a_line("c", 5 * MS, 6 * MS), a_line("d", 5_000 * MS, None)]
    assert list(clock_findings(lines, (), {}, 10**9, MS)) == []


async def test_offset_is_unknown_where_only_the_nodes_own_clocks_are_compared() -> None:
    pipeline = FindingPipeline(max_offset_ms=1.0)
    pipeline.probe(make_nodes(3, 1), method="system")
    newest = [pipeline.store.clocks.nodes[node][-1] for node in pipeline.store.clocks.nodes]
    assert sorted(line.offset_ns is None for line in newest) == [False, True, True]
    assert "clock_offset" not in await pipeline.ids()


async def test_node_without_a_time_service_has_no_finding() -> None:
    pipeline = FindingPipeline()
    pipeline.probe(make_nodes(3, 1))
    pipeline.hub.publish([ClockSource(node="node001", daemon=None, synced=False, text="no time service was found")])
    assert await pipeline.ids() == set()


async def test_wide_ntp_bound_without_probes_raises_no_finding() -> None:
    pipeline = FindingPipeline()
    line = {"window_id": 1, "reference": "node000", "at_mono": 1, "at_common": 1, "alpha": 1.0, "method": "ntp"}
    pipeline.hub.publish([ClockNode(node="node001", bound_ns=12 * MS, warnings=("wide",), **line)])
    assert await pipeline.ids() == set()


def test_every_clock_and_skew_finding_id_is_accepted_by_fail_on() -> None:
    ids = ["clock_unsynced", "straggler", "desync", "clock_step", "clock_slew", "clock_violated", "clock_udp_blocked"]
    assert unknown_words(ids) == []


def test_report_of_an_empty_store_has_empty_skew_and_no_reference() -> None:
    store = Store()
    empty = msgspec.to_builtins(make_report(store))
    assert empty["skew"]["ranks"] == empty["skew"]["culprits"] == empty["skew"]["unresolved"] == []
    assert empty["clocks"]["reference"] is None
