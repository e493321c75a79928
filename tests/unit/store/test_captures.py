"""Captures in the store."""

import msgspec

from gconsole.core.store import Store, captures
from gconsole.records import Collective, PgStatus, Stack, StackFrame, decode, encode

TRAIN = (StackFrame("<module>", "/x/train.py", 9), StackFrame("Lock.acquire", "/x/lock.py", 3))


def a_stack(capture="c1", rank=0, path=1, frames=TRAIN, agent="a", **more):
    known = Stack(
        capture=capture, path=path, frames=frames, agent=agent, node="n", rx=5, job="j", rank=rank, pid=100 + rank,
        start_ticks=7, status="ok", sample=0,
    )  # fmt: skip
    return msgspec.structs.replace(known, **more)


def test_stack_record_survives_encoding_and_decoding():
    stack = a_stack(try_="sudo", thread_name="wörker [b]x", began=1, ended=2, proc_state="S")
    assert decode(encode(stack)) == stack


def test_frames_sent_once_are_shared_by_stacks_of_one_agent():
    store = Store()
    store.apply([a_stack(), a_stack(rank=1, frames=None), a_stack(rank=2, agent="b", frames=None)])
    capture = store.captures.get("c1")
    assert [stack.frames for stack in capture.stacks] == [TRAIN, TRAIN, None]
    assert capture.lost == 1, "frames of another agent are not used"


def test_only_the_latest_captures_are_kept():
    store = Store()
    store.apply([a_stack(f"c{number}") for number in range(captures.CAPTURES + 3)])
    assert store.captures.values()[0].id == "c3"
    assert len(store.captures) == captures.CAPTURES


def test_newest_captures_of_a_job_outlast_those_of_other_jobs():
    store = Store()
    store.apply([a_stack(f"a{number}") for number in range(captures.OF_JOB + 2)])
    store.apply([a_stack(f"b{number}", job="other") for number in range(3 * captures.CAPTURES)])
    kept = [capture.id for capture in store.captures.values()]
    assert kept[: captures.OF_JOB] == [f"a{number}" for number in range(2, captures.OF_JOB + 2)]
    assert len(kept) <= captures.CAPTURES + 1


def test_captures_of_many_jobs_have_a_limit_too():
    store = Store()
    store.apply([a_stack(f"c{number}", job=f"j{number}") for number in range(captures.MOST_CAPTURES + 3)])
    assert len(store.captures) == captures.MOST_CAPTURES


def test_capture_over_the_stack_limit_is_truncated_and_counts_dropped_stacks(monkeypatch):
    monkeypatch.setattr(captures, "STACKS", 4)
    store = Store()
    store.apply([a_stack("old", rank) for rank in range(3)])
    store.apply([a_stack("new", rank) for rank in range(6)])
    [capture] = store.captures.values()
    assert (capture.id, len(capture.stacks), capture.dropped) == ("new", 4, 2)


def test_a_record_without_a_stack_is_kept_with_its_reason():
    store = Store()
    bare = a_stack(path=None, frames=None, status="no_permission", reason="Permission denied")
    store.apply([bare])
    assert store.captures.get("c1").stacks == [bare]


def test_the_schema_of_a_stack_can_be_printed():
    assert "StackFrame" in msgspec.json.schema(Stack)["$defs"]


def an_operation(capture="c1", **more):
    name = "nccl:all_reduce"
    return Collective(capture=capture, source="fr_dump", job="j", rank=0, profiling_name=name, rx=5, **more)


def test_collectives_and_groups_are_kept_and_dropped_with_their_capture():
    store = Store()
    group = PgStatus(capture="c0", source="ras", job="j", rank=None, rx=5, op_counts={"AllReduce": 3})
    store.apply([an_operation("c0"), group])
    assert (store.captures.get("c0").collectives, store.captures.get("c0").groups) == ([an_operation("c0")], [group])
    store.apply([a_stack(f"c{number}") for number in range(1, captures.CAPTURES + 1)])
    assert store.captures.get("c0") is None


def test_capture_over_the_collective_limit_is_truncated_and_evicts_older_captures(monkeypatch):
    monkeypatch.setattr(captures, "FLIGHT", 4)
    store = Store()
    store.apply([an_operation("old") for _ in range(3)])
    store.apply([an_operation("new") for _ in range(6)])
    [capture] = store.captures.values()
    assert (capture.id, len(capture.collectives), capture.dropped) == ("new", 4, 2)


def test_earlier_operations_of_a_capture_are_apart_from_its_newest_and_count_too(monkeypatch):
    monkeypatch.setattr(captures, "FLIGHT", 4)
    store = Store()
    store.apply([an_operation("c", is_earlier=True) for _ in range(3)] + [an_operation("c") for _ in range(3)])
    [capture] = store.captures.values()
    assert (len(capture.earlier), len(capture.collectives), capture.dropped) == (3, 1, 2)


def test_collective_record_survives_encoding_and_decoding():
    operation = an_operation(process_group=("0", "default_pg"), input_sizes=((2, 3), ()), duration_ms=1.5)
    assert decode(encode(operation)) == operation
