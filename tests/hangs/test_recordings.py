"""The verdict on every recorded job against its label: no innocent rank is blamed, 90 % of decidable ones are right."""

import ast
import json
import lzma
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .baselines import minority, torchfrtrace, wavefront
from .labels import JOBS, Label, LabelledJob
from .recording import RECORDINGS, stored, unpacked, verdicts
from .score import NOTHING, Outcome, VerdictSummary, culprit_outcome, grade, score, summary_of, table

ROOT = Path(__file__).parents[2]
GOAL = 0.9


@dataclass(frozen=True)
class RecordingCase:
    """One job of one recording: its label, the verdict, and the ranks that the minority vote blames."""

    labelled: LabelledJob
    label: Label
    answer: VerdictSummary
    minority: frozenset[int]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[RecordingCase]:
    folder = tmp_path_factory.mktemp("recordings")
    return [case for labelled in JOBS for case in of_recording(labelled, folder)]


def of_recording(labelled: LabelledJob, folder: Path) -> list[RecordingCase]:
    path = unpacked(labelled, folder)
    verdicts_of_recording = verdicts(path)
    stacks = [stack for capture in stored(path).captures.values() for stack in capture.stacks]
    names = sorted({stack.job for stack in stacks})
    return [
        RecordingCase(
            labelled, label,
            summary_of(verdicts_of_recording[number]) if number < len(verdicts_of_recording) else NOTHING,
            minority(stack for stack in stacks if number < len(names) and stack.job == names[number]),
        )
        for number, label in enumerate(labelled.labels)
    ]  # fmt: skip


def graded(cases: list[RecordingCase]) -> list[tuple[Label, Outcome]]:
    return [(case.label, grade(case.label, case.answer)) for case in cases]


@pytest.mark.parametrize("labelled", JOBS, ids=[job.id for job in JOBS])
def test_no_verdict_names_an_innocent_rank(cases: list[RecordingCase], labelled: LabelledJob) -> None:
    for case in cases:
        if case.labelled is labelled:
            assert grade(case.label, case.answer) != "wrong", f"{case.answer}, but the label is {case.label}"


def test_verdicts_are_right_for_90_percent_of_decidable_recordings(cases: list[RecordingCase], report_at_end) -> None:
    ours = score("gconsole", graded(cases))
    rivals = [score("minority vote", [(case.label, culprit_outcome(case.label, case.minority)) for case in cases])]
    report_at_end(table([ours, *rivals, *flight_scores()]))
    groups: dict[str, list[RecordingCase]] = {}
    for case in cases:
        groups.setdefault(case.labelled.group, []).append(case)
    report_at_end(["gconsole, by class:", *table([score(name, graded(groups[name])) for name in sorted(groups)])])
    bad = [
        f"  {outcome:8s} {case.labelled.id:28s} answer: {case.answer};  label: {label_text(case.label)}"
        for case, (label, outcome) in zip(cases, graded(cases), strict=True)
        if outcome != "right"
    ]
    report_at_end([f"{len(cases)} jobs; not right:", *bad])
    assert ours.wrong == 0
    assert ours.share >= GOAL, "\n".join(bad)


def label_text(label: Label) -> str:
    expected = VerdictSummary(
        "|".join(sorted(label.states)), "|".join(sorted(label.kinds)), label.culprits, label.classes
    )
    return f"{expected}{'' if label.decidable else ' (not decidable)'}"


def flight_scores():
    """Scores of torch's analyser on the flight recorders of the same jobs; none without torch."""
    from jobs import find_torch_python, no_torch

    jobs = [job for job in JOBS if (RECORDINGS / f"{job.id}.flight.json.xz").exists()]
    if no_torch() or not jobs:
        return []
    dumps = {job: json.loads(lzma.decompress((RECORDINGS / f"{job.id}.flight.json.xz").read_bytes())) for job in jobs}
    outcomes = [(job.label, culprit_outcome(job.label, wavefront(dumps[job]))) for job in jobs]
    scores = [score(f"NVRx's rule ({len(jobs)})", outcomes)]
    for method, mended in (("torchfrtrace", False), ("torchfrtrace, mended", True)):
        answers = torchfrtrace(find_torch_python(), {job.id: job.nodes * job.per_node for job in jobs}, mended)
        outcomes = [(job.label, culprit_outcome(job.label, answers[job.id].ranks)) for job in jobs]
        scores.append(score(f"{method} ({len(jobs)})", outcomes))
    return scores


def test_the_same_records_give_the_same_verdict_whenever_they_are_read(tmp_path: Path) -> None:
    for labelled in JOBS[::8]:
        path = unpacked(labelled, tmp_path)
        assert verdicts(path) == verdicts(path)


def test_product_source_contains_no_names_of_the_labelled_jobs() -> None:
    source = "\n".join(
        path.read_text() for folder in ("console", "remote") for path in sorted((ROOT / folder).rglob("*.py"))
    )
    assert "tests.hangs" not in source and "tests/hangs" not in source
    assert "/home/user/train" not in source
    words, files = set(re.findall(r"\w+", source)), set(re.findall(r"(\w+)\.py\b", source))
    for script in sorted((Path(__file__).parent / "jobs").glob("*.py")):
        assert script.stem not in files, f"the product contains {script.name}"
        assert not own_names(script) & words, f"the product contains names of {script.name}"


#: Function names that any training loop has, or that override a method of a base class in torch.
COMMON = {
    "act", "ask", "attach", "balance", "clip", "collect", "connect", "decode", "dial", "evaluate", "exchange",
    "forward", "join", "layer", "learn", "load_batch", "load_dataset", "load_shard", "log", "log_message", "main",
    "produce", "pull", "ready", "receive", "recompute", "refresh", "report", "route", "save_checkpoint", "score",
    "serve", "service", "start", "step", "steps", "train", "train_step", "training", "training_step", "work",
    "write_data",
}  # fmt: skip


def own_names(script: Path) -> set[str]:
    tree = ast.parse(script.read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    # standard library modules that only the job imports do not reveal its name
    return {name for name in functions - COMMON - sys.stdlib_module_names if not name.startswith("__")}


def test_every_labelled_job_is_recorded_and_the_recordings_are_small() -> None:
    files = sorted(RECORDINGS.iterdir())
    assert {path.name for path in files if ".ndjson" in path.name} == {f"{job.id}.ndjson.xz" for job in JOBS}
    assert sum(path.stat().st_size for path in files) < 2_000_000
