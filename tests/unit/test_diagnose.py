"""Diagnosis from the store to verdicts, findings and the report."""

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest
from analysis.hang.scenes import LOCKED, REDUCE, Scene, names, own

from gconsole.core.store import Store
from gconsole.monitor import hang
from gconsole.monitor.hang import Diagnosis, diagnose, verdict_finding, verdict_findings, verdicts
from gconsole.present.verdict import verdict_text
from gconsole.records import ConsoleRecord, Local, NodeState
from gconsole.report import exit_code, make_report, to_json
from gconsole.tui.derived import DiagnosisFold


def a_hung_scene() -> Scene:
    scene = Scene()
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    return scene.rank(1, LOCKED)


def stored(scene: Scene, **console) -> Store:
    store = Store()
    store.apply([ConsoleRecord(cluster="c", version="1", **console)])
    store.apply([NodeState(node=name, state="ok", rx=5) for name in scene.nodes])
    store.apply(scene.ranks)
    store.apply(scene.stacks)
    return store


def test_no_verdict_without_a_capture():
    scene = a_hung_scene()
    scene.stacks = []
    assert verdicts(stored(scene)) == []


def test_hang_makes_a_finding_and_exit_code_1():
    store = stored(a_hung_scene())
    store.apply(verdict_findings(store))
    report = make_report(store)
    [finding] = report.findings
    assert (finding.id, finding.severity, finding.culprits) == ("rank_missing", "error", ("rank 1",))
    assert finding.victims == ("rank 0", "rank 2", "rank 3")
    assert names(report.verdicts[0]) == [(1, "python_lock")]
    assert (exit_code(report), exit_code(report, ("rank_dead",))) == (1, 0)


def test_repeated_hang_finding_keeps_its_first_seen_time():
    store = stored(a_hung_scene())
    first = verdict_findings(store)
    store.apply(first)
    store.newest_rx += 10**9
    assert [finding.first_seen for finding in verdict_findings(store)] == [first[0].first_seen]


def test_undecided_verdict_is_a_warning_finding_without_culprits():
    store = stored(a_hung_scene(), min_frozen_s=60.0)
    [finding] = verdict_findings(store)
    assert (finding.id, finding.severity, finding.culprits) == ("undecided", "warning", ())


def test_verdict_uses_min_frozen_s_of_the_recording_console():
    assert [verdict.state for verdict in verdicts(stored(a_hung_scene(), min_frozen_s=2.0))] == ["hung"]


def test_a_job_that_moves_makes_no_finding():
    scene = Scene()
    for rank in range(4):
        scene.moving(rank, rank)
    assert [verdict_finding(verdict) for verdict in verdicts(stored(scene))] == [None]


def test_json_verdict_has_the_documented_fields():
    [verdict] = json.loads(to_json(make_report(stored(a_hung_scene()))))["verdicts"]
    assert list(verdict) == [
        "job", "state", "kind", "culprits", "victims", "confidence", "summary", "evidence", "next_step", "coverage",
            "stalled", "idle",
    ]  # fmt: skip
    assert verdict["culprits"] == [{
        "rank": 1, "node": "node1", "pid": 101, "class": "python_lock",
        "site": {"function": "flush", "file": "/home/user/job/train.py", "line": 40, "source": None},
    }]  # fmt: skip
    assert verdict["coverage"] == {"ranks": 4, "captured": 4, "samples": 12}


def test_verdict_text_has_culprit_site_evidence_and_next_step():
    [verdict] = verdicts(stored(a_hung_scene()))
    lines = verdict_text(verdict).splitlines()
    assert lines[0].startswith("✖ hung  rank_missing  llama") and lines[0].endswith("confidence: high")
    assert lines[2] == "  rank 1 · node1 · pid 101  in  train.py:40 flush  python lock"
    assert lines[3].startswith("  evidence  stack rank 1 node1 pid 101")
    assert lines[-1].startswith("  next      ")


