"""Folding of captures by stack, from real py-spy output and from synthetic ranks."""

import json
import time
from pathlib import Path

import msgspec
import pytest

from gconsole.analysis.stacks.fold import GRANULARITIES, THREADS, Shape, fold, jobs_of
from gconsole.analysis.stacks.frame_models import BadModel, Model, parse_model
from gconsole.analysis.stacks.frames import Reader
from gconsole.cli import options
from gconsole.present.stacks import stacks_text
from gconsole.records import Local, Stack, StackFrame
from gconsole.text.nodeset_fold import fold_numbers

PYSPY = Path(__file__).parent / "pyspy"
JOB = ("j", 0)
SITE = "/opt/venv/lib/python3.11/site-packages/"
C10D = SITE + "torch/distributed/distributed_c10d.py"


def stack(rank, frames, **more):
    """One thread of one rank; frames are (function, file, line), outermost first."""
    made = None if frames is None else tuple(StackFrame(*frame) for frame in frames)
    known = Stack(
        capture="c", sample=0, job="j", node=f"n{(rank or 0) // 8}", rank=rank, pid=100 + (rank or 0), start_ticks=1,
        status="ok", thread_id=1, thread_name="MainThread", active=False, gil=False, proc_state="S", syscall="futex",
        at=1000, looked=1500, began=2000, ended=3000, tracer_pid=0, frames=made,
    )  # fmt: skip
    return msgspec.structs.replace(known, **more)


def dump_records(name, rank, **more):
    """Records of one recorded py-spy dump."""
    return [
        stack(
            rank, [(one["name"], one["filename"], one["line"]) for one in reversed(thread["frames"])],
            thread_name=thread["thread_name"], thread_id=thread["thread_id"], active=thread["active"], **more,
        )
        for thread in json.loads((PYSPY / f"{name}.json").read_text())
    ]  # fmt: skip


def group_of(found, rank, role="rank"):
    return next(group for group in found.groups if rank in group.ranks and group.role == role)


def names(group):
    return [step.function for step in group.path]


USER = ("<module>", "/home/user/job/train.py", 54)
STEP = ("train_step", "/home/user/job/train.py", 30)
REDUCE = ("all_reduce", C10D, 3252)


class TestRealStacks:
    def test_stack_of_a_rank_in_a_collective_is_cut_at_the_call(self):
        found = fold(dump_records("lock.0", 0), JOB)
        [group] = found.groups
        assert group.cls == "collective"
        assert names(group) == ["<module>", "main", "train_step", "all_reduce"], "torch's wrapper frames are hidden"

    def test_sleeping_rank_is_classified_by_its_system_call(self):
        group = group_of(fold(dump_records("absent.1", 1, syscall="clock_nanosleep"), JOB), 1)
        assert (group.cls, names(group)) == ("sleep", ["<module>", "main"])

    def test_a_rank_at_the_rendezvous_is_in_group_setup(self):
        assert group_of(fold(dump_records("absent.0", 0), JOB), 0).cls == "group_setup"

    def test_a_rank_that_waits_for_its_dataloader_is_not_in_a_lock(self):
        group = group_of(fold(dump_records("dataloader.1", 1, syscall="poll"), JOB), 1)
        assert group.cls == "dataloader"
        assert names(group)[-2:] == ["next_batch", "_BaseDataLoaderIter.__next__"]

    def test_dataloader_worker_stack_omits_the_frames_of_its_parent(self):
        worker = dump_records("dataloader.1.worker", 1, role="dataloader_worker", pid=900, syscall="clock_nanosleep")
        found = fold([*dump_records("dataloader.1", 1), *worker], JOB)
        group = group_of(found, 1, "dataloader_worker")
        assert names(group)[0] == "_worker_loop"
        assert (names(group)[-1], group.cls) == ("Shards.__getitem__", "sleep")
        assert "DATALOADER WORKERS  1 process, 1 group" in stacks_text(found)

    def test_waiting_backward_is_a_collective_and_running_backward_is_compute(self):
        assert group_of(fold(dump_records("backward.0", 0), JOB), 0).cls == "collective"
        assert group_of(fold(dump_records("backward.0", 0, proc_state="R"), JOB), 0).cls == "compute"

    def test_rank_waiting_on_an_event_is_classified_as_a_python_lock(self):
        group = group_of(fold(dump_records("lock.1", 1), JOB), 1)
        assert (group.cls, names(group)[-1]) == ("python_lock", "Event.wait")


