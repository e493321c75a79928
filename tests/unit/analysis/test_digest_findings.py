"""Health findings made from digests are those made from every sample, at most a period later."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from both_ways import PERIOD_S, SECOND, BothWays, order_for
from examples import examples

from gconsole.config.sections import HealthConfig
from gconsole.records import GpuInfo, GpuProcess, Inventory, Node
from gconsole_remote.agent.digests import Digester, Order
from gconsole_remote.agent.requests import VERBS, RequestError

#: Buckets of the window are two periods long, as with the default window of 60 s.
LIMITS = HealthConfig(window_s=60.0)
GPUS, NODES = 4, ("n1", "n2")
GIB = 1 << 30
Play = Callable[[int, dict[str, Any]], None]
#: Seconds. Periods of a cluster on the screen, and of idle nodes of another one.
PERIODS = (PERIOD_S, 10)
#: GPU n1:3, on which faults are played; 7 others stay healthy.
SICK = ("n1", 3)


@pytest.fixture(params=PERIODS, ids="{} s".format, autouse=True)
def period_s(request, monkeypatch):
    """What is played is played with digests of each period."""
    monkeypatch.setattr("both_ways.PERIOD_S", request.param)


def infos(limit_c: float = 90.0) -> list[GpuInfo]:
    return [
        GpuInfo(node=node, agent="a", index=index, uuid=f"{node}-{index}", name="H100", mem_total_bytes=80 * GIB,
                temp_slowdown_c=limit_c, max_sm_clock_mhz=1980.0, power_limit_w=700.0, pcie_gen=5, pcie_gen_max=5,
                pcie_width=16, pcie_width_max=16)
        for node in NODES for index in range(GPUS)
    ]  # fmt: skip


def both_ways(limit_c: float = 90.0) -> BothWays:
    """Both ways, with the identities of a fleet whose GPUs work for one job."""
    ways = BothWays(LIMITS, infos(limit_c))
    ways.add_state([
        Node(node=node, agent="a", hostname=node, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0,
             pid=1, sample_interval_ms=1000)
        for node in NODES
    ])  # fmt: skip
    ways.add_state(infos(limit_c))
    ways.add_state([Inventory(node=node, agent="a", of="gpu", count=GPUS, installed=GPUS) for node in NODES])
    ways.add_state([
        GpuProcess(node=node, agent="a", index=index, uuid=f"{node}-{index}", pid=100 + index, type="compute",
                   job="llama", attempt=0, rank=GPUS * number + index)
        for number, node in enumerate(NODES) for index in range(GPUS)
    ])  # fmt: skip
    return ways


def busy_gpu(draw: random.Random, node: str, index: int, second: int) -> dict[str, Any]:
    """The fields of a GPU that trains: figures that move, and a power cap that comes and goes."""
    is_capped = draw.random() < 0.4
    return {
        "index": index, "uuid": f"{node}-{index}", "util_pct": draw.choice((97.0, 99.0, 100.0)),
        "power_w": draw.choice((600.0, 640.0, 680.0)), "sm_clock_mhz": draw.choice((1890.0, 1920.0, 1980.0)),
        "temp_c": draw.choice((61.0, 62.0, 63.0)), "mem_temp_c": 70.0, "mem_used_bytes": draw.choice((40, 44)) * GIB,
        "clocks_event_reasons": ("sw_power_cap",) if is_capped else (),
        "clocks_event_share_pct": {"hw_slowdown": 0.0, "sw_thermal_slowdown": 0.0, "sw_power_cap": 9.0 * is_capped},
        "ecc_uncorrected_volatile": 0, "remap_pending": False, "recovery_action": "none", "energy_j": 600.0 * second,
    }  # fmt: skip


def nic(node: str, second: int) -> dict[str, Any]:
    return {"device": "mlx5_0", "port": 1, "rdma": True, "state": "active", "rx_bytes_s": 1e9 + second}


def run(ways: BothWays, seconds: int, draw: random.Random, play: Play, play_nic: Play = lambda second, fields: None):
    for second in range(100, 100 + seconds):
        facts: dict[str, list[tuple[str, dict[str, Any]]]] = {node: [] for node in NODES}
        for node in NODES:
            for index in range(GPUS):
                fields = busy_gpu(draw, node, index, second)
                if (node, index) == SICK:
                    play(second - 100, fields)
                facts[node].append(("gpu", fields))
            port = nic(node, second)
            if node == SICK[0]:
                play_nic(second - 100, port)
            facts[node].append(("nic", port))
        ways.add(second, facts)


def throttled(second: int, fields: dict[str, Any], share: float = 100.0) -> None:
    reason = "hw_slowdown"
    fields["clocks_event_share_pct"][reason] = share
    fields["clocks_event_reasons"] = (*fields["clocks_event_reasons"], reason)


def idle(fields: dict[str, Any]) -> None:
    fields.update(util_pct=0.0, power_w=90.0, sm_clock_mhz=345.0, clocks_event_reasons=("gpu_idle",))


#: Changes of one GPU by second, and the finding they make.
FAULTS: dict[str, Play] = {
    "gpu_throttle": lambda s, fields: throttled(s, fields) if 30 <= s < 61 else None,
    "gpu_throttle partly": lambda s, fields: throttled(s, fields, 40.0 + s % 3) if s >= 33 else None,
    "gpu_hot": lambda s, fields: fields.update(temp_c=88.0 + s % 3) if 31 <= s < 52 else None,
    "gpu_hot margin": lambda s, fields: fields.update(temp_margin_c=3.0 if 31 <= s < 52 else 3.5),
    "gpu_hot memory": lambda s, fields: fields.update(mem_temp_c=105.0 + s % 2) if 32 <= s < 58 else None,
    "gpu_slow_clock": lambda s, fields: fields.update(
        sm_clock_mhz=700.0 + s % 5, clocks_event_reasons=(), clocks_event_share_pct={}
    ) if s >= 33 else None,
    "gpu_straggler": lambda s, fields: fields.update(sm_clock_mhz=1500.0 + 3 * (s % 7)) if s >= 34 else None,
    "gpu_straggler power": lambda s, fields: fields.update(power_w=300.0 + 5 * (s % 3)) if s >= 34 else None,
    "gpu_memory_imbalance": lambda s, fields: fields.update(mem_used_bytes=75 * GIB) if s == 41 else None,
    "gpu_ecc": lambda s, fields: fields.update(ecc_uncorrected_volatile=2) if s >= 43 else None,
    "gpu_ecc corrected": lambda s, fields: fields.update(
        grown={"ecc_corrected_volatile": 7}
    ) if s in (41, 43) else None,
    "gpu_remap_pending": lambda s, fields: fields.update(remap_pending=True) if s >= 42 else None,
    "gpu_xid": lambda s, fields: fields.update(recovery_action="gpu_reset") if s >= 44 else None,
    "pcie_degraded": lambda s, fields: fields.update(grown={"pcie_replays": 5}) if s in (41, 42, 48) else None,
    "nvlink_errors": lambda s, fields: fields.update(grown={"nvlink_replay_errors": 1}) if s == 43 else None,
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_in_digests_as_in_samples(fault):
    ways = both_ways()

    run(ways, 150, random.Random(1), FAULTS[fault])

    assert ways.check() - {"gpu_straggler"} == {fault.split()[0]} - {"gpu_straggler"}
    assert ("gpu_straggler" in ways.check()) == (fault.split()[0] in ("gpu_straggler", "gpu_slow_clock"))
    assert ways.sent["digests"] < 0.35 * ways.sent["samples"]


@pytest.mark.parametrize("fault", ["gpu_hot", "gpu_hot margin", "gpu_hot memory", "gpu_slow_clock"])
def test_what_must_last_some_seconds_is_found_as_early_as_with_every_sample(fault):
    ways = both_ways()

    run(ways, 60, random.Random(3), FAULTS[fault])

    key = next(key for _, samples, _ in ways.findings for key in samples if key[0] == fault.split()[0])
    seconds = [next(second for second, *both in ways.findings if key in both[way]) for way in (0, 1)]
    assert seconds[1] == seconds[0]


def test_errors_and_state_of_a_port_are_found_in_digests_as_in_samples():
    def play(second: int, port: dict[str, Any]) -> None:
        if second in (40, 41, 47):
            port["grown"] = {"symbol_errors": 12}
        if 90 <= second < 97:
            port["state"] = "down"

    ways = both_ways()

    run(ways, 150, random.Random(2), lambda second, fields: None, play)

    assert ways.check() == {"nic_errors", "nic_down"}


@pytest.mark.parametrize("seed", range(examples(20)))
def test_healthy_fleet_has_no_finding_in_digests(seed):
    ways = both_ways()

    run(ways, 240, random.Random(seed), lambda second, fields: idle(fields) if second // 30 % 2 else None)

    assert ways.check() == set()
    assert all(not digests for _, _, digests in ways.findings)
    assert ways.sent["digests"] < 0.25 * ways.sent["samples"]


def test_gpu_that_idles_every_other_second_is_judged_as_by_samples():
    """The worst case: each sample is on the other side of a threshold, and is sent."""
    ways = both_ways()

    run(ways, 90, random.Random(4), lambda second, fields: idle(fields) if second % 2 else throttled(second, fields))

    assert ways.check() == {"gpu_throttle"}


@pytest.mark.parametrize("seed", range(examples(25)))
def test_random_faults_are_found_in_digests_as_in_samples(seed):
    draw = random.Random(seed)
    plays = list(FAULTS.values())
    spans = [(draw.randrange(20, 200), draw.choice((1, 2, 4, 7, 20, 60)), draw.choice(plays)) for _ in range(8)]

    def play(second: int, fields: dict[str, Any]) -> None:
        if second // 23 % 4 == seed % 4:
            idle(fields)
        for begin, length, change in spans:
            if begin <= second < begin + length:
                change(draw.choice((40, 41, 43, 50)), fields)

    ways = both_ways(limit_c=draw.choice((90.0, 70.0)))
    run(ways, 280, draw, play)

    ways.check()


def test_digest_that_mixes_samples_reports_no_condition():
    """Thresholds may be old: what does not hold in all samples does not hold, and is no work."""
    ways = both_ways()
    run(ways, 10, random.Random(5), lambda second, fields: None)
    gpu = ways.digests.nodes["n1"].gpus["n1-3"]
    busy_s = gpu.window.total("busy")
    mixed = msgspec.structs.replace(
        gpu.gpu, mono=gpu.gpu.mono + 5 * SECOND, samples=5, first_mono=gpu.gpu.mono + SECOND, temp_c=95.0,
        util_pct=99.0, low={"temp_c": 60.0, "util_pct": 3.0}, mean={}, high={},
    )  # fmt: skip
    ways.digests.add([mixed])

    assert gpu.since_s == {} and gpu.busy_since_s is None
    assert gpu.window.total("busy") == busy_s


class TestDigester:
    """What the agent sends in place of samples."""

    @pytest.fixture(autouse=True)
    def period_s(self):
        """Its examples are of one period."""

    def digester(self, kinds: tuple[str, ...] = ("gpu", "host")) -> Digester:
        self.now = 100 * SECOND
        return Digester(order_for(infos(), LIMITS, kinds), lambda: self.now, lambda: self.now)

    def ticks(self, digester: Digester, values: list[float], name: str = "power_w") -> list[list[tuple[str, Any]]]:
        sent = []
        for value in values:
            sent.append(digester.digest([("gpu", {"uuid": "a", "util_pct": 99.0, name: value})], 1.0))
            self.now += SECOND
        return sent

    def test_first_sample_is_sent_at_once_and_promises_the_period(self):
        ((fact,),) = self.ticks(self.digester(), [600.0])

        assert fact == ("gpu", {"uuid": "a", "util_pct": 99.0, "power_w": 600.0, "period_s": PERIOD_S})

    def test_digest_has_minimum_mean_maximum_and_last_of_what_changed(self):
        sent = self.ticks(self.digester(), [1.0, 600.0, 640.0, 620.0, 610.0, 700.0])

        assert [len(facts) for facts in sent] == [1, 0, 0, 0, 1, 0]
        ((_, digest),) = sent[4]
        assert digest["low"] == {"power_w": 600.0} and digest["high"] == {"power_w": 640.0}
        assert digest["mean"] == {"power_w": 617.5}
        assert (digest["power_w"], digest["samples"], digest["first_mono"]) == (610.0, 4, 101 * SECOND)
        assert "mono" not in digest, "it is sent as it is made"

    def test_sample_across_a_threshold_is_sent_at_once_after_the_digest_before_it(self):
        sent = self.ticks(self.digester(), [60.0, 61.0, 62.0, 88.0, 89.0], "temp_c")

        before, across = sent[3]
        assert (before[1]["temp_c"], before[1]["samples"], before[1]["mono"]) == (62.0, 2, 102 * SECOND)
        assert across[1]["temp_c"] == 88.0 and "samples" not in across[1]

    def test_unknown_values_do_not_count(self):
        digester = self.digester(("host",))
        sent = []
        for value in (1.0, 2.0, None, 6.0, None):
            sent.append(digester.digest([("host", {"cpu_pct": value})], 1.0))
            self.now += SECOND

        ((_, digest),) = sent[4]
        assert digest["cpu_pct"] is None and digest["samples"] == 4
        assert (digest["low"], digest["mean"], digest["high"]) == ({"cpu_pct": 2.0}, {"cpu_pct": 4.0}, {"cpu_pct": 6.0})

    def test_samples_of_an_entity_that_is_gone_are_sent(self):
        digester = self.digester()
        self.ticks(digester, [1.0, 2.0, 3.0])
        assert digester.digest([], 1.0) == []
        self.now += SECOND

        ((kind, fields),) = digester.digest([], 1.0)
        assert (kind, fields["power_w"], fields["mono"]) == ("gpu", 3.0, 102 * SECOND)

    def test_flush_returns_what_was_begun_and_other_kinds_pass(self):
        digester = self.digester(("host",))
        facts = [("gpu", {"uuid": "a"}), ("rank_stat", {"pid": 1})]
        assert digester.digest([*facts, ("host", {"cpu_pct": 1.0})], 1.0)[:2] == facts
        self.now += SECOND
        assert digester.digest([*facts, ("host", {"cpu_pct": 2.0})], 1.0) == facts

        assert [fields["cpu_pct"] for _, fields in digester.flush()] == [2.0]
        assert digester.flush() == []


#: Malformed orders, and the reason for which an agent refuses them.
MALFORMED = (
    ({"kinds": ["gpu", "rank_stat"]}, "no digests of 'rank_stat'; there are digests of gpu, host, nic"),
    ({"kinds": "gpu"}, "kinds must be a list"),
    ({"kinds": ["gpu"] * 33}, "kinds must be a list of at most 32 names"),
    ({"period_s": 1}, "the period of digests must be 2 to 60 s, not 1"),
    ({"period_s": 1e9}, "the period of digests must be 2 to 60 s"),
    ({"period_s": True}, "the period of digests must be 2 to 60 s, not True"),
    ({"period_s": None}, "the period of digests must be 2 to 60 s, not None"),
    ({"thresholds": {"temp_c": ["hot"]}}, "thresholds of 'temp_c' must be at most 32 numbers"),
    ({"thresholds": {"temp_c": [1.0] * 33}}, "thresholds of 'temp_c' must be at most 32 numbers"),
    ({"thresholds": {"uuid": [1.0]}}, "thresholds of 'uuid': not a figure of gpu records"),
    ({"thresholds": [1]}, "thresholds must be an object"),
    ({"reasons": [7]}, "reasons must be a list"),
)


@pytest.mark.parametrize(("fields", "reason"), MALFORMED)
def test_malformed_order_is_refused_with_its_reason_and_changes_nothing(fields, reason):
    agent = SimpleNamespace(digests=None, wake_sampler=lambda name: pytest.fail("woken"))

    with pytest.raises(RequestError, match=re.escape(reason)) as refused:
        VERBS["digest"](agent, {"kinds": ["gpu"], "period_s": 5, **fields})
    assert refused.value.name == "bad_request" and agent.digests is None


def test_order_of_no_kinds_ends_digests_and_holding_back():
    woken, held = [], []
    outbox = SimpleNamespace(hold=lambda *order: held.append(order))
    agent = SimpleNamespace(digests=None, wake_sampler=woken.append, outbox=outbox, config={"tick_offset_s": 0.5})

    assert VERBS["digest"](agent, {"kinds": ["nic", "gpu"], "period_s": 5, "hold_s": 5}) == {"kinds": ["gpu", "nic"]}
    assert agent.digests.period_s == 5.0 and held == [(5.0, 0.5)]
    assert VERBS["digest"](agent, {"kinds": [], "period_s": 5}) == {"kinds": []}
    assert agent.digests is None and woken == ["gpu", "gpu"] and held[1:] == [(0.0, 0.5)]


@pytest.mark.parametrize("hold_s", [-1, 11, 1e9, float("nan"), "5", None, True])
def test_order_that_would_silence_a_node_is_refused(hold_s):
    with pytest.raises(ValueError, match="0 to 10 s"):
        Order({"kinds": ["gpu"], "period_s": 5, "hold_s": hold_s})
