"""A fake cluster: records applied to a real store, at a fixed instant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gconsole.config.diff import Changes, difference
from gconsole.config.load import more_nodes
from gconsole.config.model import Change, Config, ReadOnly, refusal
from gconsole.config.sections import ConsoleConfig, RunConfig
from gconsole.core.control import (
    ActiveRecording,
    BlackBoxStatus,
    CaptureRequest,
    CaptureResult,
    KeptRecords,
    NodeCaptureCounts,
    Selection,
)
from gconsole.core.evaluation import Evaluated, RankProcess
from gconsole.core.job_protocol import (
    FileList,
    NodeOrder,
    NodeStop,
    Readiness,
    ReadinessRequest,
    Synced,
    SyncFolder,
)
from gconsole.core.store import Store
from gconsole.monitor.hang import VARIABLES
from gconsole.records import (
    AgentCost,
    ClockNode,
    ClockSnapshot,
    ClockSource,
    ClockWindow,
    Collective,
    Failure,
    Finding,
    Gpu,
    GpuInfo,
    Host,
    Job,
    JobNode,
    Local,
    Log,
    Mark,
    Node,
    NodeState,
    PgStatus,
    Process,
    Rank,
    RankStat,
    Record,
    Stack,
    StackFrame,
)
from gconsole.records.process import JobNodeState
from gconsole.session.format.layout import SessionError
from gconsole.tui.app import ConsoleApp
from gconsole.tui.controllers.clusters import ClusterSource
from gconsole.tui.controllers.job_tasks import JobSource

if TYPE_CHECKING:
    from gconsole.fleet.survey import NodeReply

SECOND = 1_000_000_000
NOON = 1_700_049_600 * SECOND  # 2023-11-15 12:00:00 UTC
GIB = 1 << 30
_C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
_TRAIN = "/home/user/job/train.py"
ALL_REDUCE = (
    StackFrame("<module>", _TRAIN, 212),
    StackFrame("train_step", _TRAIN, 150),
    StackFrame("all_reduce", _C10D, 3252),
)
LOADER = (
    StackFrame("<module>", _TRAIN, 212), StackFrame("next_batch", "/home/user/job/loader.py", 61),
    StackFrame("load_shard", "/home/user/job/dataset.py", 88, source="return open(path).read()"),
)  # fmt: skip


class ConfiguredNode(NamedTuple):
    """A node as configured."""

    name: str
    process_filter: tuple[str, str] | None = None


class FakeEvaluator:
    """Evaluates every expression to `answer`, on the nodes of `allowed`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.allowed: set[str] = set()
        self.answer: Evaluated | Failure = Evaluated(
            "value", "bool", "True\nsecond line", "train.py:3 main", "gdb", 0.2
        )
        self._cluster = cluster

    def allows(self, node: str) -> bool:
        return node in self.allowed

    async def evaluate(self, rank: RankProcess, expression: str, timeout_s: float) -> Evaluated | Failure:
        self._cluster.calls.append(("evaluate", f"{expression} in rank {rank.rank} on {rank.node}"))
        return self.answer