@pytest.mark.parametrize(("facts", "cls"), [
    ({"proc_state": "T"}, "stopped"),
    ({"proc_state": "t", "tracer_pid": 7}, "debugger"),
    ({"proc_state": "D"}, "uninterruptible"),
    ({"proc_state": "R", "syscall": None}, "compute"),
    ({"syscall": "wait4"}, "subprocess"),
    ({"syscall": "read", "wchan": "n_tty_read"}, "input"),
    ({"syscall": "fsync"}, "file_io"),
    ({"syscall": "futex"}, "unknown"),
])  # fmt: skip
def test_leaf_frame_of_user_code_is_classified_by_process_state_and_syscall(facts, cls):
    assert fold([stack(0, [USER], **facts)], JOB).groups[0].cls == cls


@pytest.mark.parametrize(("frames", "cls"), [
    ([("new_group", C10D, 1), ("barrier", C10D, 2)], "group_setup"),
    ([("save", SITE + "torch/distributed/checkpoint/state_dict_saver.py", 1), REDUCE], "collective"),
    ([("save", SITE + "torch/serialization.py", 1)], "checkpoint_io"),
    ([("send", C10D, 1)], "p2p"),
    ([("destroy_process_group", C10D, 1)], "teardown"),
    ([("compile_fx", SITE + "torch/_inductor/compile_fx.py", 1), ("wait", "/usr/lib/python3.11/threading.py", 2)],
     "compile"),
    ([("run", "/usr/lib/python3.11/subprocess.py", 1)], "subprocess"),
    ([("set_trace", "/usr/lib/python3.11/pdb.py", 1)], "debugger"),
    ([("_find_and_load", "<frozen importlib._bootstrap>", 1)], "import"),
    ([("get", SITE + "requests/api.py", 1), ("recv_into", "/usr/lib/python3.11/socket.py", 2)], "network_io"),
])  # fmt: skip
def test_framework_calls_are_classified(frames, cls):
    assert fold([stack(0, [USER, *frames])], JOB).groups[0].cls == cls


def test_collective_that_calls_a_user_hook_does_not_classify_the_rank():
    hooked = [USER, ("barrier", C10D, 1), ("my_hook", "/home/user/job/hooks.py", 4)]
    assert fold([stack(0, hooked, syscall="clock_nanosleep")], JOB).groups[0].cls == "sleep"


def test_custom_frame_models_take_precedence():
    own = Model("collective", r"(^|/)ring\.py$", "receive_exactly")
    ring = [USER, ("Ring.receive", "/x/ring.py", 5), ("receive_exactly", "/x/ring.py", 9)]
    [group] = fold([stack(0, ring, syscall="recvfrom")], JOB, models=[own]).groups
    assert (group.cls, names(group)[-1]) == ("collective", "receive_exactly")


def test_frame_model_is_parsed_from_class_function_and_file():
    assert parse_model(r"p2p send_.* (^|/)x\.py$") == Model("p2p", r"(^|/)x\.py$", "send_.*")
    assert parse_model("collective my_reduce").file == ""
    with pytest.raises(BadModel, match="not a frame class"):
        parse_model("colective f")
    with pytest.raises(BadModel, match="regular expression"):
        parse_model("p2p ((")


def test_ranks_are_grouped_by_call_site():
    elsewhere = ("train_step", "/home/user/job/train.py", 41)
    found = fold([stack(r, [USER, elsewhere if r == 2 else STEP, REDUCE]) for r in range(4)], JOB)
    assert [group.ranks for group in found.groups] == [(0, 1, 3), (2,)]


def test_python_version_and_folder_do_not_split_a_group():
    newer = [USER, ("Trainer.step", "/scratch/a/job/train.py", 30), REDUCE]
    older = [USER, ("step", "/scratch/b/job/train.py", 30), ("all_reduce", C10D.replace("3.11", "3.10"), 3100)]
    [group] = fold([stack(0, newer), stack(1, older)], JOB).groups
    assert group.ranks == (0, 1)
    assert group.path[1].function == "Trainer.step", "the qualified name is shown if known"
    assert group.path[2].lines == (3100, 3252)


def test_stopped_rank_is_grouped_apart_from_waiters_at_the_same_call():
    found = fold([stack(r, [USER, STEP, REDUCE], proc_state="T" if r == 1 else "S") for r in range(3)], JOB)
    assert [(group.cls, group.ranks) for group in found.groups] == [("collective", (0, 2)), ("stopped", (1,))]
    assert [branch.cls for branch in found.trees["rank"][0].branches[0].branches] == ["collective", "stopped"]


