"""Findings of changed nodes alone are those of a whole evaluation, whatever records arrive in whatever order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from gconsole.analysis import health
from gconsole.analysis.finding import FindingDraft
from gconsole.analysis.health import CHECKS, changed_findings, health_findings
from gconsole.analysis.health.conditions import HELD_BY
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import (
    AgentCost,
    Digest,
    End,
    Gap,
    Gpu,
    GpuDigest,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    Host,
    Inventory,
    Link,
    Log,
    Nic,
    Node,
    NodeState,
    Process,
    Rank,
)

SECOND = 10**9
LIMITS = HealthConfig(window_s=12.0, peers=3, xid_s=20.0)
GPUS, PORTS = 4, 2
#: Names of counters that make findings, and one that makes none.
GROWN = ("ecc_corrected_volatile", "pcie_replays", "nvlink_crc_errors", "nvlink_replay_errors", "energy")
NIC_GROWN = ("symbol_errors", "link_downed", "rx_discards")
FAULTS = ("oom_kill", "oom_kill_in_cgroup", "hung_task", "nfs", "segfault", "xid", "nic", "link", "machine_check")
CONSOLE_FAULTS = ("console_late", "gateway_lost")
SERVICE_FAULTS = ("service_failed", "node_not_ready", "eviction", "gpu_driver", "slurm_node", "other")


class Cluster:
    """Draws records of some nodes, mostly healthy, as time passes; about one in `rarity` is not."""

    def __init__(self, seed: int, rarity: float) -> None:
        self.draw, self.rarity = random.Random(seed), rarity
        self.names = [f"n{number}" for number in range(1, self.draw.choice((2, 4, 6)))]
        self.now_s = 1000.0
        self.agents = dict.fromkeys(self.names, 1)
        self.boots = dict.fromkeys(self.names, 1)
        self.habits: dict[tuple[str, int], tuple[float | None, float, float | None, int]] = {}  # last for some samples
        self.makers: list[Callable[[str], Any]] = [
            self.gpu, self.gpu, self.gpu, self.gpu, self.gpu_info, self.gpu_link, self.gpu_process, self.gpu_event,
            self.gpu_digest, self.nic, self.node, self.node_state, self.inventory, self.rank, self.process, self.log,
            self.tick, self.link, self.host, self.gap,
        ]  # fmt: skip

    def records(self, count: int) -> Iterator[Any]:
        """About `count` records: ticks of a node's GPUs, and for some time only these or only a few other kinds.

        A record that marks its node would hide that another one should have.
        """
        for name in self.names:
            for record in (self.node(name), *(self.gpu_info(name, index) for index in range(GPUS))):
                yield self.stamped(record)
            yield self.stamped(self.inventory(name))
        makers, jumps, share = self.makers, False, 0.5
        for step in range(count // 3):
            if step % 25 == 24:
                makers = self.draw.sample(self.makers, self.draw.choice((1, 1, 2, 8)))
                jumps, share = self.draw.random() < 0.3, self.draw.choice((0.0, 0.3, 0.8))
            name = self.draw.choice(self.names)
            if self.draw.random() < share:
                yield self.stamped(self.draw.choice(makers)(name))
                continue
            self.now_s += self.draw.choice((0.2, 10.0, 70.0, 800.0) if jumps else (0.2, 1.0, 1.0, 1.0, 3.0))
            for index in range(GPUS):
                yield self.stamped(self.gpu(name, index))

    def stamped(self, record: Any) -> Any:
        at = int(self.now_s * SECOND)
        agent = f"{record.node}-a{self.agents[record.node]}"
        mono = record.mono or at
        return msgspec.structs.replace(record, agent=agent, t=at, mono=mono, rx=at)

    def odd(self) -> bool:
        return self.draw.random() * self.rarity < 1

    def index(self) -> int:
        return self.draw.randrange(GPUS)

    def gpu(self, name: str, number: int | None = None) -> Gpu:
        index, odd, draw = self.index() if number is None else number, self.odd, self.draw
        if (name, index) not in self.habits or draw.random() < 0.03:
            self.habits[name, index] = (
                draw.choice((98.0, 98.0, 98.0, 95.0, 3.0, None)), draw.choice((60.0, 60.0, 60.0, 92.0)),
                draw.choice((1900.0, 1900.0, 1900.0, 1900.0, 800.0)), draw.choice((8, 8, 8, 8, 60)) << 30,
            )  # fmt: skip
        util_pct, temp_c, clock_mhz, used = self.habits[name, index]
        return Gpu(
            node=name, index=index, uuid=f"{name}-{index}", util_pct=util_pct, mem_used_bytes=used,
            power_w=draw.choice((600.0, 600.0, 100.0, None)) if odd() else 600.0, temp_c=temp_c,
            mem_temp_c=107.0 if odd() else None, sm_clock_mhz=clock_mhz,
            clocks_event_reasons=("hw_slowdown",) if odd() else ("sw_power_cap",) if odd() else (),
            clocks_event_share_pct={draw.choice(HELD_BY): 40.0} if odd() else {},
            ecc_uncorrected_volatile=2 if odd() else 0, remap_pending=odd(), remap_failed=odd(), retire_pending=odd(),
            grown={draw.choice(GROWN): draw.choice((1, 500, 5000))} if odd() else {},
            recovery_action="gpu_reset" if odd() else "none", simulated=odd(),
        )  # fmt: skip

    def gpu_info(self, name: str, number: int | None = None) -> GpuInfo:
        index, odd, draw = self.index() if number is None else number, self.odd, self.draw
        is_mig = number is None and draw.random() < 0.1
        return GpuInfo(
            node=name, index=index, uuid=f"{name}-{index}" + ("-mig" if is_mig else ""),
            name="A100" if odd() else "H100", parent=f"{name}-{index}" if is_mig else None,
            mem_total_bytes=80 << 30, power_limit_w=500.0 if odd() else 700.0,
            max_sm_clock_mhz=1980.0, pcie_gen=3 if odd() else 5, pcie_gen_max=5, pcie_width=8 if odd() else 16,
            pcie_width_max=16, nvlinks=2, driver="550.1" if odd() else "560.2", cuda_driver="12.8",
            fabric_state="in_progress" if odd() else "completed", fabric_faults=("route_unhealthy",) if odd() else (),
            ecc_mode=not odd(), persistence=not odd(), temp_slowdown_c=90.0, sram_threshold_exceeded=odd(),
            lost="GPU is lost" if odd() else None, unusable="no call returns" if odd() else None,
        )  # fmt: skip

    def gpu_link(self, name: str) -> GpuLink:
        index = self.index()
        return GpuLink(
            node=name, index=index, uuid=f"{name}-{index}", link=self.draw.randrange(2), up=not self.odd(),
            grown={"failed_recoveries": 3} if self.odd() else {},
        )  # fmt: skip

    def gpu_process(self, name: str) -> GpuProcess:
        index = self.index()
        rank = self.names.index(name) * GPUS + index
        return GpuProcess(
            node=name, index=index, uuid=f"{name}-{index}", pid=100 + index, type="compute",
            job=self.draw.choice(("job", "job", "job", None)), rank=rank, gone=self.odd(),
        )  # fmt: skip

    def gpu_event(self, name: str) -> GpuEvent:
        draw, index = self.draw, self.index()
        event = draw.choice(("xid", "xid", "xid", "back", "lost", "clock"))
        xid = draw.choice((13, 48, 79, 154)) if event == "xid" else None
        return GpuEvent(
            node=name, index=index, uuid="" if draw.random() < 0.2 or event == "lost" else f"{name}-{index}",
            event=event, xid=xid, severity=draw.choice(("error", "warning", "info")), text=f"{event} {xid}",
            source="nvml", action=draw.choice(("RESET_GPU", None)), pci_bus_id=f"0000:0{index}:00.0",
        )  # fmt: skip

    def gpu_digest(self, name: str) -> GpuDigest:
        index = self.index()
        return GpuDigest(
            node=name, index=index, uuid=f"{name}-{index}", samples=10,
            mem_used_bytes=Digest(min=1.0, mean=1.0, max=float(70 << 30) if self.odd() else 1.0, last=1.0),
        )  # fmt: skip

    def nic(self, name: str) -> Nic:
        draw = self.draw
        return Nic(
            node=name, device="mlx5_0", port=draw.randrange(PORTS), rdma=True, link_downed=1,
            state=draw.choice(("down", "gone", "init", None)) if self.odd() else "active",
            physical_state=draw.choice(("polling", "linkup")),
            grown={draw.choice(NIC_GROWN): draw.choice((1, 50, 5000))} if self.odd() else {},
        )  # fmt: skip

    def node(self, name: str) -> Node:
        if self.odd():
            self.agents[name] += 1
            self.boots[name] += self.draw.random() < 0.5
        return Node(
            node=name, hostname=name, boot_id=f"b{self.boots[name]}", kernel="6.2" if self.odd() else "6.1",
            arch="x86_64", python="3.11", uid=0, pid=1, sample_interval_ms=1000,
        )  # fmt: skip

    def node_state(self, name: str) -> NodeState:
        return NodeState(node=name, state=self.draw.choice(("ok", "lost", "removed")) if self.odd() else "ok")

    def inventory(self, name: str) -> Inventory:
        return Inventory(
            node=name, of="gpu", count=3 if self.odd() else GPUS, installed=GPUS,
            missing=("0000:07:00.0",) if self.odd() else (), fault="driver_mismatch" if self.odd() else None,
            text="words",
        )  # fmt: skip

    def rank(self, name: str) -> Rank:
        index = self.index()
        return Rank(
            node=name, job="job", rank=self.names.index(name) * GPUS + index, pid=100 + index,
            start_ticks=self.draw.choice((5, 5, 5, 900)), source="environ", world_size=32,
            nccl="2.20" if self.odd() else "2.21", status="exited" if self.odd() else "present",
        )  # fmt: skip

    def process(self, name: str) -> Process:
        return Process(
            node=name, pid=200 + self.index(), start_ticks=5, ppid=100, uid=0, comm="python", job="job",
            role=self.draw.choice(("dataloader_worker", "python", "launcher")), rank=self.draw.choice((1, None)),
            has_children=self.draw.choice((None, True, False, False)), gone=self.odd(),
        )  # fmt: skip

    def log(self, name: str) -> Log:
        draw, at = self.draw, int((self.now_s - self.draw.choice((0, 0, 30, 3000))) * SECOND)
        source = draw.choice(("kernel", "kernel", "journal", "slurm", "boot", "agent", "console", "job"))
        fault = {"kernel": draw.choice(FAULTS), "console": draw.choice(CONSOLE_FAULTS), "boot": "boot"}.get(source)
        return Log(
            node=name, source=source, severity=draw.choice(("error", "error", "warning")),
            text=f"words {draw.random():.1f}",
            fault=fault or (draw.choice(SERVICE_FAULTS) if source != "job" else None), at=at, is_over=self.odd(),
            subject=draw.choice(("a", "b", "c", "d", None)), pid=draw.choice((100, 101, 200, None)),
        )  # fmt: skip

    def tick(self, name: str) -> AgentCost:
        step = SECOND * 3600 if self.draw.random() < 0.3 else 0
        return AgentCost(node=name, sample_interval_ms=1000, mono=int(self.now_s * SECOND) + step + 1)

    def link(self, name: str) -> Link:
        return Link(node=name, type="nvlink", a=End(kind="gpu", id=f"{name}-{self.index()}"),
                    b=End(kind="switch", id="s"), gone=self.odd())  # fmt: skip

    def host(self, name: str) -> Host:
        return Host(node=name)

    def gap(self, name: str) -> Gap:
        source = self.draw.choice(("link", "buffer", "limit", "recording night"))
        return Gap(node=name, source=source, reason=self.draw.choice("xy"), count=self.draw.choice((1, None)))


def in_order(drafts: list[FindingDraft]) -> list[str]:
    return sorted(map(repr, drafts))


@pytest.mark.parametrize("seeds", [2, pytest.param(8, marks=pytest.mark.full)])
def test_findings_of_changed_nodes_equal_those_of_a_whole_evaluation(seeds: int) -> None:
    seen: set[str] = set()
    for seed in range(seeds):
        for rarity in (3, 20, 300):
            seen |= compared(Cluster(seed, rarity), 1200)
    assert seen == {check.__name__ for check in CHECKS}


def compared(cluster: Cluster, count: int) -> set[str]:
    """Ids of all findings in a stream, after each evaluation was compared with a whole one of other facts."""
    facts, whole = (HealthState(LIMITS.window_s, LIMITS.busy_pct) for _ in range(2))
    seen: set[str] = set()
    for record in cluster.records(count):
        facts.add([record])
        whole.add([record])
        if cluster.draw.random() < 0.7:  # else the marks of several records come together
            expected = list(health_findings(whole, LIMITS))
            assert in_order(changed_findings(facts, LIMITS)) == in_order(expected), record
            seen |= {draft.id for draft in expected}
    for gpu in facts.all_gpus():
        owners = [(one.job, one.attempt or 0, one.rank) for one in gpu.processes.values()]
        assert gpu.ranks == {owner for owner in owners if None not in owner}
    return seen


def test_checks_of_one_node_do_not_run_for_nodes_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, ran = HealthState(LIMITS.window_s, LIMITS.busy_pct), list[str]()
    facts.add([GpuInfo(node=name, index=0, uuid=f"{name}-0", name="H100", pcie_gen=4, pcie_gen_max=5)
               for name in ("n1", "n2", "n3")])  # fmt: skip
    run = health._Evaluation.run

    def counted(evaluation: Any, of: HealthState, name: str, checks: Any) -> None:
        ran.append(name)
        run(evaluation, of, name, checks)

    monkeypatch.setattr(health._Evaluation, "run", counted)
    for second in range(50):
        facts.add([sample(name, second, util_pct=2.0) for name in ("n1", "n2", "n3")])
        assert changed_findings(facts, LIMITS) == []
    assert sorted(ran) == ["n1", "n2", "n3"]
    facts.add([sample("n1", 51, remap_pending=True), sample("n2", 51)])
    assert [draft.id for draft in changed_findings(facts, LIMITS)] == ["gpu_remap_pending"]
    assert ran[3:] == ["n1"]
    facts.add([sample("n1", 52)])
    assert changed_findings(facts, LIMITS) == []
    assert ran[3:] == ["n1", "n1"]


def test_fault_that_newer_faults_hid_is_found_once_those_have_ended() -> None:
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    earlier = Log(node="n1", source="journal", severity="error", text="words", fault="service_failed", rx=1, t=1)
    hiding = [
        Log(node="n1", source="journal", severity="warning", text="words", fault="eviction", subject=str(number),
            rx=2, t=4000 * SECOND, at=1000 * SECOND)
        for number in range(8)
    ]  # fmt: skip
    facts.add([earlier, *hiding])
    assert changed_findings(facts, LIMITS) == []

    facts.add([sample("n2", 700)])

    assert [draft.id for draft in changed_findings(facts, LIMITS)] == ["service_fault"]


def sample(name: str, second: int, **fields: Any) -> Gpu:
    return Gpu(node=name, index=0, uuid=f"{name}-0", mono=second * SECOND, rx=second * SECOND, **fields)


def test_all_checks_run_again_after_one_failed_and_with_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    facts.add([GpuInfo(node="n1", index=0, uuid="n1-0", name="H100", lost="GPU is lost")])

    def broken(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(health, "_OF_NODE", (broken,))
        with pytest.raises(ZeroDivisionError):
            changed_findings(facts, LIMITS)
    assert [draft.id for draft in changed_findings(facts, LIMITS)] == ["gpu_lost"]
    assert [draft.id for draft in changed_findings(facts, HealthConfig())] == ["gpu_lost"]


def test_events_of_a_node_make_no_comparison_of_the_fleet_necessary():
    """They are frequent, and a comparison reads every GPU of the fleet."""
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    facts.add([NodeState(node="n1", rx=1, state="ok"), GpuInfo(node="n1", rx=1, uuid="a", index=0)])
    list(changed_findings(facts, LIMITS))
    before = facts.identities
    facts.add([
        GpuEvent(node="n1", rx=2, event="xid", uuid="a", xid=31, severity="error", text="x"),
        Gap(node="n1", rx=2, source="link", reason="r", count=1),
        Log(node="n1", rx=2, source="kernel", severity="error", text="x", fault="oom_kill"),
    ])  # fmt: skip
    assert (facts.identities, facts.changed) == (before, {"n1"})
    facts.add([Log(node="n1", rx=3, source="boot", severity="info", text="booted", fault="boot")])
    assert facts.identities > before
