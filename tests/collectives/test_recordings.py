"""Verdicts and lateness on recorded jobs of many shapes of communication: no wrong name, no finding on healthy ones."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gconsole.analysis.skew.findings import skew_findings
from gconsole.core.store import Store
from gconsole.monitor.skew import skew_of
from gconsole.records import decode
from gconsole.report import make_report
from tests.hangs.score import Outcome, score

from .labels import CASES, SHAPES, ShapeCase
from .live import RECORDINGS, judge

GOAL = 0.9
#: [skew] max_ms of the default configuration.
MAX_MS = 10.0
#: Kinds of records that come from a Flight Recorder.
OF_RECORDER = frozenset({"collective", "pg_status"})
#: Records that arrive between two evaluations.
AT_A_TIME = 100


def records_of(case: ShapeCase) -> Iterator[Any]:
    """The records of a case; without a Flight Recorder those of the same job without its entries."""
    text = lzma.decompress((RECORDINGS / f"{case.shape.name}-{case.fault}.ndjson.xz").read_bytes())
    for line in text.splitlines():
        if case.has_recorder or json.loads(line)["kind"] not in OF_RECORDER:
            yield decode(line)


def judged(case: ShapeCase, store: Store) -> tuple[Outcome, str]:
    """The outcome of the verdict and of the findings on late ranks that these records give."""
    skew = skew_of(store)
    late = skew_findings(skew.primary, skew.violations, skew.desyncs, MAX_MS, skew.gpus)
    findings = [{"id": finding.id, "culprits": finding.culprits} for finding in late]
    return judge(case, {"verdicts": msgspec.to_builtins(make_report(store).verdicts), "findings": findings})


def cases(*, healthy: bool) -> list[object]:
    return [pytest.param(case, id=case.id) for case in CASES if not healthy or case.fault == "healthy"]


OUTCOMES: dict[str, Outcome] = {}


@pytest.mark.parametrize("case", cases(healthy=False))
def test_no_innocent_rank_is_named_and_a_healthy_job_has_no_finding(case: ShapeCase) -> None:
    store = Store()
    store.apply(list(records_of(case)))
    outcome, answer = judged(case, store)
    OUTCOMES[case.id] = outcome
    assert outcome != "wrong", f"{answer}; the label is {case.label}"


def test_nine_of_ten_answers_are_right() -> None:
    outcomes = [(case.label, OUTCOMES[case.id]) for case in CASES if case.id in OUTCOMES]
    if not outcomes:
        pytest.skip("the cases run in another process")
    total = score("all", outcomes)
    assert total.share >= GOAL, {name: outcome for name, outcome in OUTCOMES.items() if outcome != "right"}


@pytest.mark.parametrize("case", cases(healthy=True))
def test_healthy_job_has_no_finding_while_its_records_arrive(case: ShapeCase) -> None:
    store = Store()
    waiting: list[Any] = []
    for number, record in enumerate(records_of(case)):
        waiting.append(record)
        if number % AT_A_TIME == AT_A_TIME - 1:
            store.apply(waiting)
            waiting = []
            skew = skew_of(store)
            findings = list(skew_findings(skew.primary, skew.violations, skew.desyncs, MAX_MS, skew.gpus))
            assert [finding.text for finding in findings] == []


def test_every_labelled_job_is_recorded() -> None:
    recorded = {path.name.removesuffix(".ndjson.xz") for path in RECORDINGS.iterdir()}
    assert recorded == {f"{shape.name}-{fault}" for shape in SHAPES for fault in shape.faults}
    assert len(CASES) >= 100
