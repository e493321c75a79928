"""The verdict on every recorded job against its label: no innocent rank is blamed, 90 % of decidable ones are right."""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .baselines import minority, torchfrtrace
from .labels import JOBS, Labelled, Truth
from .recording import RECORDINGS, stored, unpacked, verdicts
from .score import NOTHING, Outcome, Said, outcome, said_by, score, table, whom_outcome

ROOT = Path(__file__).parents[2]
GOAL = 0.9


@dataclass(frozen=True)
class Case:
    """One job of one recording: its label, the verdict, and the ranks that the minority vote blames."""

    labelled: Labelled
    truth: Truth
    answer: Said
    minority: frozenset[int]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("recordings")
    return [case for labelled in JOBS for case in of_recording(labelled, folder)]


def of_recording(labelled: Labelled, folder: Path) -> list[Case]:
    path = unpacked(labelled, folder)
    found = verdicts(path)
    stacks = [stack for capture in stored(path).captures.values() for stack in capture.stacks]
    names = sorted({stack.job for stack in stacks})
    return [
        Case(
            labelled, truth,
            said_by(found[number]) if number < len(found) else NOTHING,
            minority(stack for stack in stacks if number < len(names) and stack.job == names[number]),
        )
        for number, truth in enumerate(labelled.truths)
    ]  # fmt: skip


def judged(cases: list[Case]) -> list[tuple[Truth, Outcome]]:
    return [(case.truth, outcome(case.truth, case.answer)) for case in cases]


@pytest.mark.parametrize("labelled", JOBS, ids=[job.id for job in JOBS])
def test_no_verdict_names_an_innocent_rank(cases: list[Case], labelled: Labelled) -> None:
    for case in cases:
        if case.labelled is labelled:
            assert outcome(case.truth, case.answer) != "wrong", f"{case.answer}, but the label is {case.truth}"


def test_verdicts_are_right_for_90_percent_of_decidable_recordings(cases: list[Case], say_at_the_end) -> None:
    ours = score("gconsole", judged(cases))
    rivals = [score("minority vote", [(case.truth, whom_outcome(case.truth, case.minority)) for case in cases])]
    say_at_the_end(table([ours, *rivals, *flight_scores()]))
    bad = [
        f"  {one:8s} {case.labelled.id:28s} answer: {case.answer};  label: {words(case.truth)}"
        for case, (truth, one) in zip(cases, judged(cases), strict=True)
        if one != "right"
    ]
    say_at_the_end([f"{len(cases)} jobs; not right:", *bad])
    assert ours.wrong == 0
    assert ours.share >= GOAL, "\n".join(bad)


def words(truth: Truth) -> str:
    expected = Said("|".join(sorted(truth.states)), "|".join(sorted(truth.kinds)), truth.culprits, truth.classes)
    return f"{expected}{'' if truth.decidable else ' (not decidable)'}"


def flight_scores():
    """Scores of torch's analyser on the flight recorders of the same jobs; none without torch."""
    from jobs import find_torch_python, no_torch

    jobs = [job for job in JOBS if (RECORDINGS / f"{job.id}.flight.json.xz").exists()]
    if no_torch() or not jobs:
        return []
    found = []
    for method, mended in (("torchfrtrace", False), ("torchfrtrace, mended", True)):
        answers = torchfrtrace(find_torch_python(), {job.id: job.nodes * job.per_node for job in jobs}, mended)
        outcomes = [(job.truth, whom_outcome(job.truth, answers[job.id].ranks)) for job in jobs]
        found.append(score(f"{method} ({len(jobs)})", outcomes))
    return found


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
    "join", "start", "step", "steps", "ready", "route", "forward", "train", "train_step", "training_step", "report",
    "evaluate", "score", "work", "ask", "clip", "log", "layer", "decode", "attach", "refresh", "produce", "balance",
    "write_data", "save_checkpoint", "load_dataset", "load_batch", "load_shard", "recompute", "main",
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