def test_ranks_without_a_stack_are_shown_with_reason_and_remedy():
    denied = stack(1, None, status="no_permission", reason="not allowed", try_="use sudo", thread_name=None)
    found = fold([stack(0, [USER]), denied], JOB)
    assert (found.ranks, found.read) == ((0, 1), (0,))
    text = stacks_text(found)
    assert "◌ no permission: not allowed" in text
    assert "try: use sudo" in text


def test_a_rank_whose_stacks_differ_between_samples_is_not_unchanged():
    stacks = [stack(r, [USER, (*STEP[:2], 30 + sample * r)], sample=sample) for r in range(2) for sample in range(3)]
    found = fold(stacks, JOB)
    assert {rank for group in found.groups for rank in group.unchanged} == {0}


def test_single_sample_marks_no_rank_as_unchanged():
    assert fold([stack(0, [USER])], JOB).groups[0].unchanged == ()


def test_timed_out_sample_does_not_hide_an_earlier_one():
    late = stack(0, None, sample=1, status="timed_out", reason="late")
    assert fold([stack(0, [USER]), late], JOB).groups[0].status == "ok"


def test_all_threads_can_be_folded():
    other = stack(0, [("feed", "/home/user/job/feed.py", 3)], thread_id=2, thread_name="feeder")
    assert len(fold([stack(0, [USER]), other], JOB).groups) == 1
    assert len(fold([stack(0, [USER]), other], JOB, shape=Shape("all")).groups) == 2


def test_spread_is_measured_against_the_requested_instant():
    early = stack(0, [USER], node="a", at=1_000, looked=1_100, ended=5_000)
    late = stack(1, [USER], node="b", at=900_000, looked=900_700, ended=902_000)
    found = fold([early, late], JOB)
    assert (found.spread_ns, found.took_ns) == (600, 4_000)


def test_jobs_and_attempts_are_folded_apart():
    stacks = [stack(0, [USER]), stack(0, [STEP], job="k"), stack(0, [STEP], attempt=1)]
    assert jobs_of(stacks) == [("j", 0), ("j", 1), ("k", 0)]
    assert [len(fold(stacks, job).groups) for job in jobs_of(stacks)] == [1, 1, 1]


def test_text_output_is_a_tree_with_rank_ranges_and_classes():
    stuck = [USER, ("next_batch", "/home/user/job/loader.py", 61), ("load_shard", "/home/user/job/dataset.py", 88)]
    stacks = [stack(r, stuck if r == 5 else [USER, STEP, REDUCE], syscall="fsync") for r in range(8)]
    assert stacks_text(fold(stacks, JOB), width=90).splitlines()[1:] == [
        "▼ <module>  train.py:54                                              [0-7]",
        "  ▼ train_step  train.py:30                                          [0-4,6-7]",
        "      all_reduce  distributed_c10d.py:3252          collective       [0-4,6-7]",
        "  ▼ next_batch  loader.py:61                                         [5]",
        "      load_shard  dataset.py:88                     file io          [5]",
    ]


def test_the_order_of_records_does_not_matter():
    stacks = [stack(r, [USER, STEP, REDUCE] if r % 3 else [USER]) for r in range(12)]
    assert fold(stacks[::-1], JOB) == fold(stacks, JOB)


@pytest.mark.parametrize(("ranks", "text"), [([], "–"), ([3], "3"), ([0, 1, 2, 5], "0-2,5"), ([4, 2, 3, 3], "2-4")])
def test_ranks_are_written_as_ranges(ranks, text):
    assert fold_numbers(ranks) == text


def test_empty_stack_and_malformed_names_are_tolerated():
    odd = [("", "", 0), ("[bold]x[/]", "<string>", 1), ("a.b.", "/", 2)]
    assert Reader().trace(()).calls == ()
    assert "[bold]x[/]" in stacks_text(fold([stack(0, odd), stack(1, [], path=0)], JOB))


def test_four_thousand_ranks_fold_into_six_groups():
    deep = [(f"call_{depth}", f"/home/user/job/m{depth}.py", depth) for depth in range(39)]
    stacks = [stack(r, [*deep, (f"leaf_{r % 6}", "/home/user/job/leaf.py", r % 6)]) for r in range(4096)]
    began = time.perf_counter()
    found = fold(stacks, JOB)
    print(f"\n4,096 ranks × 40 frames × 6 groups in {time.perf_counter() - began:.3f} s")
    assert [group.processes for group in found.groups] == [683, 683, 683, 683, 682, 682]
    assert len(stacks_text(found).splitlines()) == 1 + 39 + 6


