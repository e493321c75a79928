"""One minute of a synthetic busy fleet, record by record, with occasional events: the source of long sessions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from gconsole.core.bus import Published
from gconsole.records import (
    AgentCost,
    ClockNode,
    Collective,
    ConsoleRecord,
    Failure,
    Finding,
    Gpu,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    Host,
    Mark,
    Nic,
    Node,
    NodeState,
    Rank,
    RankStat,
    Stack,
    StackFrame,
)

from .noisy_gpus import seconds as noisy_seconds

#: A full hour, so that no minute spans two partitions.
BEGAN_NS: Final = 1_790_002_800_000_000_000
SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
#: More records than an agent sends per minute: sequence numbers grow by this much, so they stay unique and sorted.
NUMBERS: Final = 10_000
#: Steps of a rank per minute.
STEPS: Final = 40
LINKS: Final = 4
_JOB, _CONSOLE = "torchrun:llm", "console0001"


class Fleet:
    """Nodes with GPUs, one rank per GPU, one job."""

    def __init__(self, nodes: int = 64, gpus: int = 8, seed: int = 7) -> None:
        self.nodes, self.gpus = nodes, gpus
        self._chance = random.Random(seed)
        self._first = next(noisy_seconds(nodes, gpus, BEGAN_NS))
        self._console_seq = count(1)
        self._event_seq = count(10**12)  # of agents, for occasional events

    @property
    def world(self) -> int:
        return self.nodes * self.gpus

    # -- each second ---------------------------------------------------------------------------------------------------

    def seconds(self) -> Iterator[list[Any]]:
        """The records of each second of the first minute, in order of arrival."""
        chance = self._chance
        seqs = [count(1) for _ in range(self.nodes)]
        for second, brought in zip(range(60), noisy_seconds(self.nodes, self.gpus, BEGAN_NS), strict=False):
            second_records: list[Any] = []
            for number, cards in enumerate(brought):
                for record in self._node_second(chance, second, number, cards):
                    head = cards[0]
                    record.node, record.agent, record.seq = head.node, head.agent, next(seqs[number])
                    record.t, record.mono, record.rx = head.t, head.mono, head.rx
                    second_records.append(record)
            yield second_records

    def _node_second(self, chance: random.Random, second: int, number: int, cards: list[Gpu]) -> Iterator[Any]:
        yield Host(
            cpu_pct=round(chance.gauss(35, 5), 1), load_1m=round(chance.gauss(40, 4), 2),
            mem_used_bytes=chance.randrange(300, 320) << 30, mem_available_bytes=chance.randrange(1500, 1520) << 30,
            swap_used_bytes=0, cpu_stall_pct=round(chance.random(), 2), mem_stall_pct=0.0,
            io_stall_pct=round(chance.random() * 3, 2), disk_read_bytes_s=float(chance.randrange(10**8)),
            disk_write_bytes_s=float(chance.randrange(10**7)), net_rx_bytes_s=float(chance.randrange(10**8)),
            net_tx_bytes_s=float(chance.randrange(10**8)), uptime_s=float(10**6 + second), processes=1900, unreadable=0,
        )  # fmt: skip
        yield AgentCost(cpu_pct=round(chance.gauss(1.1, 0.1), 2), rss_bytes=chance.randrange(40, 44) << 20,
                        tx_bytes_s=float(chance.randrange(8000, 12000)), sample_interval_ms=1000)  # fmt: skip
        yield from cards
        for index, card in enumerate(cards):
            yield self._rank_stat(chance, second, number, index)
            if chance.random() < 0.1:
                yield GpuProcess(index=index, uuid=card.uuid, pid=9000 + index, type="compute", comm="python3",
                                 mem_used_bytes=card.mem_used_bytes, job=_JOB, attempt=0,
                                 rank=number * self.gpus + index, rank_source="pid")  # fmt: skip
            if (second + index) % 10 == 0:
                yield from (self._link(chance, card, link) for link in range(LINKS))
        for port in range(2):
            yield Nic(device=f"mlx5_{port}", port=1, rdma=True, state="active", physical_state="linkup",
                      rate_bytes_s=5e10, link_layer="InfiniBand", rx_bytes_s=float(chance.randrange(4 * 10**10)),
                      tx_bytes_s=float(chance.randrange(4 * 10**10)), symbol_errors=0, link_downed=0)  # fmt: skip
        if second % 4 == number % 4:
            head = cards[0]
            yield ClockNode(
                window_id=second // 4, reference="node0000", at_mono=head.mono - 2 * SECOND_NS,
                at_common=head.t - 2 * SECOND_NS - 1_000 * number, alpha=1.0 + number * 1e-7,
                offset_ns=1_000 * number, drift_ppm=number * 0.1, bound_ns=chance.randrange(20_000, 60_000), edges=6,
                min_rtt_ns=chance.randrange(40_000, 90_000), stamps="kernel_rx",
            )  # fmt: skip

    def _rank_stat(self, chance: random.Random, second: int, number: int, index: int) -> RankStat:
        return RankStat(
            job=_JOB, rank=number * self.gpus + index, pid=9000 + index, start_ticks=100 + index, state="moving",
            proc_state="R", cpu_pct=round(chance.gauss(100, 3), 1), rss_bytes=chance.randrange(60_000, 60_100) << 20,
            threads=92, ctx_switches_s=round(chance.gauss(400, 30), 1), step=1000 + second * STEPS // 60,
        )  # fmt: skip

    def _link(self, chance: random.Random, card: Gpu, link: int) -> GpuLink:
        return GpuLink(index=card.index, uuid=card.uuid, link=link, up=True, version=4, speed_bytes_s=26.6e9,
                       rx_bytes_s=float(chance.randrange(2 * 10**10)), tx_bytes_s=float(chance.randrange(2 * 10**10)),
                       crc_errors=0, replay_errors=0, recovery_errors=0)  # fmt: skip

    # -- events --------------------------------------------------------------------------------------------------------

    def beginning(self) -> Iterator[Published]:
        """The first records of a recording."""
        yield self._ours(ConsoleRecord(cluster="long", version="0"), BEGAN_NS)
        for number, cards in enumerate(self._first):
            head = cards[0]
            yield self._ours(NodeState(node=head.node, state="ok"), BEGAN_NS)
            yield self._theirs(number, Node(hostname=head.node, boot_id=f"boot{number}", kernel="6.8", arch="x86_64",
                                            python="3.11.7", cpus=192, mem_total_bytes=2 << 40, uid=1000, pid=4242,
                                            sample_interval_ms=1000, capabilities=("nvml",)),
                               BEGAN_NS)  # fmt: skip
            for index, card in enumerate(cards):
                yield self._theirs(number, GpuInfo(index=index, uuid=card.uuid, name="NVIDIA H100 80GB HBM3",
                                                   mem_total_bytes=80 << 30, power_limit_w=700.0, driver="570.86"),
                                   BEGAN_NS)  # fmt: skip
                yield self._theirs(number, Rank(job=_JOB, rank=number * self.gpus + index, local_rank=index,
                                                world_size=self.world, pid=9000 + index, start_ticks=100 + index,
                                                gpu=card.uuid, source="environ"), BEGAN_NS)  # fmt: skip
                yield self._theirs(number, GpuProcess(index=index, uuid=card.uuid, pid=9000 + index, type="compute",
                                                      job=_JOB, attempt=0, rank=number * self.gpus + index,
                                                      rank_source="pid"), BEGAN_NS)  # fmt: skip

    def events(self, minute: int) -> Iterator[Published]:
        """Events at the start of a minute: findings, XIDs, markers, a lost node, captures."""
        at = BEGAN_NS + minute * MINUTE_NS
        victim = minute * 5 % self.nodes
        name = self._first[victim][0].node
        if minute % 5 == 3:
            yield self._ours(Finding(id="straggler", severity="warning", confidence="likely", culprits=(name,),
                                     text=f"{name} is late", first_seen=at), at)  # fmt: skip
        if minute % 5 == 4:
            yield self._ours(Finding(id="straggler", severity="warning", confidence="likely",
                                     culprits=(self._first[(minute - 1) * 5 % self.nodes][0].node,), text="late",
                                     first_seen=at - MINUTE_NS, cleared_at=at), at)  # fmt: skip
        if minute % 7 == 5:
            xid = GpuEvent(index=0, uuid=self._first[victim][0].uuid, event="xid", severity="error", text="XID 79",
                           xid=79)  # fmt: skip
            yield self._theirs(victim, xid, at)
        if minute % 30 == 10:
            yield self._ours(Mark(text=f"minute {minute}"), at)
        if minute % 20 == 12:
            yield self._ours(NodeState(node=name, state="lost", error=Failure("lost", "it fell silent")), at)
            yield self._ours(NodeState(node=name, state="ok"), at + 1)
        if minute % 20 == 1:
            yield from self._capture(minute, at)

    def _capture(self, minute: int, at: int) -> Iterator[Published]:
        frames = tuple(StackFrame(f"call{depth}", f"/opt/train/part{depth}.py", 10 * depth) for depth in range(24))
        for number in range(self.nodes):
            for index in range(self.gpus):
                rank = number * self.gpus + index
                common: dict[str, Any] = {"capture": f"capture{minute}", "job": _JOB, "rank": rank, "pid": 9000 + index,
                                          "start_ticks": 100 + index}  # fmt: skip
                for sample in range(2):
                    yield self._theirs(number, Stack(**common, sample=sample, status="ok", engine="py-spy", began=at,
                                                     ended=at + 10**7, proc_state="R", os_thread_id=9000 + index,
                                                     thread_name="MainThread", path=1,
                                                     frames=frames if not sample else None), at)  # fmt: skip
                for seq in range(4):
                    yield self._theirs(number, Collective(**common, source="fr_dump", process_group=("0", "default_pg"),
                                                          group_size=self.world, collective_seq_id=1000 * minute + seq,
                                                          profiling_name="nccl:all_reduce", retired=seq < 3,
                                                          time_created_ns=at - (4 - seq) * 10**8), at)  # fmt: skip

    def _ours(self, record: Any, at: int) -> Any:
        record.agent, record.seq, record.t, record.rx = _CONSOLE, next(self._console_seq), at, at
        return record

    def _theirs(self, number: int, record: Any, at: int) -> Any:
        head = self._first[number][0]
        record.node, record.agent, record.seq = head.node, head.agent, next(self._event_seq)
        record.t, record.mono, record.rx = at, head.mono + at - BEGAN_NS, at + 1_000_000
        return record


def _head(record: Any) -> dict[str, float]:
    return {"seq": NUMBERS, "t": MINUTE_NS, "mono": MINUTE_NS, "rx": MINUTE_NS}


def _gpu(record: Any) -> dict[str, float]:
    return {**_head(record), "energy_j": 60.0 * round(record.power_w)}


def _rank_stat(record: Any) -> dict[str, float]:
    return {**_head(record), "step": STEPS}


def _clock_node(record: Any) -> dict[str, float]:
    return {**_head(record), "window_id": 15, "at_mono": MINUTE_NS, "at_common": MINUTE_NS}


#: By kind: the fields that increase from minute to minute, and by how much.
AGAIN: Final[dict[str, Callable[[Any], dict[str, float]]]] = {
    **dict.fromkeys(("host", "agent_cost", "gpu_process", "gpu_link", "nic"), _head),
    "gpu": _gpu, "rank_stat": _rank_stat, "clock_node": _clock_node,
}  # fmt: skip
