"""Launchers that start no rank."""

from __future__ import annotations

import pytest

from gconsole.analysis.finding import FindingDraft
from gconsole.analysis.health import changed_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import AgentCost, Process

LIMITS = HealthConfig()
SECOND = 1_000_000_000
TORCHRUN = "torchrun --nnodes=4 --nproc-per-node 8 --rdzv-endpoint 10.0.0.1:29500 --rdzv_id=llama train.py"


def launcher(pid: int = 50, started_s: float = 100.0, at_s: float = 105.0, **more: object) -> Process:
    fields: dict = {"has_children": False, "cmdline": TORCHRUN, "role": "launcher", **more}
    return Process(node="n1", pid=pid, start_ticks=int(started_s * 100), ppid=1, uid=0, comm="torchrun",
                   rx=int(at_s * SECOND), mono=int(at_s * SECOND), **fields)  # fmt: skip


def findings(*records: Process, at_s: float = 165.0) -> list[FindingDraft]:
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    drafts: list[FindingDraft] = []
    for record in (*records, AgentCost(node="n1", rx=int(at_s * SECOND), sample_interval_ms=1000)):
        facts.add([record])
        drafts = changed_findings(facts, LIMITS)
    return [draft for draft in drafts if draft.id == "launcher_waits"]


def test_launcher_that_starts_no_process_for_a_minute_is_a_warning_with_what_it_waits_for() -> None:
    [waits] = findings(launcher())
    assert (waits.severity, waits.culprits) == ("warning", ("n1",))
    assert waits.text == (
        "n1: the launcher with pid 50 has run for 1 min 5 s and has started no process: its job needs 4 nodes, which "
        "meet at 10.0.0.1:29500"
    )


def test_launcher_that_waited_before_the_console_came_is_reported_at_once() -> None:
    assert findings(launcher(at_s=700.0), at_s=701.0)


@pytest.mark.parametrize(
    "records",
    [
        [launcher(started_s=110.0)],
        [launcher(has_children=True)],
        [launcher(has_children=None)],
        [launcher(), launcher(at_s=150.0, has_children=True)],
        [launcher(), launcher(at_s=150.0, has_children=None, job="llama")],
        [launcher(), launcher(at_s=150.0, gone=True)],
    ],
    ids=["young", "has children", "unknown", "started them", "started ranks", "ended"],
)
def test_launcher_that_is_young_or_has_started_processes_is_none(records: list[Process]) -> None:
    assert not findings(*records)


@pytest.mark.parametrize("words", ["torchrun train.py", "torchrun --nnodes", "torchrun --nnodes=\u00b2 x", "", None])
def test_arguments_that_name_no_other_nodes_are_left_out(words: str | None) -> None:
    [waits] = findings(launcher(cmdline=words))
    assert waits.text.endswith("has started no process")


def test_several_launchers_of_a_node_are_one_finding() -> None:
    [waits] = findings(launcher(), launcher(pid=51, started_s=90.0))
    assert "pid 51" in waits.text and waits.text.endswith("(1 more on this node)")
