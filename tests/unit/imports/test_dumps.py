"""Import of folders of py-spy dumps: ranks and nodes from file names and text."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.core.store import Store
from gconsole.monitor.hang import verdicts
from gconsole.monitor.imports import py_spy_dumps
from gconsole.monitor.imports.py_spy_dumps import NoDumps, records_of
from gconsole.records import Rank, Stack

REDUCE = """\
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    step (train.py:30)
    <module> (train.py:54)
"""
LOCKED = """\
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    wait (threading.py:327)
    flush (train.py:40)
    <module> (train.py:54)
Thread 0x7F25CBA55740 (active+gil): "beat"
    beat (beat.py:5)
"""


def a_dump(path: Path, text: str, pid: int, seconds: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("{pid}", str(pid)))
    os.utime(path, (1_800_000_000 + seconds,) * 2)


def judged(folder: Path):
    store = Store()
    store.apply(records_of(folder).records)
    [verdict] = verdicts(store)
    return verdict


def a_hung_job(folder: Path, looks: int) -> None:
    for look in range(looks):
        for rank in range(4):
            text = LOCKED if rank == 2 else REDUCE
            a_dump(folder / f"node{rank // 2}.rank{rank}.{look}.txt", text, 100 + rank, look * 10)


def test_dumps_taken_ten_seconds_apart_prove_a_hang(tmp_path: Path) -> None:
    a_hung_job(tmp_path, 3)
    verdict = judged(tmp_path)
    assert (verdict.state, verdict.kind) == ("hung", "rank_missing")
    [culprit] = verdict.culprits
    assert (culprit.rank, culprit.node, culprit.pid, culprit.class_) == (2, "node1", 102, "python_lock")
    assert verdict.victims == (0, 1, 3)


def test_one_dump_per_rank_is_undecided_but_summarised(tmp_path: Path) -> None:
    a_hung_job(tmp_path, 1)
    verdict = judged(tmp_path)
    assert (verdict.state, verdict.culprits) == ("undecided", ())
    assert "rank 2" in verdict.summary


@pytest.mark.parametrize(("name", "rank", "node"), [
    ("rank3.txt", 3, "imported"),
    ("node7-rank_12.json.txt", 12, "node7"),
    ("gpu-a/rank=5.2.txt", 5, "gpu-a"),
    ("rank4/dump.txt", 4, "imported"),
    ("dump-of-17.txt", None, "imported"),
    ("frank3.txt", None, "imported"),
    ("rank1-rank2.txt", None, "imported"),
])  # fmt: skip
def test_rank_and_node_are_read_from_the_file_name(tmp_path: Path, name, rank, node) -> None:
    a_dump(tmp_path / name, REDUCE, 7)
    records = records_of(tmp_path).records
    [found] = [record for record in records if isinstance(record, Rank)]
    assert (found.rank, found.node if rank is not None else "imported") == (rank, node)


def test_json_dump_is_parsed_into_a_stack(tmp_path: Path) -> None:
    threads = [{
        "pid": 9, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 9, "active": False, "owns_gil": True,
        "frames": [{"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "module": None, "line": 3},
                   {"name": "<module>", "filename": "/x/train.py", "module": None, "line": 5}],
    }]  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps(threads))
    [stack] = [record for record in records_of(tmp_path).records if isinstance(record, Stack)]
    assert [frame.function for frame in stack.frames] == ["<module>", "wait"]
    assert (stack.gil, stack.thread_name, stack.rank) == (True, "MainThread", 0)


def test_files_that_are_not_dumps_are_listed_as_refused(tmp_path: Path) -> None:
    a_dump(tmp_path / "rank0.txt", REDUCE, 1)
    (tmp_path / "README").write_text("hello")
    (tmp_path / "rank1.json").write_text("[1, 2")
    assert sorted(name for name, _ in records_of(tmp_path).refused) == ["README", "rank1.json"]


def test_a_folder_without_a_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDumps, match="py-spy dump"):
        records_of(tmp_path)


@pytest.mark.slow
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_parsed_as_a_dump_or_rejected(text: str) -> None:
    try:
        found = py_spy_dumps._from_json(text) if text.lstrip().startswith("[") else py_spy_dumps._from_text(text)
    except ValueError:
        return
    assert all(one.threads for one in found)