class FakeRecordings:
    """Recordings without files; `trouble` is the error of their disk."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.trouble = ""
        self.path: Path | None = None  # of the newest recording
        self._cluster = cluster
        self._running: dict[str, int] = {}
        self.box: BlackBoxStatus | None = None
        self.selections: dict[str, Selection | None] = {}  # by name of the recording

    def active(self) -> list[ActiveRecording]:
        return [
            ActiveRecording(name, began, 12_345, 678_901, self.trouble, self.path)
            for name, began in self._running.items()
        ]

    async def start(self, name: str, selection: Selection | None = None, since_s: float = 0.0) -> bool:
        self.selections[name] = selection
        if name == "taken":
            raise SessionError("session taken exists already; try another name")
        self._cluster.calls.append((f"record since {since_s:g} s" if since_s else "record", name))
        self._running[name] = self._cluster.now_ns
        return name == "crashed"

    def black_box(self) -> BlackBoxStatus | None:
        return self.box

    async def keep_last(self, name: str, last_s: float) -> KeptRecords:
        if name == "taken":
            raise SessionError("session taken exists already; try another name")
        self._cluster.calls.append((f"keep {last_s:g} s", name))
        now = self._cluster.now_ns
        return KeptRecords(Path(name), now - 252 * SECOND, now, 12_345, 678_901, int(last_s * SECOND), False)

    async def stop(self, name: str) -> ActiveRecording:
        self._cluster.calls.append(("record no more", name))
        return ActiveRecording(name, self._running.pop(name), 12_345, 678_901, self.trouble)


class FakeCluster:
    """Publishes records of nodes, GPUs and jobs. Every method may be called again with new values."""

    def __init__(self, *names: str, cluster: str = "h100-pod") -> None:
        self.names = list(names)
        self.cluster = cluster
        self.python_version = "3.10.12"  # in the doctor's reply of every node
        self.detailed_node = names[0] if names else ""  # the node with the most records
        self.store = Store()
        self.now_ns = NOON
        self.wants: dict[str, tuple[object, ...]] = {}  # by who wants figures
        self.is_hidden = False  # while another cluster is on the screen
        self.calls: list[tuple[str, str]] = []  # calls of `Control` methods, in order
        self.rank_frames: dict[int, tuple[StackFrame, ...]] = {}  # by rank; the others are in all_reduce
        self.variables: tuple[str, ...] = ()  # requested by the newest capture
        self.library_records: list[Collective | PgStatus] = []  # of communication libraries, in a capture
        self.capture_gate: asyncio.Event | None = None  # a capture waits for it
        self.job_gate: asyncio.Event | None = None  # a start and the read of a file wait for it
        self.job_failures: dict[str, Failure] = {}  # of nodes on which nothing starts and nothing is copied
        self.evaluator = FakeEvaluator(self)
        self.recordings = FakeRecordings(self)
        self.read_only = False
        self._seq = 0
        for name in names:
            self.publish(NodeState(node=name, state="expected"))

    # -- Control -----------------------------------------------------------------------------------------------------

    async def reconnect(self, node: str) -> None:
        if node not in self.names:
            raise KeyError(node)
        self.calls.append(("reconnect", node))

    async def remove_node(self, node: str) -> None:
        self.calls.append(("remove", node))
        self.names.remove(node)
        self.publish(NodeState(node=node, state="removed"))

    async def mark(self, text: str) -> None:
        self.calls.append(("mark", text))
        self.publish(Mark(text=text))

    async def add_nodes(self, names: str) -> Sequence[str]:
        listed = [node.name for node in more_nodes(Config(cluster=self.cluster, nodes=()), names)]
        new = [name for name in listed if name not in self.names]
        self.calls.append(("add", ",".join(new)))
        self.names += new
        self.publish(*(NodeState(node=name, state="expected") for name in new))
        return new

    def want(self, who: str, *wants: object) -> None:
        self.wants[who] = wants

    def in_background(self, is_hidden: bool) -> None:
        self.is_hidden = is_hidden

    def request_clock_probes(self, requester: str, wanted: bool) -> None:
        if wanted:
            self.calls.append(("clocks", requester))

    async def apply(self, config: Config) -> Changes:
        self.calls.append(("apply", config.cluster))
        removed = tuple(name for name in self.names if name not in {node.name for node in config.nodes})
        followed = difference(Config(cluster="", nodes=()), Config(cluster="", nodes=(), watch=config.watch)).followed
        return Changes(removed=removed, followed=followed)

    async def examine(self, nodes: Sequence[str]) -> Sequence[NodeReply]:
        from gconsole.fleet.survey import NodeReply  # loads asyncssh, which the consoles of test_serve.py do not need

        self.calls.append(("examine", ",".join(nodes)))
        return [
            NodeReply(name, value=[{"name": "python", "state": "ok", "text": self.python_version}]) for name in nodes
        ]

    async def profile(self, blocks: int) -> Sequence[NodeReply]:
        """Samples of every present rank: rank 1 loads data while the others wait for it."""
        from gconsole.fleet.survey import NodeReply

        self.calls.append(("profile", str(blocks)))
        step, c10d = "<module> (/job/train.py:9);step (/job/train.py:4)", "torch/distributed/distributed_c10d.py"
        waits = f"{step};all_reduce (/venv/lib/python3.11/site-packages/{c10d}:3)"
        loads = f"{step};decode (/job/data.py:7)"
        by_node: dict[str, list[dict[str, object]]] = {}
        for now in self.store.ranks.values():
            counts = [[loads, 30], [waits, 10]] if now.rank.rank == 1 else [[waits, 36], [loads, 4]]
            by_node.setdefault(now.rank.node, []).append({
                "job": now.rank.job, "attempt": now.rank.attempt, "rank": now.rank.rank, "blocks": [counts] * blocks,
                "counters": {"cpu_s": 5.0},
            })  # fmt: skip
        return [NodeReply(node, value={"ranks": ranks, "wall_s": 10.0}) for node, ranks in by_node.items()]

    async def capture(self, request: CaptureRequest) -> CaptureResult:
        """Stacks of every present rank from `rank_frames`, by default in all_reduce; advances the clock per sample."""
        self.calls.append(("capture", str(request.samples)))
        self.variables = tuple(name for name in request.locals if name not in VARIABLES)
        if self.capture_gate is not None:
            await self.capture_gate.wait()
        ranks = [now.rank for now in self.store.ranks.values() if now.rank.status == "present"]
        for sample in range(request.samples):
            self.publish(*(self._stack(request, sample, rank) for rank in ranks))
            self.now_ns += int(max(request.every_s, 3.0) * SECOND)
        self.publish(*(msgspec.structs.replace(record, capture=request.id) for record in self.library_records))
        counts = NodeCaptureCounts(len(ranks), len(ranks), request.samples, {"ok": len(ranks)}, 0, 0, 0)
        return CaptureResult(request.id, self.now_ns, dict.fromkeys(sorted({rank.node for rank in ranks}), counts), {})

    def _stack(self, request: CaptureRequest, sample: int, rank: Rank) -> Stack:
        frames = self.rank_frames.get(rank.rank or 0, ALL_REDUCE)
        return Stack(
            node=rank.node, capture=request.id, sample=sample, at=self.now_ns, job=rank.job, attempt=rank.attempt,
            rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks, status="ok", engine="py-spy",
            looked=self.now_ns, began=self.now_ns, ended=self.now_ns + SECOND // 100, proc_state="S", cpu_s=9.0,
            syscall="pread64" if frames is LOADER else "futex", cpu_delta_s=0.0 if sample else None,
            ctx_switches=7, ctx_switches_delta=0 if sample else None, tracer_pid=0, thread_id=1, os_thread_id=rank.pid,
            thread_name="MainThread", active=False, gil=False, frames=frames,
            locals=tuple(Local(1, name, str(1700 + (rank.rank or 0))) for name in self.variables) or None,
        )  # fmt: skip

    def refusal(self, change: Change) -> ReadOnly | None:
        return refusal(ConsoleConfig(read_only=self.read_only), change)

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> dict[str, Failure]:
        self.calls.append(("watch" if wanted else "watch no more", f"{job} on {','.join(nodes)}"))
        return {}

    async def probe_job(self, nodes: Sequence[str], request: ReadinessRequest) -> dict[str, Readiness | Failure]:
        """Every node is ready."""
        self.calls.append(("probe job", ",".join(nodes)))
        addresses = {node: (("eth0", f"10.1.0.{number}", 24),) for number, node in enumerate(self.names, 1)}
        return {
            node: Readiness("/home/ops", (), request.ports[0], addresses[node], None, 1 << 40) for node in nodes
        }  # fmt: skip

    async def sync_folder(self, nodes: Sequence[str], folder: SyncFolder, workdir: str) -> dict[str, Synced | Failure]:
        self.calls.append(("sync", f"{len(folder.files)} files to {workdir} on {','.join(nodes)}"))
        return dict.fromkeys(nodes, Synced(len(folder.files), folder.bytes)) | self.job_failures

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> dict[str, Failure]:
        """Starts on every node, unless `job_failures`; waits for `job_gate`."""
        first = next(iter(orders.values()))
        self.calls.append(("start job", f"{' '.join(first.command)} on {','.join(orders)}"))
        if self.job_gate is not None:
            await self.job_gate.wait()
        if not self.job_failures:
            self.order_job(first.job, *orders, procs=first.procs_per_node, launcher=first.launcher)
        return self.job_failures

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """`path` is a folder with one file for each job."""
        self.calls.append(("list files", f"{path} of {job} on {node}"))
        if node in self.job_failures:
            return self.job_failures[node]
        return FileList(f"/home/ops/{path}", ((f"{job}.txt", 3),))

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        if self.job_gate is not None:
            await self.job_gate.wait()
        return node[-1:].encode() * 3, True

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> dict[str, NodeStop | Failure]:
        """Every connected node stops it."""
        self.calls.append(("stop job", f"{job} on {','.join(nodes)}"))
        replies: dict[str, NodeStop | Failure] = {}
        for node in nodes:
            now = self.store.nodes[node].state
            is_here = now is not None and now.state == "ok"
            replies[node] = NodeStop(8, (), "stopped", "running") if is_here else Failure("lost", "no word for 3 s")
        return replies

    async def stop(self) -> None:
        self.calls.append(("stop", ""))

    # -- records -----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.now_ns

    def publish(self, *records: Record) -> None:
        """Fold records as if they had arrived now."""
        for record in records:
            self._seq += 1
            record.seq = self._seq
            record.agent = record.agent or f"agent-of-{record.node}"
            record.t = record.mono = record.rx = self.now_ns
        self.store.apply(records)

    def up(self, *names: str, simulated: bool = False, missing: Sequence[Any] = ()) -> None:
        """These nodes (default: all) are connected and have sent a full tick."""
        for name in names or self.names:
            self.publish(
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

    def fail(self, name: str, error: str, text: str, try_: str = "") -> None:
        self.publish(NodeState(node=name, state="failed", attempt=1, error=Failure(error, text, try_)))

    def lose(self, name: str, text: str = "no word for 3 s", try_: str = "it is tried again by itself") -> None:
        failure = Failure("lost", text, try_)
        self.publish(NodeState(node=name, state="lost", attempt=1, retry_at=self.now_ns + 4 * SECOND, error=failure))

    def gpus(self, *names: str, count: int = 8, simulated: bool = False, util: Sequence[float] | None = None) -> None:
        """GPUs of these nodes (default: all), each with slightly different values."""
        for name in names or self.names:
            for index in range(count):
                busy = util[index % len(util)] if util else 93.0 + (index * 7 + len(name)) % 7
                uuid = f"GPU-{name}-{index}"
                self.publish(
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
        """A job over the nodes in their order; `states` has the ranks that are not moving."""
        states = states or {}
        first = 40000 + 1000 * len({now.rank.job for now in self.store.ranks.values()} - {name})
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

    def order_job(
        self, name: str, *nodes: str, procs: int = 8, state: JobNodeState = "running", launcher: str = "torchrun",
        **fields: Any,
    ) -> None:  # fmt: skip
        """A job that gconsole started on these nodes (default: all), with this state on each."""
        job_nodes = nodes or tuple(self.names)
        for index, node in enumerate(job_nodes):
            self.publish(
                Job(
                    node=node, job=name, command=("/venv/bin/python", "train.py", "--lr", "1e-4"), launcher=launcher,
                    nodes=job_nodes, procs_per_node=procs, gpus_per_node=procs, world_size=procs * len(job_nodes),
                    master_addr="10.1.0.1", master_port=29517, workdir="/home/ops/llama",
                    created=self.now_ns - 131 * SECOND,
                )
            )  # fmt: skip
            self.job_on_node(name, node, index, state, **fields)

    def job_on_node(self, job: str, node: str, index: int, state: JobNodeState, **fields: Any) -> None:
        """State of a job on one of its nodes."""
        self.publish(JobNode(node=node, job=job, index=index, state=state, pid=7, start_ticks=9,
                             started=self.now_ns - 130 * SECOND, **fields))  # fmt: skip

    def write_output(self, job: str, node: str, rank: int | None, *lines: str) -> None:
        """Output lines of one rank, or of the launcher."""
        self.publish(Log(node=node, source="job", job=job, rank=rank, text="\n".join(lines)))

    def rank(
        self, job: str, number: int, node: str, world_size: int, state: str = "moving", per_node: int = 8,
        step: int | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """One rank, found and sampled once."""
        local = number % per_node
        values = {
            "job": job, "rank": number, "local_rank": local, "world_size": world_size, "local_world_size": per_node,
            "pid": 40000 + number, "start_ticks": 1000 + number, "uid": 1000, "gpu": str(local), "launcher": "torchrun",
            "source": "environ",
        }  # fmt: skip
        values.update(fields)
        self.publish(Rank(node=node, **values))
        if values.get("status", "present") == "present":
            self.sample_rank(job, number, node, state, step, pid=values["pid"], start_ticks=values["start_ticks"])

    def sample_rank(
        self, job: str, number: int, node: str, state: str = "moving", step: int | None = None, **fields: Any
    ) -> None:
        """Sample of one rank in the last tick."""
        busy = state == "moving"
        values = {
            "pid": 40000 + number, "start_ticks": 1000 + number, "proc_state": {"uninterruptible": "D"}.get(state, "R"),
            "cpu_pct": 97.0 + number % 5 if busy else 0.0, "rss_bytes": int((3 + number % 4 / 8) * GIB), "threads": 41,
            "ctx_switches_s": 1200.0 + number if busy else 0.0,
            "wchan": {"uninterruptible": "nfs_wait_bit_killable"}.get(state, "0" if busy else "futex_do_wait"),
        }  # fmt: skip
        values.update(fields)
        self.publish(RankStat(node=node, job=job, rank=number, state=state, step=step, **values))  # type: ignore[arg-type]

    def process(self, node: str, number: int, cmdline: str) -> None:
        self.publish(
            Process(
                node=node, pid=40000 + number, start_ticks=1000 + number, ppid=1, uid=1000, comm="python",
                cmdline=cmdline, role="rank",
            )
        )  # fmt: skip

    def finding(self, id: str, severity: str, text: str, culprits: Sequence[str] = (), **fields: Any) -> None:
        self.publish(
            Finding(
                id=id, severity=severity, confidence="certain", text=text, culprits=tuple(culprits),  # type: ignore[arg-type]
                first_seen=self.now_ns, **fields,
            )
        )  # fmt: skip

    # -- clocks and lateness -------------------------------------------------------------------------------------------

    def clocks(self, *names: str, windows: int = 6, bound_ns: int = 9_000) -> None:
        """Clock windows of these nodes (default: all), each with three edges; the first node is the reference."""
        nodes = list(names or self.names)
        for window in range(1, windows + 1):
            for index, name in enumerate(nodes):
                for peer in sorted({nodes[(index + step) % len(nodes)] for step in (1, 2, 5)} - {name}):
                    self.publish(
                        ClockWindow(
                            node=name, dst=peer, window_id=window, centre=self.now_ns, width_ns=4 * SECOND,
                            alpha=1.00001, beta_ns=1000 * index, bound_ns=bound_ns + 100 * index, pairs=2400, kept=2398,
                            lost=2, min_rtt_ns=2 * bound_ns, residual_ns=120 - 7 * index, stamps="kernel_rx",
                            flagged=index == 3, status="ok",
                        )
                    )  # fmt: skip
                self.publish(
                    ClockSource(node=name, daemon="chrony", synced=index != 2, offset_ns=3_000 * index, source="ntp1",
                                bound_ns=None if index == 2 else 40_000, text="" if index != 2 else "no source"),
                    ClockNode(
                        node=name, window_id=window, reference=nodes[0], at_mono=self.now_ns - SECOND,
                        at_common=self.now_ns - SECOND + 900 * index, alpha=1.0,
                        offset_ns=812_000 if index == 2 else 700 * index,
                        drift_ppm=0.7 * index - 2.0 if index else 0.0, drift_bound_ppm=2.1,
                        bound_ns=(bound_ns + 500 * index) if index else 0, repeat_ns=210, edges=6,
                        min_rtt_ns=2 * bound_ns, stamps="kernel_rx", warnings=("asym",) if index == 3 else (),
                    ),
                )  # fmt: skip
            self.advance(4)

    def snapshots(self, *names: str) -> None:
        """Snapshots of the nodes' own clocks: all clocks read the same."""
        for name in names or self.names:
            self.publish(
                ClockSnapshot(
                    node=name, real=self.now_ns, monotonic=self.now_ns, raw=self.now_ns, boot=self.now_ns,
                    width_ns=200, reads=10,
                )
            )  # fmt: skip

    def collectives(
        self, job: str, ranks: int, late: dict[int, float], *, per_node: int = 8, count: int = 40, capture: str = "skew"
    ) -> None:
        """Flight Recorder entries of each rank: all_reduce every 100 ms; `late` has the lateness of ranks in ms."""
        for seq in range(count):
            for rank in range(ranks):
                node = self.names[rank // per_node % len(self.names)]
                began = self.now_ns + seq * SECOND // 10 + (rank * 7 + seq * 3) % 11 * 2_000
                began += int(late.get(rank, 0.0) * 1e6)
                self.publish(
                    Collective(
                        node=node, capture=capture, source="worker_server", job=job, rank=rank, record_id=seq,
                        process_group=("0", "default_pg"), collective_seq_id=seq, profiling_name="nccl:all_reduce",
                        time_created_ns=began, time_discovered_completed_ns=began + SECOND // 20, group_size=ranks,
                    )
                )  # fmt: skip

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)

    # -- the screen --------------------------------------------------------------------------------------------------

    def app(self, **changes: Any) -> ConsoleApp:
        """The console on this cluster, with its clock at `self.now_ns`."""
        arguments: dict[str, Any] = {"cluster": self.cluster, "expected_nodes": list(self.names), "now": self.now}
        arguments["publish"] = self.publish
        arguments |= {"job_source": self.job_source, "evaluator": self.evaluator}
        return ConsoleApp(self.store, self, **(arguments | changes))

    @property
    def job_source(self) -> JobSource:
        """Reads jobs as the command line does."""
        from gconsole.cli.run_options import request_in

        return JobSource(
            lambda text: request_in(text, RunConfig()), lambda: [ConfiguredNode(name) for name in self.names]
        )

    def source(self, **changes: Any) -> ClusterSource:
        """This cluster as a further one of a console."""
        return ClusterSource(self.store, self, self.cluster, list(self.names), now=self.now, **changes)
