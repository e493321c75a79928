"""Export of a capture's stacks in every format, from ordinary and from hostile stacks."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from gconsole.analysis.stacks.fold import PLAIN, Shape
from gconsole.cli.options import FORMATS
from gconsole.core.store import CaptureNow
from gconsole.records import Local, Stack, StackFrame
from gconsole.session.export.stacks import SPEEDSCOPE_SCHEMA, STACK_FORMATS

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER, REDUCE = StackFrame("<module>", "/job/train.py", 54), StackFrame("all_reduce", C10D, 3252)
STEP = StackFrame("step", "/job/train.py", 30)
HOSTILE = StackFrame('a"b\\ {x|<y>} \x1b[31m;\n', '/tmp/"weird" \\n;dir/€.py', 7)
#: Units and types in speedscope's published file-format-schema.json.
UNITS = ("bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds")


def a_stack(rank: int | None, *frames: StackFrame, **more: Any) -> Stack:
    known: dict[str, Any] = {
        "capture": "c", "sample": 0, "job": "j", "node": "n1", "rank": rank, "pid": 100 + (rank or 0), "start_ticks": 1,
        "status": "ok", "thread_id": 1, "thread_name": "MainThread", "proc_state": "S", "syscall": "futex",
        "frames": frames or None,
    }  # fmt: skip
    return Stack(**{**known, **more})


def a_capture(*stacks: Stack, id: str = "c") -> CaptureNow:
    return CaptureNow(
        id, 1, 2, list(stacks), ranks={(stack.node, stack.pid) for stack in stacks if stack.role == "rank"}
    )


def ordinary() -> CaptureNow:
    return a_capture(
        *(a_stack(rank, USER, STEP, REDUCE, sample=sample) for sample in range(3) for rank in (0, 1, 3)),
        *(a_stack(2, USER, StackFrame("load", "/job/loader.py", 9), sample=sample) for sample in range(3)),
        a_stack(2, StackFrame("_worker_loop", "/job/w.py", 1), role="dataloader_worker", pid=900),
        a_stack(4, status="no_permission", reason="not mine", thread_name=None, thread_id=None),
        a_stack(2, USER, StackFrame("nanosleep", "libc.so", 0, native=True), native=True, mode="blocking", sample=3),
    )  # fmt: skip


def hostile() -> CaptureNow:
    deep = [StackFrame("again", "/job/deep.py", 3)] * 1000
    return a_capture(
        a_stack(0, USER, HOSTILE, job='j"\\\n<b>'), a_stack(1, *deep, job='j"\\\n<b>'),
        a_stack(None, StackFrame("", "", 0), job='j"\\\n<b>', thread_name=None),
    )  # fmt: skip


def written(form: str, *captures: CaptureNow, shape: Shape = PLAIN) -> str:
    return STACK_FORMATS[form].write(captures, (), shape)


def check_speedscope(text: str) -> dict[str, Any]:
    """Check the document against speedscope's schema and the constraints of the program beyond it."""
    document = json.loads(text)
    assert document["$schema"] == SPEEDSCOPE_SCHEMA
    assert set(document) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    frames = document["shared"]["frames"]
    for frame in frames:
        assert isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame.get("file", ""), str) and isinstance(frame.get("line", 1), int)
    assert len({json.dumps(frame, sort_keys=True) for frame in frames}) == len(frames), "frames are unique"
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled" and profile["unit"] in UNITS and isinstance(profile["name"], str)
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)
    assert 0 <= document["activeProfileIndex"] < len(document["profiles"])
    return document


def test_command_line_accepts_every_stack_format() -> None:
    assert sorted(FORMATS) == sorted(STACK_FORMATS)


class TestSpeedscope:
    def test_each_rank_has_weight_one_and_shares_frames_with_equal_stacks(self) -> None:
        document = check_speedscope(written("speedscope", ordinary()))
        last, every = document["profiles"]
        names = [frame["name"] for frame in document["shared"]["frames"]]
        shown = [[names[index] for index in sample] for sample in last["samples"]]
        assert shown[0] == ["<module>", "step", "all_reduce", "rank 0"]
        assert shown[2] == ["<module>", "load", "rank 2"]
        assert len(shown) == 4, "ranks with a stack, each once"
        assert len(every["samples"]) == 13, "every thread in every sample, workers with their role"
        assert "dataloader worker" in names and "nanosleep" not in names

    def test_hostile_stacks_keep_to_the_schema(self) -> None:
        check_speedscope(written("speedscope", hostile()))

    def test_capture_without_stacks_produces_a_schema_valid_document(self) -> None:
        check_speedscope(written("speedscope", a_capture(a_stack(0, status="gone", thread_name=None))))


@pytest.mark.parametrize("made", [ordinary, hostile, a_capture], ids=["ordinary", "hostile", "empty"])
def test_graphviz_draws_the_tree(made: Any) -> None:
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("Graphviz (dot) is not installed")
    done = subprocess.run([dot, "-Tplain"], input=written("dot", made()), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    if made is ordinary:
        boxes = [line for line in done.stdout.splitlines() if line.startswith("node ")]
        assert len(boxes) == 5, "<module>, step, all_reduce, load, and the worker"
        assert "[0-1,3] (3)" in done.stdout and "_worker_loop" in done.stdout


def test_stack_formats_use_the_newest_capture_with_all_ranks() -> None:
    early = a_capture(*(a_stack(rank, USER, REDUCE, capture="c0") for rank in range(4)), id="c0")
    part = a_capture(a_stack(2, USER, StackFrame("odd", "/job/x.py", 1), capture="c2"), id="c2")
    for form in ("folded", "speedscope", "dot", "text"):
        assert "odd" not in written(form, early, part), form
    assert "[0-3]" in written("text", early, part)


def test_locals_appear_in_the_tree_only_when_ranks_are_grouped_by_them() -> None:
    stacks = [a_stack(rank, USER, REDUCE, locals=(Local(0, "step", str(7 + rank // 2)),)) for rank in range(4)]
    plain, apart = (
        written("text", a_capture(*stacks)),
        written("text", a_capture(*stacks), shape=Shape(granularity="locals")),
    )
    assert "4 ranks, 1 group " in plain and "step" not in plain
    assert "4 ranks, 2 groups, by variables" in apart
    assert "step = 7" in apart and "step = 8" in apart and "[2-3]" in apart
    tree = written("dot", a_capture(*stacks), shape=Shape(granularity="locals"))
    assert "step = 8" in tree
    [line] = json.loads(written("json", a_capture(*stacks), shape=Shape(granularity="locals")))
    assert {json.dumps(group["path"][0]["values"]) for group in line["groups"]} == {'{"step": "7"}', '{"step": "8"}'}


def test_ranks_with_unnamed_threads_are_folded_into_one_line() -> None:
    stacks = [a_stack(rank, USER, REDUCE, thread_name=None, os_thread_id=100 + rank) for rank in (0, 1)]
    [line] = written("folded", a_capture(*stacks)).splitlines()
    assert line.startswith("rank [0-1];MainThread;<module>") and line.endswith(" 2")
