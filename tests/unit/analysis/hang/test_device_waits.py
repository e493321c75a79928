"""Ranks that wait for their GPU: the rank elsewhere is named; figures of GPUs and collectives raise the confidence."""

import pytest
from analysis.hang.scenes import LOADER, MAIN, SITE, Scene, at, names, own

from gconsole.analysis.hang.gpu_activity import GpuFigures, gpu_states
from gconsole.analysis.hang.verdict import Absence, CollectiveEvidence
from gconsole.records import StackFrame

SYNC = (MAIN, at(40), StackFrame("synchronize", SITE + "torch/cuda/__init__.py", 900))
SPINS = {"util_pct": 100.0, "power_w": 140.0}
COMPUTES = {"util_pct": 100.0, "power_w": 690.0}


def scene(*late, path=LOADER, **more):
    made = Scene()
    for rank in range(4):
        if rank in late:
            made.rank(rank, path, gpu="0", **more)
        else:
            made.rank(rank, SYNC, state="R", syscall=None, wakes=1, gpu="0")
    return made


def gpus(*states):
    return {rank: GpuFigures(f"node1:gpu{rank}", **state) for rank, state in enumerate(states)}


def test_rank_elsewhere_is_likely_the_culprit_of_ranks_that_wait_for_their_device():
    verdict = scene(2).verdict()
    assert (verdict.state, names(verdict), verdict.confidence) == ("hung", [(2, "dataloader")], "likely")


def test_gpus_busy_at_a_fraction_of_the_power_show_that_the_others_are_in_a_collective():
    made = scene(2)
    made.gpus = gpus(SPINS, SPINS, {"util_pct": 0.0, "power_w": 690.0}, SPINS)
    assert made.verdict().confidence == "certain"


def test_collectives_that_the_rank_has_not_entered_raise_the_confidence():
    made = scene(2)
    absence = Absence("default", "all_reduce", 7, (2,), (0, 1, 3))
    made.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (absence,)),)
    verdict = made.verdict()
    assert (names(verdict), verdict.confidence) == ([(2, "dataloader")], "certain")


def test_job_whose_ranks_all_wait_for_their_device_names_no_rank_without_figures():
    verdict = scene().verdict()
    assert (names(verdict), verdict.state in ("undecided", "moving")) == ([], True)


def test_ranks_asleep_in_their_devices_for_longer_than_a_step_stand_still():
    made = Scene()
    for rank in range(4):
        made.rank(rank, SYNC, gpu="0", thread_state="S", thread_slept_s=41.0)
    verdict = made.verdict()
    assert (verdict.state, verdict.stalled, names(verdict)) == ("undecided", True, [])


def test_ranks_asleep_in_their_devices_for_a_long_step_do_not():
    made = Scene()
    for rank in range(4):
        made.rank(rank, SYNC, gpu="0", thread_state="S", thread_slept_s=12.0)
    assert not made.verdict().stalled


def test_gpus_that_all_spin_for_longer_than_a_step_stand_still():
    made = Scene(looks=80)
    for rank in range(4):
        made.rank(rank, SYNC, state="R", syscall=None, wakes=1, gpu="0")
    spins = {**SPINS, "sm_pct": 12.0, "dram_pct": 0.0}
    made.gpus = gpus(spins, spins, spins, spins)
    assert made.verdict().stalled


def test_gpus_that_spin_while_data_moves_over_nvlink_or_rdma_are_in_a_collective_that_progresses():
    made = Scene(looks=80)
    for rank in range(4):
        made.rank(rank, SYNC, state="R", syscall=None, wakes=1, gpu="0")
    spins = {**SPINS, "sm_pct": 12.0, "dram_pct": 0.0, "nvlink_bytes_s": 0.0}
    made.gpus = gpus(spins, spins, {**spins, "nvlink_bytes_s": 42e9}, spins)
    assert not made.verdict().stalled
    made.gpus = gpus(*[{**spins, "rdma_bytes_s": 11e9}] * 4)
    assert not made.verdict().stalled
    made.gpus = gpus(*[{**spins, "rdma_bytes_s": 900.0}] * 4)
    verdict = made.verdict()
    assert verdict.stalled
    line = "node1:gpu0 rank 0: 100 % utilisation, 140 W (highest of the job: 140 W), 0 B/s over NVLink, "
    assert f"{line}900 B/s over RDMA ports of its node" in verdict.evidence


def test_rank_that_changes_its_place_is_not_named():
    made = Scene()
    for rank in (0, 1, 3):
        made.rank(rank, SYNC, state="R", syscall=None, wakes=1, gpu="0")
    made.rank(2, SYNC, own("log", 9), SYNC, own("forward", 3), state="R", wakes=3, gpu="0")
    assert names(made.verdict()) == []


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ((COMPUTES, SPINS, SPINS), ["computing", "spinning", "spinning"]),
        ((COMPUTES, COMPUTES, COMPUTES), ["unknown", "unknown", "unknown"]),
        ((SPINS, SPINS, SPINS), ["unknown", "unknown", "unknown"]),
        (({"util_pct": 0.0, "power_w": 90.0}, COMPUTES), ["idle", "computing"]),
        (({"util_pct": 60.0, "power_w": 300.0}, COMPUTES), ["unknown", "computing"]),
        (({"util_pct": 100.0, "power_w": 400.0}, COMPUTES, SPINS), ["unknown", "computing", "spinning"]),
        (({**SPINS, "sm_pct": 8.0, "dram_pct": 0.5}, SPINS), ["spinning", "unknown"]),
        (({**SPINS, "sm_pct": 95.0, "dram_pct": 50.0}, SPINS), ["computing", "unknown"]),
        (({"util_pct": 100.0}, {"util_pct": 100.0}), ["unknown", "unknown"]),
        (({}, COMPUTES, SPINS), ["unknown", "computing", "spinning"]),
    ],
    ids=[
        "one computes",
        "all compute",
        "all spin",
        "idle",
        "half busy",
        "between",
        "polls",
        "works",
        "no power",
        "none",
    ],
)
def test_gpu_state_needs_utilisation_and_power_or_activity_compared_with_the_others(figures, expected):
    assert list(gpu_states(gpus(*figures)).values()) == expected
