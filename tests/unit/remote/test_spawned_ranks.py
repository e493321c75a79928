"""Ranks that no environment variable numbers: their variables, and real processes of multiprocessing."""

import os
import subprocess
import sys
import threading
import time
import uuid
from types import SimpleNamespace

import pytest
from fake_proc import check
from live_ranks import Blobs

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.processes import ProcessSampler
from gconsole_remote.samplers.spawned_ranks import (
    SpawnedRankSampler,
    is_this_machine,
    rank_and_size,
    spawn_count,
    spawn_index,
)

JOB, LIBRARY = "/home/user/train.py", "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"
FRAMES = (
    ("<module>", "<string>", 1, False),
    ("_wrap", LIBRARY, 90, False),
    ("demo", JOB, 20, False),
    ("step", JOB, 9, False),
)


def is_library(file):
    return "site-packages" in file


@pytest.mark.parametrize(
    ("variables", "pair"),
    [
        ([(2, "rank", "3"), (2, "world_size", "8")], (3, 8)),
        ([(2, "rank", "0"), (2, "size", "2")], (0, 2)),
        ([(2, "rank", "3"), (2, "world_size", "8"), (3, "rank", "64"), (3, "size", "128")], (3, 8)),
        ([(2, "rank", "3")], None),
        ([(2, "rank", "3"), (3, "world_size", "8")], None),
        ([(2, "rank", "8"), (2, "world_size", "8")], None),
        ([(2, "rank", "-1"), (2, "world_size", "8")], None),
        ([(2, "rank", "²"), (2, "world_size", "8")], None),
        ([(2, "rank", "None"), (2, "world_size", "8")], None),
        ([(0, "rank", "1"), (0, "world_size", "2")], None),
        ([(1, "rank", "1"), (1, "world_size", "2")], None),
        ([(9, "rank", "1"), (9, "world_size", "2")], (1, 2)),
    ],
    ids=["tutorial", "size", "the outermost", "no size", "in two functions", "too large", "negative", "no digit",
         "no number", "loop of the parent", "of a library", "beyond the frames"],
)  # fmt: skip
def test_rank_and_size_are_those_of_one_function_of_the_job(variables, pair):
    assert rank_and_size(FRAMES, variables, is_library) == pair


def test_index_and_count_of_torch_spawn_are_variables_of_its_functions_only():
    parent = (("<module>", JOB, 30, False), ("spawn", LIBRARY, 280, False), ("start_processes", LIBRARY, 240, False))
    assert spawn_index(FRAMES, [(1, "i", "5")]) == 5
    assert spawn_index(FRAMES, [(2, "i", "5")]) is None
    assert spawn_count(parent, [(2, "nprocs", "8")]) == 8
    assert spawn_count(FRAMES, [(2, "nprocs", "8")]) is None


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_master_means_that_all_ranks_are_on_this_node(address):
    assert is_this_machine(address)
    assert not is_this_machine("10.0.0.1")


SCRIPT = """
import multiprocessing, os, sys, time

def work(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29517"
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    time.sleep(600)

if __name__ == "__main__":
    rank, size = 0, 3
    for rank in range(size):
        multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(rank, size)).start()
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_multiprocessing_are_ranks_by_their_variables(method, tmp_path):
    script, token = tmp_path / "train.py", uuid.uuid4().hex
    script.write_text(SCRIPT)
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}, "OF_TEST": token}
    job = subprocess.Popen(
        [sys.executable, str(script), method], stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        for _ in range(3):
            assert job.stdout.readline() == "ready\n"
        context = Context(process_filter=("OF_TEST", token))
        agent = SimpleNamespace(blobs=Blobs(), ended=threading.Event())
        processes, numbers = ProcessSampler(context), SpawnedRankSampler(context, agent)
        processes.start()
        ranks, deadline = {}, time.monotonic() + 60
        while len(ranks) < 3:
            for kind, fields in processes.tick(time.monotonic()):
                if kind == "rank":
                    record = check(kind, fields)
                    ranks[record.pid] = record
            list(numbers.tick(time.monotonic()))
            assert time.monotonic() < deadline, ranks
            time.sleep(1.0)
        assert sorted((rank.rank, rank.world_size, rank.source) for rank in ranks.values()) == [
            (number, 3, "stack") for number in range(3)
        ]
        assert len({rank.job for rank in ranks.values()}) == 1
        assert job.pid not in ranks, "the parent's loop has a variable of that name, too"
    finally:
        os.killpg(job.pid, 9)
        job.wait()
        job.stdout.close()
