"""The progress of ranks without a capture, and the source that shows it."""

import pytest

from gconsole.analysis.live_progress import Signs, live_progress, prevailing
from gconsole.analysis.places import place_facts
from gconsole.analysis.rank_progress import RankProgress
from gconsole.analysis.stacks.frames import Reader
from gconsole.records import StackFrame

SITE = "/opt/venv/lib/python3.11/site-packages/"
TRAIN = StackFrame("train", "/home/user/job/train.py", 88)


def facts(*frames):
    return place_facts([frame if isinstance(frame, StackFrame) else StackFrame(*frame) for frame in frames], Reader())


LOOP = facts(TRAIN)
COLLECTIVE = facts(TRAIN, ("all_reduce", SITE + "torch/distributed/distributed_c10d.py", 2800))


def signs(rank=0, **more):
    return Signs(("node1", 100 + rank, 7), 1_000, **more)


def progress(*ranks):
    entries = live_progress(ranks, 30.0)
    return [(entries[rank.key].state, entries[rank.key].source) for rank in ranks]


@pytest.mark.parametrize(
    ("frames", "activity"),
    [
        ([TRAIN, ("save", SITE + "torch/serialization.py", 940)], "checkpointing"),
        ([TRAIN, ("compile_fx", SITE + "torch/_inductor/compile_fx.py", 10)], "compiling"),
        ([TRAIN, ("init_process_group", SITE + "torch/distributed/distributed_c10d.py", 1)], "starting"),
        ([TRAIN, ("_find_and_load", "<frozen importlib._bootstrap>", 1027), ("<module>", "/j/big.py", 3)], "starting"),
        ([TRAIN, ("Trainer.evaluate", "/home/user/job/loop.py", 12)], "evaluating"),
        ([TRAIN, ("_validate_step", "/home/user/job/loop.py", 12)], "evaluating"),
        ([TRAIN, ("validate_python", SITE + "pydantic/main.py", 3)], None),
        ([TRAIN, ("retrieval", "/home/user/job/loop.py", 12)], None),
        ([TRAIN], None),
    ],
)
def test_activity_comes_from_the_place(frames, activity):
    assert facts(*frames).activity == activity
    if activity is not None:
        assert progress(signs(place=facts(*frames))) == [(activity, "stacks")]


def test_text_of_a_place_is_the_innermost_call_of_the_job():
    assert COLLECTIVE.text == "train.py:88 train"


@pytest.mark.parametrize(
    ("known", "source"),
    [
        ({"step": 9, "step_age_s": 4.0, "moved_bytes": 5000, "place": LOOP}, "steps"),
        ({"moved_bytes": 5000, "place": LOOP}, "connections"),
        ({"transfers": True, "place": LOOP}, "gpu"),
        ({"place": LOOP, "samples": 1, "places": 4}, "stacks"),
    ],
)
def test_cheapest_source_that_shows_progress_is_named(known, source):
    assert progress(signs(**known)) == [("progressing", source)]


def test_rank_in_a_collective_waits_while_others_go_on():
    waits = signs(0, place=COLLECTIVE, samples=3, places=9, path_s=20.0)
    assert progress(waits, signs(1, place=LOOP, samples=1, places=9)) == [
        ("waiting", "stacks"),
        ("progressing", "stacks"),
    ]
    assert progress(waits)[0] == ("unknown", "stacks"), "alone it may be stalled"


@pytest.mark.parametrize(
    "nothing",
    [{}, {"place": LOOP, "samples": 1, "places": 1}, {"place": LOOP, "samples": 7, "places": 7, "path_s": 63.0},
     {"place": LOOP, "samples": 7, "places": 7, "moved_bytes": 0}, {"step": 9, "step_age_s": 45.0, "place": LOOP}],
    ids=["nothing", "first sample", "one place", "silent", "step stands still"],
)  # fmt: skip
def test_without_a_sign_of_progress_it_is_unknown_and_never_stalled(nothing):
    [(state, _)] = progress(signs(**nothing))
    assert state == "unknown"


def test_evidence_of_a_rank_that_stays_names_place_and_duration():
    [entry] = live_progress([signs(place=LOOP, samples=7, places=7, path_s=63.0)], 30.0).values()
    assert entry.evidence == "at train.py:88 train for at least 1 min 3 s, 7 samples"


STALLED = RankProgress("stalled", "sleeps", 500, slept=False)


def test_verdict_that_a_rank_stands_still_prevails_unless_its_steps_or_data_move():
    moves = RankProgress("progressing", "step 9", 1_000, slept=False, source="steps")
    elsewhere = RankProgress("progressing", "elsewhere", 1_000, slept=False, source="stacks")
    assert prevailing(STALLED, elsewhere) is STALLED
    assert prevailing(STALLED, moves) is moves
    slept = RankProgress("stalled", "sleeps", 500, slept=True)
    assert prevailing(slept, moves) is slept


def test_newer_activity_prevails_over_a_verdict_that_a_rank_progresses():
    progressing = RankProgress("progressing", "", 500, slept=False)
    compiles = RankProgress("compiling", "", 1_000, slept=False, source="stacks")
    unknown = RankProgress("unknown", "", 1_000, slept=False, source="none")
    assert prevailing(progressing, compiles) is compiles
    assert prevailing(progressing, unknown) is progressing
