"""An invented cluster: records fed to a real store, at an instant that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gconsole.config.difference import Changes
from gconsole.config.load import more_nodes
from gconsole.config.model import Config, ConsoleConfig
from gconsole.config.readonly import Change, ReadOnly, refusal
from gconsole.diagnose import VARIABLES
from gconsole.fleet.answers import Answer
from gconsole.hub import CaptureDone, CaptureOrder, NodeCounts, RecordingNow
from gconsole.joborders import NodeStop
from gconsole.records import (
    AgentCost,
    ClockNode,
    ClockSnapshot,
    ClockSource,
    ClockWindow,
    Collective,
    Failure,
    Finding,
    Frame,
    Gap,
    Gpu,
    GpuInfo,
    Host,
    Job,
    JobNode,
    Local,
    Log,
    Mark,
    Missing,
    Node,
    NodeState,
    PgStatus,
    Process,
    Rank,
    RankStat,
    Record,
    Stack,
)
from gconsole.records.job import JobNodeState
from gconsole.session.layout import Selection, SessionError
from gconsole.store import Store
from gconsole.tui.app import ConsoleApp

SECOND = 1_000_000_000
NOON = 1_700_049_600 * SECOND  # 2023-11-15 12:00:00 UTC
GIB = 1 << 30
_C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
_TRAIN = "/home/user/job/train.py"
ALL_REDUCE = (Frame("<module>", _TRAIN, 212), Frame("train_step", _TRAIN, 150), Frame("all_reduce", _C10D, 3252))
LOADER = (
    Frame("<module>", _TRAIN, 212), Frame("next_batch", "/home/user/job/loader.py", 61),
    Frame("load_shard", "/home/user/job/dataset.py", 88, source="return open(path).read()"),
)  # fmt: skip


class Tapes:
    """Recordings that are written nowhere; `trouble` is what their disk has."""

    def __init__(self, cluster: Cluster) -> None:
        self.trouble = ""
        self.path: Path | None = None  # where the newest lies, for those who read it
        self._cluster = cluster
        self._running: dict[str, int] = {}
        self.selections: dict[str, Selection | None] = {}  # by name, what was to be kept

    def now(self) -> list[RecordingNow]:
        return [
            RecordingNow(name, began, 12_345, 678_901, self.trouble, self.path)
            for name, began in self._running.items()
        ]

    async def start(self, name: str, selection: Selection | None = None) -> bool:
        self.selections[name] = selection
        if name == "taken":
            raise SessionError("taken: there is such a session already; try another name")
        self._cluster.asked.append(("record", name))
        self._running[name] = self._cluster.at
        return name == "crashed"

    async def stop(self, name: str) -> RecordingNow:
        self._cluster.asked.append(("record no more", name))
        return RecordingNow(name, self._running.pop(name), 12_345, 678_901, self.trouble)


class Cluster:
    """Nodes, GPUs and jobs by the handful. Every method may be called again to say something new."""

    def __init__(self, *names: str, cluster: str = "h100-pod") -> None:
        self.names = list(names)
        self.cluster = cluster
        self.says = "3.10.12"  # what the doctor hears from a node
        self.star = names[0] if names else ""  # the node of which most is known
        self.store = Store()
        self.at = NOON
        self.asked: list[tuple[str, str]] = []  # what was asked of `Control`, in order
        self.standing: dict[int, tuple[Frame, ...]] = {}  # where ranks stand that are not in all_reduce
        self.variables: tuple[str, ...] = ()  # what the newest capture was to read
        self.recorded: list[Collective | PgStatus] = []  # what communication libraries have to say in a capture
        self.slow: asyncio.Event | None = None  # a capture waits for it
        self.recordings = Tapes(self)
        self.read_only = False
        self._seq = 0
        for name in names:
            self.say(NodeState(node=name, state="expected"))

    # -- Control -----------------------------------------------------------------------------------------------------

    async def reconnect(self, node: str) -> None:
        if node not in self.names:
            raise KeyError(node)
        self.asked.append(("reconnect", node))

    async def remove_node(self, node: str) -> None:
        self.asked.append(("remove", node))
        self.names.remove(node)
        self.say(NodeState(node=node, state="removed"))

    async def mark(self, text: str) -> None:
        self.asked.append(("mark", text))
        self.say(Mark(text=text))

    async def add_nodes(self, names: str) -> Sequence[str]:
        named = [node.name for node in more_nodes(Config(cluster=self.cluster, nodes=()), names)]
        new = [name for name in named if name not in self.names]
        self.asked.append(("add", ",".join(new)))
        self.names += new
        self.say(*(NodeState(node=name, state="expected") for name in new))
        return new

    def want_clocks(self, who: str, wanted: bool) -> None:
        if wanted:
            self.asked.append(("clocks", who))

    async def apply(self, config: Config) -> Changes:
        self.asked.append(("apply", config.cluster))
        return Changes(removed=tuple(name for name in self.names if name not in {node.name for node in config.nodes}))

    async def examine(self, nodes: Sequence[str]) -> Sequence[Answer]:
        self.asked.append(("examine", ",".join(nodes)))
        return [Answer(name, value=[{"name": "python", "state": "ok", "text": self.says}]) for name in nodes]

    async def capture(self, order: CaptureOrder) -> CaptureDone:
        """Every present rank at its place in `standing`, in all_reduce where it has none; an hour goes by between."""
        self.asked.append(("capture", str(order.samples)))
        self.variables = tuple(name for name in order.locals if name not in VARIABLES)
        if self.slow is not None:
            await self.slow.wait()
        ranks = [now.rank for now in self.store.ranks.values() if now.rank.status == "present"]
        for sample in range(order.samples):
            self.say(*(self._stack(order, sample, rank) for rank in ranks))
            self.at += int(max(order.every_s, 3.0) * SECOND)
        self.say(*(msgspec.structs.replace(said, capture=order.id) for said in self.recorded))
        counts = NodeCounts(len(ranks), len(ranks), order.samples, {"ok": len(ranks)}, 0, 0, 0)
        return CaptureDone(order.id, self.at, dict.fromkeys(sorted({rank.node for rank in ranks}), counts), {})

    def _stack(self, order: CaptureOrder, sample: int, rank: Rank) -> Stack:
        frames = self.standing.get(rank.rank or 0, ALL_REDUCE)
        return Stack(
            node=rank.node, capture=order.id, sample=sample, at=self.at, job=rank.job, attempt=rank.attempt,
            rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks, status="ok", engine="py-spy", looked=self.at,
            began=self.at, ended=self.at + SECOND // 100, proc_state="S", cpu_s=9.0,
            syscall="pread64" if frames is LOADER else "futex", cpu_delta_s=0.0 if sample else None,
            ctx_switches=7, ctx_switches_delta=0 if sample else None, tracer_pid=0, thread_id=1, os_thread_id=rank.pid,
            thread_name="MainThread", active=False, gil=False, frames=frames,
            locals=tuple(Local(1, name, str(1700 + (rank.rank or 0))) for name in self.variables) or None,
        )  # fmt: skip

    def refusal(self, change: Change) -> ReadOnly | None:
        return refusal(ConsoleConfig(read_only=self.read_only), change)

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> dict[str, Failure]:
        self.asked.append(("watch" if wanted else "watch no more", f"{job} on {','.join(nodes)}"))
        return {}

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> dict[str, NodeStop | Failure]:
        """Every node that is here ends it."""
        self.asked.append(("stop job", f"{job} on {','.join(nodes)}"))
        found: dict[str, NodeStop | Failure] = {}
        for node in nodes:
            now = self.store.nodes[node].state
            is_here = now is not None and now.state == "ok"
            found[node] = NodeStop(8, (), "stopped", "running") if is_here else Failure("lost", "no word for 3 s")
        return found

    async def stop(self) -> None:
        self.asked.append(("stop", ""))

    # -- records -----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.at

    def say(self, *records: Record) -> None:
        """Fold records as if they had arrived now."""
        for record in records:
            self._seq += 1
            record.seq = self._seq
            record.agent = record.agent or f"agent-of-{record.node}"
            record.t = record.mono = record.rx = self.at
        self.store.apply(records)

    def up(self, *names: str, simulated: bool = False, missing: Sequence[Any] = ()) -> None:
        """These nodes (all, without any) are reached and have sent a full tick."""
        for name in names or self.names:
            self.say(
                NodeState(node=name, state="ok", attempt=1),
                Node(
                    node=name, hostname=name, boot_id="b", kernel="5.15.0-107-generic", arch="x86_64", python="3.10.12",
                    os="Ubuntu 22.04.4 LTS", cpus=192, mem_total_bytes=2015 * GIB, uid=1000, user="ops", pid=4711,
                    sample_interval_ms=1000, simulated=simulated, missing=tuple(missing),
                ),
                Host(
                    node=name, cpu_pct=61.4, load_1m=118.2, mem_used_bytes=811 * GIB, cpu_stall_pct=0.2,
                    io_stall_pct=0.0,
                ),
                AgentCost(node=name, cpu_pct=0.4, rss_bytes=19 << 20, tx_bytes_s=2100.0, sample_interval_ms=1000),
            )  # fmt: skip

    def fails(self, name: str, error: str, text: str, try_: str = "") -> None:
        self.say(NodeState(node=name, state="failed", attempt=1, error=Failure(error, text, try_)))

    def loses(self, name: str, text: str = "no word for 3 s", try_: str = "it is tried again by itself") -> None:
        failure = Failure("lost", text, try_)
        self.say(NodeState(node=name, state="lost", attempt=1, retry_at=self.at + 4 * SECOND, error=failure))

    def gpus(self, *names: str, count: int = 8, simulated: bool = False, util: Sequence[float] | None = None) -> None:
        """GPUs of these nodes (all, without any), each a little different."""
        for name in names or self.names:
            for index in range(count):
                busy = util[index % len(util)] if util else 93.0 + (index * 7 + len(name)) % 7
                uuid = f"GPU-{name}-{index}"
                self.say(
                    GpuInfo(
                        node=name, index=index, uuid=uuid, name="NVIDIA H100 80GB HBM3", mem_total_bytes=80 * GIB,
                        power_limit_w=700.0, pci_bus_id=f"00000000:{0x18 + index:02X}:00.0", simulated=simulated,
                    ),
                    Gpu(
                        node=name, index=index, uuid=uuid, util_pct=busy, power_w=120.0 + 5.6 * busy,
                        mem_used_bytes=int((40 + 5 * (index % 8)) * GIB), temp_c=34.0 + 0.4 * busy,
                        sm_clock_mhz=1980.0, simulated=simulated,
                    ),
                )  # fmt: skip

    def job(
        self, name: str, ranks: int, *, world_size: int | None = None, per_node: int = 8,
        states: dict[int, str] | None = None, absent: Sequence[int] = (), step: int | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """A job over the nodes in their order; `states` are the ranks that do not move."""
        states = states or {}
        first = 40000 + 1000 * len({now.rank.job for now in self.store.ranks.values()})
        for number in range(ranks):
            if number not in absent:
                node = self.names[number // per_node % len(self.names)]
                self.rank(
                    name,
                    number,
                    node,
                    world_size or ranks,
                    states.get(number, "moving"),
                    per_node,
                    step,
                    pid=first + number,
                    **fields,
                )

    def starts(
        self, name: str, *nodes: str, procs: int = 8, state: JobNodeState = "running", launcher: str = "torchrun",
        **fields: Any,
    ) -> None:  # fmt: skip
        """A job that gconsole started on these nodes (all, without any), in that state on each."""
        on = nodes or tuple(self.names)
        for index, node in enumerate(on):
            self.say(
                Job(
                    node=node, job=name, command=("/venv/bin/python", "train.py", "--lr", "1e-4"), launcher=launcher,
                    nodes=on, procs_per_node=procs, gpus_per_node=procs, world_size=procs * len(on),
                    master_addr="10.1.0.1", master_port=29517, workdir="/home/ops/llama",
                    created=self.at - 131 * SECOND,
                )
            )  # fmt: skip
            self.on_node(name, node, index, state, **fields)

    def on_node(self, job: str, node: str, index: int, state: JobNodeState, **fields: Any) -> None:
        """What a job does on one of its nodes."""
        self.say(JobNode(node=node, job=job, index=index, state=state, pid=7, start_ticks=9,
                         started=self.at - 130 * SECOND, **fields))  # fmt: skip

    def writes(self, job: str, node: str, rank: int | None, *lines: str) -> None:
        """Whole lines of one rank, or of the launcher."""
        self.say(Log(node=node, source="job", job=job, rank=rank, text="\n".join(lines)))

    def rank(
        self, job: str, number: int, node: str, world_size: int, state: str = "moving", per_node: int = 8,
        step: int | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """One rank, found and sampled once."""
        local = number % per_node
        known = {
            "job": job, "rank": number, "local_rank": local, "world_size": world_size, "local_world_size": per_node,
            "pid": 40000 + number, "start_ticks": 1000 + number, "uid": 1000, "gpu": str(local), "launcher": "torchrun",
            "source": "environ",
        }  # fmt: skip
        known.update(fields)
        self.say(Rank(node=node, **known))
        if known.get("status", "present") == "present":
            self.moves(job, number, node, state, step, pid=known["pid"], start_ticks=known["start_ticks"])

    def moves(
        self, job: str, number: int, node: str, state: str = "moving", step: int | None = None, **fields: Any
    ) -> None:
        """What a rank did in the last tick."""
        busy = state == "moving"
        known = {
            "pid": 40000 + number, "start_ticks": 1000 + number, "proc_state": {"uninterruptible": "D"}.get(state, "R"),
            "cpu_pct": 97.0 + number % 5 if busy else 0.0, "rss_bytes": int((3 + number % 4 / 8) * GIB), "threads": 41,
            "ctx_switches_s": 1200.0 + number if busy else 0.0,
            "wchan": {"uninterruptible": "nfs_wait_bit_killable"}.get(state, "0" if busy else "futex_do_wait"),
        }  # fmt: skip
        known.update(fields)
        self.say(RankStat(node=node, job=job, rank=number, state=state, step=step, **known))  # type: ignore[arg-type]

    def process(self, node: str, number: int, cmdline: str) -> None:
        self.say(
            Process(
                node=node, pid=40000 + number, start_ticks=1000 + number, ppid=1, uid=1000, comm="python",
                cmdline=cmdline, role="rank",
            )
        )  # fmt: skip

    def finding(self, id: str, severity: str, text: str, culprits: Sequence[str] = (), **fields: Any) -> None:
        self.say(
            Finding(
                id=id, severity=severity, confidence="certain", text=text, culprits=tuple(culprits),  # type: ignore[arg-type]
                first_seen=self.at, **fields,
            )
        )  # fmt: skip

    # -- clocks and lateness -------------------------------------------------------------------------------------------

    def clocks(self, *names: str, windows: int = 6, bound_ns: int = 9_000) -> None:
        """Some windows of these nodes (all, without any), each compared with three others; the first is reference."""
        nodes = list(names or self.names)
        for window in range(1, windows + 1):
            for place, name in enumerate(nodes):
                for other in sorted({nodes[(place + step) % len(nodes)] for step in (1, 2, 5)} - {name}):
                    self.say(
                        ClockWindow(
                            node=name, dst=other, window_id=window, centre=self.at, width_ns=4 * SECOND, alpha=1.00001,
                            beta_ns=1000 * place, bound_ns=bound_ns + 100 * place, pairs=2400, kept=2398, lost=2,
                            min_rtt_ns=2 * bound_ns, residual_ns=120 - 7 * place, stamps="kernel_rx",
                            flagged=place == 3, status="ok",
                        )
                    )  # fmt: skip
                self.say(
                    ClockSource(node=name, daemon="chrony", synced=place != 2, offset_ns=3_000 * place, source="ntp1",
                                bound_ns=None if place == 2 else 40_000, text="" if place != 2 else "no source"),
                    ClockNode(
                        node=name, window_id=window, reference=nodes[0], at_mono=self.at - SECOND,
                        at_common=self.at - SECOND + 900 * place, alpha=1.0,
                        offset_ns=812_000 if place == 2 else 700 * place,
                        drift_ppm=0.7 * place - 2.0 if place else 0.0, drift_bound_ppm=2.1,
                        bound_ns=(bound_ns + 500 * place) if place else 0, repeat_ns=210, edges=6,
                        min_rtt_ns=2 * bound_ns, stamps="kernel_rx", warnings=("asym",) if place == 3 else (),
                    ),
                )  # fmt: skip
            self.later(4)

    def snapshots(self, *names: str) -> None:
        """The nodes' own clocks read against each other: all the same here."""
        for name in names or self.names:
            self.say(
                ClockSnapshot(
                    node=name, real=self.at, monotonic=self.at, raw=self.at, boot=self.at, width_ns=200, reads=10
                )
            )  # fmt: skip

    def collectives(
        self, job: str, ranks: int, late: dict[int, float], *, per_node: int = 8, count: int = 40, capture: str = "skew"
    ) -> None:
        """What the Flight Recorder of each rank has: all_reduce every 100 ms, some ranks so many ms late."""
        for seq in range(count):
            for rank in range(ranks):
                node = self.names[rank // per_node % len(self.names)]
                began = self.at + seq * SECOND // 10 + (rank * 7 + seq * 3) % 11 * 2_000
                began += int(late.get(rank, 0.0) * 1e6)
                self.say(
                    Collective(
                        node=node, capture=capture, source="worker_server", job=job, rank=rank, record_id=seq,
                        process_group=("0", "default_pg"), collective_seq_id=seq, profiling_name="nccl:all_reduce",
                        time_created_ns=began, time_discovered_completed_ns=began + SECOND // 20, group_size=ranks,
                    )
                )  # fmt: skip

    def later(self, seconds: float) -> None:
        self.at += int(seconds * SECOND)

    # -- the screen --------------------------------------------------------------------------------------------------

    def app(self, **changes: Any) -> ConsoleApp:
        """The console on this cluster, its clock standing at `self.at`."""
        arguments: dict[str, Any] = {"cluster": self.cluster, "expected_nodes": list(self.names), "now": self.now}
        arguments["say"] = self.say
        return ConsoleApp(self.store, self, **(arguments | changes))


def compared() -> Cluster:
    """64 nodes whose clocks are compared, and a job on them of which one rank, and all of one node, are late."""
    cluster = Cluster(*(f"node{i:03}" for i in range(1, 65)))
    cluster.up()
    cluster.job("llama-70b", 64, per_node=1, step=18_204)
    cluster.snapshots()
    cluster.clocks()
    cluster.snapshots()
    cluster.collectives("llama-70b", 64, {17: 20.0, 5: 2.0, 40: 0.2}, per_node=1)
    cluster.up()
    return cluster


def demo() -> Cluster:
    """What `gconsole demo` looks like: 4 nodes, 8 simulated GPUs each, a ring of 8 ranks that moves."""
    cluster = Cluster("node1", "node2", "node3", "node4", cluster="demo")
    cluster.up(simulated=True)
    figures = ([97.0, 3.0, 88.0, 100.0], [12.0, 55.0, 74.0], [91.0], [64.0, 0.0, 98.0])
    for name, util in zip(cluster.names, figures, strict=True):
        cluster.gpus(name, simulated=True, util=util)
    cluster.job("demo-ring", 8, per_node=2, launcher="plain")
    return cluster


def started() -> Cluster:
    """Four nodes on which gconsole started jobs: one runs, one has failed, one was stopped; another was only found."""
    cluster = Cluster("node1", "node2", "node3", "node4")
    cluster.up()
    oom = "rank 5 (local rank 1) ended with signal 9; the kernel's OOM killer ended 1 process(es) of its cgroup"
    cluster.starts("eval-77aa02", "node3", "node4", procs=4, state="completed", exit_code=0, ended=cluster.at)
    cluster.on_node("eval-77aa02", "node4", 1, "failed", exit_code=1, reason=oom, ended=cluster.at)
    cluster.starts("sweep-0b1c2d", "node1", procs=1, launcher="env", state="stopped", signal=15, ended=cluster.at)
    cluster.at += 10 * SECOND
    cluster.starts("train-3f9a1c", procs=8)
    cluster.up()
    cluster.job("train-3f9a1c@10.1.0.1:29517", 32, states={9: "stuck"}, step=812)
    cluster.job("demo-ring@10.1.0.9:29500", 4, per_node=1, launcher="Slurm")
    for rank in range(32):
        node = cluster.names[rank // 8]
        cluster.writes("train-3f9a1c", node, rank, "step 811 loss 2.33", *(["a slow batch"] if rank == 9 else []),
                       "step 812 loss 2.31")  # fmt: skip
    cluster.writes("train-3f9a1c", "node2", None, "[W socket.cpp:697] a warning with \x1b[31mcolour\x1b[0m")
    return cluster


def pod() -> Cluster:
    """A bad night: 64 nodes of which two are gone, 512 ranks of which one is stuck in I/O and eight cannot be seen."""
    cluster = Cluster(*(f"node{i:03}" for i in range(1, 65)))
    cluster.up(*(name for name in cluster.names if name != "node033"))
    remedy = "ssh-add ~/.ssh/id_ed25519, or set identity_file in hosts.toml"
    cluster.fails("node033", "auth", "the key was refused", remedy)
    for i, name in enumerate(cluster.names):
        if name != "node033":
            util = [96.0, 98.0, 99.0, 97.0] if i != 18 else [99.0, 98.0, 99.0, 97.0, 12.0]
            cluster.gpus(name, util=util)
    absent = range(32 * 8, 33 * 8)
    states = {137: "uninterruptible", 138: "idle"}
    cluster.job("llama-70b", 512, absent=absent, states=states, step=18_204)
    cluster.moves("llama-70b", 137, "node018", "uninterruptible", 18_203)
    cluster.finding("rank_blocked", "error", "rank 137 sleeps in nfs_wait_bit_killable, 41 s", ["rank 137"])
    cluster.finding("gpu_throttle", "warning", "node019 gpu4 hw_thermal_slowdown 38 % of 5 min", ["node019"])
    cluster.later(12)
    cluster.up(*(name for name in cluster.names if name not in ("node033", "node044")))
    cluster.loses("node044", "the connection ended")
    return cluster


def busy_night() -> Cluster:
    """The pod with something of everything in its events, and one node of which much is known."""
    cluster = pod()
    cluster.star = "node018"
    for number in (136, 137):
        cluster.process("node018", number, "python train.py --config llama-70b.toml --data /data/web")
    cluster.say(
        Log(node="node019", source="kernel", severity="error", text="NVRM: Xid 79, GPU has fallen off the bus",
            try_="nvidia-smi -r -i 4"),
        Log(node="node002", source="agent", text="py-spy staged"),
        Gap(node="node007", source="buffer", reason="the console was slow", count=1200),
        Mark(text="switched the fabric over"),
        Node(
            node="node018", hostname="pod-a-18.example.org", boot_id="0b9c7d42", kernel="5.15.0-107-generic",
            arch="x86_64", python="3.10.12", os="Ubuntu 22.04.4 LTS", cpus=192, mem_total_bytes=2015 << 30, uid=1000,
            user="ops", pid=4711, sample_interval_ms=1000, ptrace_scope=1, capabilities=("psutil", "psi", "gpu"),
            missing=(Missing("py-spy", "ptrace is restricted to descendants", "sysctl kernel.yama.ptrace_scope=0"),),
        ),
        Host(
            node="node018", cpu_pct=71.2, load_1m=130.0, mem_used_bytes=1500 << 30, cpu_stall_pct=3.0,
            mem_stall_pct=0.0, io_stall_pct=41.0, disk_read_bytes_s=3.5e6, disk_write_bytes_s=8e8,
            net_rx_bytes_s=1.2e9, net_tx_bytes_s=1.1e9, swap_used_bytes=0, uptime_s=86_400.0 * 12,
        ),
    )  # fmt: skip
    cluster.rank("llama-70b", 9, "node002", 512, status="exited", reason="signal 9", pid=40009)
    return cluster
