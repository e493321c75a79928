"""The progress of each rank that the verdict on its job shows."""

import msgspec
import pytest
from analysis.hang.scenes import LOADER, MAIN, REDUCE, SAVE, SITE, Scene, own

from gconsole.analysis.rank_progress import progress_of, shown_state
from gconsole.records import StackFrame

COMPILES = (MAIN, StackFrame("compile_fx", SITE + "torch/_inductor/compile_fx.py", 1))


def states(scene):
    judged = scene.judged()
    by_rank = {key[1] - 100: entry.state for key, entry in progress_of(judged).items()}
    return judged.verdict.state, [by_rank.get(rank) for rank in range(scene.world)]


def with_culprit(path, **facts):
    scene = Scene()
    for rank in (0, 1, 3):
        scene.rank(rank, REDUCE)
    return scene.rank(2, path, **facts)


def test_culprit_of_a_hang_is_stalled_and_the_others_wait():
    scene = with_culprit(own("load", 9), syscall="clock_nanosleep")
    assert states(scene) == ("hung", ["waiting", "waiting", "stalled", "waiting"])
    entry = next(entry for key, entry in progress_of(scene.judged()).items() if key[1] == 102)
    assert entry.evidence == "sleeps in train.py:9 load; verdict: hung (rank_missing)"


def test_ranks_of_a_job_that_moves_are_progressing():
    scene = Scene()
    for rank in range(4):
        scene.moving(rank, shift=rank)
    assert states(scene) == ("moving", ["progressing"] * 4)


@pytest.mark.parametrize(("path", "state"), [(COMPILES, "compiling"), (SAVE, "checkpointing")], ids=["compile", "save"])
def test_rank_that_works_while_the_others_wait_is_named_by_what_it_does(path, state):
    scene = with_culprit(path, state="R", syscall=None, wakes=9)
    for number, stack in enumerate(scene.stacks):
        if stack.rank == 2:
            scene.stacks[number] = msgspec.structs.replace(stack, written_bytes=number * 1_000_000)
    assert states(scene) == ("slow", ["waiting", "waiting", state, "waiting"])


def test_job_that_stands_still_without_a_culprit_has_stalled_ranks():
    scene = Scene()
    for rank in range(4):
        scene.rank(rank, LOADER, syscall="poll")
    verdict, progress = states(scene)
    assert (verdict, progress) == ("undecided", ["stalled"] * 4)


def test_undecided_verdict_says_nothing_about_its_ranks():
    scene = Scene(looks=2)
    for rank in range(4):
        scene.rank(rank, REDUCE)
    assert states(scene) == ("undecided", [None] * 4)


def test_process_that_is_stopped_or_a_zombie_stays_so():
    assert [shown_state(state, "waiting") for state in ("moving", "idle", "stopped", "zombie")] == [
        "waiting", "waiting", "stopped", "zombie",
    ]  # fmt: skip
    assert shown_state("moving", None) == "moving"
