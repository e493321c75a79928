"""Each fault of the fake NVML gives the same finding from digests of the sampler's records as from these records."""

import pytest
from both_ways import PERIOD_S, BothWays
from nvml import scenarios
from test_findings import CHANGES, FAULTS, HEALTHY

from gconsole.config.sections import HealthConfig
from gconsole.records import GpuInfo, Node

LIMITS = HealthConfig(window_s=30)


def play_both_ways(sampler, seconds, play=None):
    """Feed some seconds of the sampler both ways; its first records identify the GPUs."""
    ways = None
    for second in range(seconds):
        if play is not None:
            sampler.scenario.change(play(second))
        sampler.now += 1.0
        facts = list(sampler.sampler.tick(sampler.now))
        if ways is None:
            names = GpuInfo.__struct_fields__
            infos = [GpuInfo(**{name: fields[name] for name in names if name in fields})
                     for kind, fields in facts if kind == "gpu_info"]  # fmt: skip
            ways = BothWays(LIMITS, infos)
            ways.add_state([Node(node="n1", agent="a", hostname="n1", boot_id="b", kernel="6.1", arch="x86_64",
                                 python="3.11", uid=0, pid=1, sample_interval_ms=1000)])  # fmt: skip
        ways.add(int(sampler.now), {"n1": facts})
    return ways


@pytest.mark.parametrize("id", FAULTS)
def test_each_gpu_fault_is_found_in_digests_as_in_samples(watch, id):
    lines, play, words = FAULTS[id]

    ways = play_both_ways(watch(scenarios.hgx_h100() | lines), 60, play)

    assert ways.check() == {id}
    (draft,) = ways.findings[-1][2].values()
    assert words.partition(" for ")[0] in draft.text


@pytest.mark.parametrize(("lines", "id", "words"), CHANGES)
def test_fault_of_a_working_gpu_is_found_in_digests_and_clears(watch, lines, id, words):
    sampler = watch(scenarios.hgx_h100())
    before = {key: sampler.scenario.lines.get(key.replace("gpu2", "gpu")) for key in lines}

    ways = play_both_ways(sampler, 80, lambda s: lines if 12 < s < 40 else before)

    assert ways.check() == {id}
    assert ways.findings[-1][2] == {}
    assert any(words in draft.text for _, _, digests in ways.findings for draft in digests.values())


@pytest.mark.parametrize("lines", HEALTHY)
def test_healthy_gpus_have_no_findings_in_digests(watch, lines):
    machine = {key: value for key, value in (scenarios.hgx_h100() | lines).items() if value != ""}

    ways = play_both_ways(watch(machine), 60)

    assert ways.check() == set()
    assert not any(digests for _, _, digests in ways.findings)
    assert ways.sent["digests"] < ways.sent["samples"] / (PERIOD_S - 2)