def test_captured_locals_are_in_the_report():
    scene = Scene(1, 1, looks=2).rank(0, REDUCE, locals=(Local(1, "step", "18204"),))
    [capture] = make_report(stored(scene)).captures
    assert [(local.rank, local.function, local.name, local.value) for local in capture.locals] == [
        (0, "step", "step", "18204")
    ]


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs of all evaluations so far."""
    jobs: list[str] = []
    diagnose_job = hang.diagnose_job

    def counted(evidence):
        jobs.append(evidence.job.job)
        return diagnose_job(evidence)

    monkeypatch.setattr(hang, "diagnose_job", counted)
    return jobs


def test_diagnosis_findings_views_and_report_share_one_evaluation_per_capture(evaluations):
    scene = a_hung_scene()
    store = stored(scene, min_frozen_s=2.0)
    later = [*scene.stacks]
    store.captures = type(store.captures)()

    async def capture(order) -> None:
        store.apply(later)
        later.clear()

    judgements = asyncio.run(diagnose(store, SimpleNamespace(capture=capture), Diagnosis(native=False)))
    captures = len(evaluations)
    store.apply(verdict_findings(store))
    view: list[object] = []
    fold = DiagnosisFold(store)
    fold.refresh(lambda work: view.append(asyncio.run(work)))
    report = make_report(store)
    verdict_findings(store)
    assert [judgement.verdict.state for judgement in judgements] == ["hung"]
    assert [job.judgement.verdict for job in fold.value] == report.verdicts == [judgements[0].verdict]
    assert len(evaluations) == captures == 1


def test_rank_exit_after_the_capture_triggers_a_new_evaluation(evaluations):
    scene = a_hung_scene()
    store = stored(scene, min_frozen_s=2.0)
    assert [verdict.kind for verdict in verdicts(store)] == ["rank_missing"]
    store.apply(
        [msgspec.structs.replace(rank, status="exited", exit_code=-9) for rank in scene.ranks if rank.rank == 1]
    )
    assert [verdict.kind for verdict in verdicts(store)] == ["rank_dead"]
    assert len(evaluations) == 2


@pytest.mark.parametrize(("is_automatic", "paused"), [(False, 1), (True, 0)])
async def test_an_automatic_diagnosis_pauses_no_process_of_a_job_that_may_only_be_polling(is_automatic, paused):
    scene = Scene(per_node=4).rank(2, own("load_mesh", 4), syscall="openat")
    for rank in (0, 1, 3):
        scene.rank(rank, own("train", 8), state="R", syscall=None, wakes=1)
    stacks, scene.stacks = scene.stacks, []
    store, orders = stored(scene), []

    async def capture(order) -> None:
        orders.append(order)
        store.apply(stacks)

    await diagnose(store, SimpleNamespace(capture=capture), Diagnosis(is_automatic=is_automatic))
    assert sum(len(order.native) for order in orders) == paused


async def test_a_diagnosis_of_some_jobs_captures_no_others():
    orders = []

    async def capture(order) -> None:
        orders.append(order.jobs)
        store.apply(stacks)

    scene = a_hung_scene()
    stacks, scene.stacks = scene.stacks, []
    store = stored(scene, min_frozen_s=2.0)
    judgements = await diagnose(store, SimpleNamespace(capture=capture), Diagnosis(jobs=("llama",)))
    assert set(orders) == {("llama",)}
    assert [judgement.verdict.job for judgement in judgements] == ["llama"]
    assert not await diagnose(store, SimpleNamespace(capture=capture), Diagnosis(jobs=("another",)))


async def test_a_rank_whose_stack_took_too_long_to_read_is_read_once_more():
    scene = a_hung_scene()
    whole, scene.stacks = scene.stacks, []
    store, captures = stored(scene, min_frozen_s=2.0), 0

    async def capture(order) -> None:
        nonlocal captures
        captures += 1
        sent = [msgspec.structs.replace(stack, capture=f"c{captures}") for stack in whole]
        if captures == 1:
            late = {"status": "timed_out", "frames": None, "reason": "took longer than 3.0 s"}
            sent = [msgspec.structs.replace(stack, **late) if stack.rank == 1 else stack for stack in sent]
        store.apply(sent)

    judgements = await diagnose(store, SimpleNamespace(capture=capture), Diagnosis(native=False))
    assert captures > 1
    assert names(judgements[0].verdict) == [(1, "python_lock")]


@pytest.mark.parametrize("comes_back", [True, False], ids=["readable", "not readable"])
async def test_a_rank_that_was_found_after_the_first_capture_is_read_once_more(comes_back):
    scene = a_hung_scene()
    whole, scene.stacks = scene.stacks, []
    [late] = [rank for rank in scene.ranks if rank.rank == 1]
    scene.ranks.remove(late)
    store, captures = stored(scene), 0

    async def capture(order) -> None:
        nonlocal captures
        captures += 1
        sees = (0, 1, 2, 3) if captures > 1 and comes_back and not order.only else (0, 2, 3)
        store.apply([msgspec.structs.replace(stack, capture=f"c{captures}") for stack in whole if stack.rank in sees])
        store.apply([late])

    judgements = await diagnose(store, SimpleNamespace(capture=capture), Diagnosis(native=False))
    assert names(judgements[0].verdict) == ([(1, "python_lock")] if comes_back else [])
    assert captures == (2 if comes_back else 3), "no more than once, and the variables of those that wait"
