"""GPU sampler on simulated GPUs."""

import pytest
from fake_proc import check

from gconsole_remote.nvml.simulate import NVMLError, SimulatedNvml
from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.gpu import GpuSampler
from gconsole_remote.samplers.topology import TopologySampler


def sampler_of(nvml):
    sampler = GpuSampler(Context(), nvml)
    sampler.start()
    return sampler


def records(sampler):
    """Records of one tick except those of links."""
    return [check(kind, fields) for kind, fields in sampler.tick(0.0) if kind not in ("gpu_link", "inventory")]


def test_gpu_info_is_sent_once_and_all_records_are_marked_simulated():
    sampler = sampler_of(SimulatedNvml(8, "node1"))

    first, second = records(sampler), records(sampler)

    assert [type(record).__name__ for record in first] == ["GpuInfo"] * 8 + ["Gpu"] * 8
    assert [record.index for record in second] == list(range(8))
    assert all(record.simulated for record in first + second)
    assert len({record.uuid for record in second}) == 8


def test_simulated_values_depend_only_on_host_and_time():
    def at(host, seconds):
        return records(sampler_of(SimulatedNvml(4, host, clock=lambda: seconds)))[4:]

    assert at("a", 5.0) == at("a", 5.0)
    assert {gpu.uuid for gpu in at("a", 5.0)}.isdisjoint(gpu.uuid for gpu in at("b", 5.0))
    assert [gpu.util_pct for gpu in at("a", 5.0)] != [gpu.util_pct for gpu in at("a", 50.0)]


@pytest.mark.slow
def test_simulated_values_stay_within_the_limits_of_the_gpu():
    for seconds in range(0, 4000, 37):
        info, gpu = records(sampler_of(SimulatedNvml(1, "node1", clock=lambda at=seconds: float(at))))
        assert 0 <= gpu.util_pct <= 100
        assert 0 < gpu.mem_used_bytes < info.mem_total_bytes
        assert 50 < gpu.power_w <= info.power_limit_w
        assert 20 < gpu.temp_c < 90
        assert 1000 < gpu.sm_clock_mhz <= 1980


def test_metric_that_the_driver_does_not_support_is_unknown():
    class OldNvml(SimulatedNvml):
        def nvmlDeviceGetPowerUsage(self, device):
            raise NVMLError("Not Supported")

    gpu = records(sampler_of(OldNvml(1, "node1")))[1]

    assert (gpu.power_w, gpu.temp_c is not None) == (None, True)


def test_driver_that_fails_to_start_is_unavailable_with_its_error_text():
    class BrokenNvml(SimulatedNvml):
        def nvmlInit(self):
            raise NVMLError("Driver/library version mismatch")

    with pytest.raises(Unavailable, match="version mismatch"):
        sampler_of(BrokenNvml(1, "node1"))


def test_simulated_gpus_link_only_to_each_other_and_to_numa_nodes():
    sampler = TopologySampler(Context(), SimulatedNvml(8, "node1"))
    sampler.start()

    links = [check(kind, fields) for kind, fields in sampler.tick(0.0) if kind == "link"]

    assert all(link.simulated for link in links)
    assert {link.a.kind for link in links} == {"gpu", "numa"}
    assert [len([link for link in links if link.type == kind]) for kind in ("nvlink", "pcie", "peer", "numa")] == [
        32, 8, 28, 1]  # fmt: skip
    assert all(link.version == 4 and link.up == link.links for link in links if link.type == "nvlink")
