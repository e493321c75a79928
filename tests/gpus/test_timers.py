"""GPU timers compared with the node's clock, through a fake libcuda (there is no GPU).

The fake follows the driver's ABI and uses CLOCK_REALTIME as the timer, plus a known offset.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cuda.library import CALLS, NAME, folder
from fake_proc import check

from gconsole_remote.clocks import gpu_timer
from gconsole_remote.nvml.simulate import SimulatedNvml
from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.clock import GpuTimerSampler

AHEAD_NS = 7_000_000


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder()))
    monkeypatch.setenv("CUDA_AHEAD_NS", str(AHEAD_NS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # the login's own setting must not hide GPUs


def read_timers(times: int = 1) -> list:
    sampler = GpuTimerSampler(Context())
    sampler.start()
    return [check(kind, fields) for tick in range(times) for kind, fields in sampler.tick(60.0 * tick)]


def test_true_timer_offset_is_within_the_bound_of_every_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_COUNT", "3")
    monkeypatch.setenv("CUDA_LOG", str(tmp_path / "log"))
    timers = read_timers()
    assert [timer.index for timer in timers] == [0, 1, 2]
    assert timers[2].uuid == "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a002"
    for timer in timers:
        assert timer.error is None and not timer.simulated
        assert abs(timer.ahead_ns - (timer.index + 1) * AHEAD_NS) <= timer.bound_ns
        assert timer.bound_ns >= timer.width_ns // 2 + timer.step_ns
        assert 1 <= timer.reads <= 64
    output = (tmp_path / "log").read_text().split("\n")
    assert output[:-1] == ["born 0", "gone 0", "born 1", "gone 1", "born 2", "gone 2"]  # every context was destroyed


def test_coarse_timer_step_is_measured_and_the_bound_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_STEP_NS", "1000000")
    [timer] = read_timers()
    assert timer.step_ns >= 1_000_000
    assert abs(timer.ahead_ns - AHEAD_NS) <= timer.bound_ns


def test_timer_drift_is_reported_from_the_second_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = read_timers(times=2)
    assert first.drift_ppm is None
    # CLOCK_REALTIME is the timer here; it may be slewed within the limits of a time service
    assert abs(second.drift_ppm) <= 500 + second.drift_bound_ppm


@pytest.mark.parametrize("call", CALLS)
def test_failing_cuda_call_is_reported_for_its_gpu_only(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setenv("CUDA_COUNT", "2")
    monkeypatch.setenv("CUDA_FAIL", f"{call}=46@1")
    if call in ("cuInit", "cuDeviceGetCount"):
        monkeypatch.setenv("CUDA_FAIL", f"{call}=46")
        with pytest.raises(Unavailable) as error:
            read_timers()
        assert error.value.name == "gpu_clock_failed"
        assert call in error.value.text and "busy or unavailable (46)" in error.value.text
        return
    good, bad = read_timers()
    assert good.error is None and good.ahead_ns is not None
    assert bad.error == f"{call}: CUDA-capable device(s) is/are busy or unavailable (46)"
    assert bad.ahead_ns is None and bad.bound_ns is None


def test_cuda_error_without_text_is_reported_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_FAIL", "cuCtxCreate_v2=719")
    assert [timer.error for timer in read_timers()] == ["cuCtxCreate_v2: error 719"]


@pytest.mark.parametrize(
    ("scenario", "name"),
    [({"CUDA_FAIL": "cuInit=100"}, "gpu_clock_none"), ({"CUDA_COUNT": "0"}, "gpu_clock_none"),
     ({"LD_LIBRARY_PATH": "/nowhere"}, "gpu_clock_no_cuda")],
)  # fmt: skip
def test_gpu_timers_are_unavailable_without_a_gpu_or_libcuda(
    monkeypatch: pytest.MonkeyPatch, scenario: dict[str, str], name: str
) -> None:
    for key, value in scenario.items():
        monkeypatch.setenv(key, value)
    if name == "gpu_clock_no_cuda" and _has_cuda():
        pytest.skip(f"this machine has a {NAME} of its own")
    with pytest.raises(Unavailable) as error:
        read_timers()
    assert error.value.name == name and error.value.try_


def _has_cuda() -> bool:
    output = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return NAME in output


def test_driver_crash_ends_only_the_helper_process_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DIE", "cuCtxCreate_v2")
    with pytest.raises(Unavailable) as error:
        read_timers()
    assert "ended with status -11" in error.value.text
    assert "libcuda" not in Path(f"/proc/{os.getpid()}/maps").read_text()  # the agent process itself never loads it


def test_timer_that_stops_working_is_an_error_record(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = GpuTimerSampler(Context())
    sampler.start()
    list(sampler.tick(0.0))
    monkeypatch.setenv("CUDA_FAIL", "cuInit=999")
    [(kind, fields)] = sampler.tick(60.0)
    assert "cuInit: error 999" in check(kind, fields).error


def test_simulated_gpus_have_timers_marked_simulated() -> None:
    sampler = GpuTimerSampler(Context(simulate_gpus=2), SimulatedNvml(2, "host"))
    sampler.start()
    timers = [check(kind, fields) for kind, fields in sampler.tick(0.0)]
    assert [timer.index for timer in timers] == [0, 1] and all(timer.simulated and timer.ahead_ns for timer in timers)


def test_ptx_kernel_has_both_entries_and_targets_sm_60() -> None:
    """The PTX text has both entries and targets all GPUs since Pascal; it is not executed here."""
    text = gpu_timer.PTX.decode("ascii")
    assert ".target sm_60" in text
    assert text.count(".visible .entry") == 2 and text.count("%globaltimer") == 3
    assert text.count("{") == text.count("}") == 2