def test_ranks_that_differ_only_in_how_deep_they_recurse_are_one_group():
    def recursing(deep):
        return [USER, *[("walk", "/home/user/job/tree.py", 7)] * deep, ("leaf", "/home/user/job/tree.py", 9)]

    found = fold([stack(0, recursing(400)), stack(1, recursing(1000))], JOB)
    [group] = found.groups
    assert group.ranks == (0, 1)
    assert "a recursion" in stacks_text(found)


JOIN = ("join", "/usr/lib/python3.11/threading.py", 1119)
SAVE = ("save", SITE + "torch/serialization.py", 850)


class TestShapes:
    def test_blocking_view_follows_a_join_to_the_blocking_thread(self):
        waiting = stack(0, [USER, JOIN])
        saver = stack(0, [("write", "/home/user/job/save.py", 4), SAVE], thread_id=2, thread_name="saver")
        [main] = fold([waiting, saver], JOB).groups
        [blocking] = fold([waiting, saver], JOB, shape=Shape("blocking")).groups
        assert (main.cls, names(main)[-1]) == ("python_lock", "join")
        assert (blocking.cls, names(blocking)) == ("checkpoint_io", ["write", "save"])

    def test_blocking_view_keeps_the_main_thread_when_the_joined_thread_is_ambiguous(self):
        one = stack(0, [("run", "/home/user/job/a.py", 1), REDUCE], thread_id=2, thread_name="a")
        other = stack(0, [("run", "/home/user/job/b.py", 1), SAVE], thread_id=3, thread_name="b")
        [group] = fold([stack(0, [USER, JOIN]), one, other], JOB, shape=Shape("blocking")).groups
        assert group.cls == "python_lock"

    def test_blocking_view_shows_the_thread_that_trains_in_each_rank(self):
        run, late = ("run", "/home/user/job/a.py", 1), ("rebalance", "/home/user/job/a.py", 9)
        stacks = []
        for rank in range(4):
            stacks.append(stack(rank, [USER, JOIN]))
            stacks.append(stack(rank, [run, late if rank == 2 else REDUCE], thread_id=2, thread_name="trainer"))
        groups = fold(stacks, JOB, shape=Shape("blocking")).groups
        assert {group.ranks for group in groups} == {(0, 1, 3), (2,)}

    def test_function_grouping_merges_outer_lines_and_line_grouping_separates_them(self):
        stacks = [stack(rank, [("main", "/home/user/job/train.py", 10 + rank), STEP, REDUCE]) for rank in range(4)]
        assert [group.ranks for group in fold(stacks, JOB).groups] == [(0, 1, 2, 3)]
        by_line = fold(stacks, JOB, shape=Shape(granularity="line"))
        assert [group.ranks for group in by_line.groups] == [(0,), (1,), (2,), (3,)]
        assert [branch.step.lines for branch in by_line.trees["rank"]] == [(10,), (11,), (12,), (13,)]

    def test_locals_grouping_separates_ranks_at_the_same_line(self):
        stacks = [
            stack(rank, [USER, STEP, REDUCE], locals=(Local(1, "step", str(rank // 3)),), sample=0) for rank in range(4)
        ]
        assert len(fold(stacks, JOB, shape=Shape(granularity="line")).groups) == 1
        found = fold(stacks, JOB, shape=Shape(granularity="locals"))
        assert [(group.ranks, group.path[1].values) for group in found.groups] == [
            ((0, 1, 2), (("step", "0"),)), ((3,), (("step", "1"),)),
        ]  # fmt: skip
        [root] = found.trees["rank"]
        assert [branch.step.values for branch in root.branches] == [(("step", "0"),), (("step", "1"),)]

    def test_locals_of_omitted_wrappers_do_not_shift_to_other_frames(self):
        frames = [USER, ("wrapper", SITE + "torch/distributed/c10d_logger.py", 80), REDUCE]
        read = stack(0, frames, locals=(Local(1, "kwargs", "{}"), Local(2, "group", "None")))
        [group] = fold([read], JOB, shape=Shape(granularity="locals")).groups
        assert [step.values for step in group.path] == [(), (("group", "None"),)]

    def test_locals_are_kept_at_the_ends_of_a_folded_recursion(self):
        frames = [USER] + [("again", "/home/user/job/deep.py", 3)] * 1000
        read = stack(0, frames, locals=(Local(0, "first", "1"), Local(500, "middle", "2"), Local(1000, "last", "3")))
        [group] = fold([read], JOB, shape=Shape(granularity="locals")).groups
        assert [value for step in group.path for value in step.values] == [("first", "1"), ("last", "3")]

    def test_cli_options_match_the_available_stack_shapes(self):
        assert (options.THREADS, options.GRANULARITIES) == (THREADS, GRANULARITIES)
