"""Processes on GPUs, and their ranks."""

import os

import pytest
from nvml import scenarios


def stat(proc, pid, ppid, comm="python"):
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [0] * 50
    numbers[17] = 500 + pid  # start_ticks, the 22nd field
    (folder / "stat").write_text(f"{pid} ({comm}) S {ppid} " + " ".join(map(str, numbers[2:])) + "\n")


def on(pid, memory=1 << 30):
    return f"{pid} {memory}"


def test_gpu_process_has_memory_sm_share_and_rank(watch, tmp_path):
    stat(tmp_path / "proc", 700, 1)
    lines = scenarios.hgx_h100() | {"gpu2.compute.0": on(700), "gpu2.share.0": "700 66 10"}
    sampler = watch(lines, proc=tmp_path / "proc")
    sampler.ranks({"pid": 700, "rank": 10}, {"pid": 701, "rank": 11})

    (process,) = sampler.tick().gpu_process

    assert (process.index, process.pid, process.type, process.comm) == (2, 700, "compute", "python")
    assert (process.mem_used_bytes, process.sm_pct) == (1 << 30, 66.0)
    assert (process.job, process.rank, process.rank_source) == ("j", 10, "pid")


def test_gpu_process_of_a_rank_child_is_attributed_to_the_rank(watch, tmp_path):
    stat(tmp_path / "proc", 700, 1)
    stat(tmp_path / "proc", 750, 720)
    stat(tmp_path / "proc", 720, 700)
    sampler = watch(scenarios.hgx_h100() | {"gpu0.compute.0": on(750)}, proc=tmp_path / "proc")
    sampler.ranks({"pid": 700, "rank": 3})

    (process,) = sampler.tick().gpu_process

    assert (process.rank, process.rank_source) == (3, "parent")


def test_container_pid_maps_to_a_rank_only_when_unambiguous(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu0.compute.0": on(7), "gpu1.compute.0": on(9)})
    sampler.ranks({"pid": 700, "ns_pid": 7, "rank": 0}, {"pid": 800, "ns_pid": 9, "rank": 1},
                  {"pid": 801, "ns_pid": 9, "rank": 2})  # fmt: skip

    ranks = {process.pid: (process.rank, process.rank_source) for process in sampler.tick().gpu_process}

    assert ranks == {7: (0, "ns_pid"), 9: (None, None)}


def test_host_pid_maps_to_the_only_rank_on_that_gpu(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu5.compute.0": on(123456), "gpu6.compute.0": on(123457)})
    sampler.ranks({"pid": 12, "rank": 5, "gpu": "5"}, {"pid": 13, "rank": 6, "gpu": "6"},
                  {"pid": 14, "rank": 7, "gpu": "6"})  # fmt: skip

    ranks = {process.index: (process.rank, process.rank_source) for process in sampler.tick().gpu_process}

    assert ranks == {5: (5, "device"), 6: (None, None)}


def test_several_ranks_share_a_gpu_under_mps(watch, tmp_path):
    for pid in (700, 701):
        stat(tmp_path / "proc", pid, 1)
    stat(tmp_path / "proc", 600, 1, "nvidia-cuda-mps")
    lines = scenarios.hgx_h100() | {"gpu0.compute.0": on(600), "gpu0.mps.0": on(700), "gpu0.mps.1": on(701)}
    sampler = watch(lines, proc=tmp_path / "proc")
    sampler.ranks({"pid": 700, "rank": 0}, {"pid": 701, "rank": 1})

    processes = {process.pid: (process.type, process.rank) for process in sampler.tick().gpu_process}

    assert processes == {600: ("compute", None), 700: ("mps", 0), 701: ("mps", 1)}


def test_several_ranks_share_a_gpu_each_with_its_own_process_and_memory(watch, tmp_path):
    for pid in (700, 701):
        stat(tmp_path / "proc", pid, 1)
    lines = {"gpu0.compute.0": on(700, 3 << 30), "gpu0.compute.1": on(701, 5 << 30), "gpu0.compute.2": on(12)}
    sampler = watch(scenarios.hgx_h100() | lines, proc=tmp_path / "proc")
    sampler.ranks({"pid": 700, "rank": 0, "gpu": "0"}, {"pid": 701, "rank": 1, "gpu": "0"})

    owners = {process.pid: (process.rank, process.mem_used_bytes >> 30) for process in sampler.tick().gpu_process}

    assert owners == {700: (0, 3), 701: (1, 5), 12: (None, 1)}  # the third has no known owner


def test_mps_server_has_no_rank_even_with_one_rank_on_the_gpu(watch, tmp_path):
    stat(tmp_path / "proc", 600, 1, "nvidia-cuda-mps")
    sampler = watch(scenarios.hgx_h100() | {"gpu0.compute.0": on(600)}, proc=tmp_path / "proc")
    sampler.ranks({"pid": 700, "rank": 0, "gpu": "0"})

    (process,) = sampler.tick().gpu_process

    assert (process.comm, process.rank) == ("nvidia-cuda-mps", None)


def test_gpu_process_is_sent_again_only_on_change_and_exit(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu0.compute.0": on(77)})
    sampler.tick()
    repeated = [sampler.tick() for _ in range(4)]
    sampler.scenario.change({"gpu0.compute.0": on(77, 2 << 30)})
    grown = [process for _ in range(2) for process in sampler.tick().gpu_process]
    sampler.scenario.change(drop=("gpu0.compute.0",))
    gone = [process for _ in range(2) for process in sampler.tick().gpu_process]

    assert not any(records.gpu_process for records in repeated)
    assert [process.mem_used_bytes for process in grown] == [2 << 30]
    assert [(process.pid, process.gone) for process in gone] == [(77, True)]


def test_unreadable_process_list_is_listed_with_a_reason(watch):
    records = watch(scenarios.hgx_h100() | {"fail.nvmlDeviceGetComputeRunningProcesses_v3": 4}).tick()

    assert records.gpu_info[0].unsupported["gpu_process.compute"] == "Insufficient Permissions"
    assert os.getpid() not in {process.pid for process in records.gpu_process}


@pytest.mark.parametrize("lines", [{}, {"gpu.share.none": 1}], ids=["not found", "success"])
def test_idle_gpu_has_no_reason_why_the_share_of_processes_is_unknown(watch, lines):
    records = watch(scenarios.hgx_h100() | lines).tick()

    assert "gpu_process.sm_pct" not in records.gpu_info[0].unsupported
