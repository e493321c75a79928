"""Synthetic jobs: ranks that are blocked or running, sampled as often as a test requires."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gconsole.analysis.hang.diagnosis import Judgement, diagnose_job
from gconsole.analysis.hang.verdict import Evidence, Still
from gconsole.analysis.jobs import job_table
from gconsole.records import Failure, Local, NodeState, Place, Rank, Stack, StackFrame

SITE = "/opt/venv/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"
C10D = SITE + "torch/distributed/distributed_c10d.py"
TRAIN = "/home/user/job/train.py"
MAIN = StackFrame("<module>", TRAIN, 54)
T0 = 1_800_000_000_000_000_000


def at(line: int, function: str = "step", file: str = TRAIN) -> StackFrame:
    """A frame of the job's own code."""
    return StackFrame(function, file, line)


def collective(name: str = "all_reduce", line: int = 30) -> tuple[StackFrame, ...]:
    return (MAIN, at(line), StackFrame(name, C10D, 3252))


def own(function: str = "load", line: int = 88) -> tuple[StackFrame, ...]:
    return (MAIN, at(line, function))


REDUCE = collective()
SETUP = (MAIN, StackFrame("init_process_group", C10D, 900), StackFrame("_new_process_group_helper", C10D, 1))
LOADER = (MAIN, at(61, "next_batch"), StackFrame("_next_data", SITE + "torch/utils/data/dataloader.py", 1))
SAVE = (MAIN, at(70, "save"), StackFrame("save", SITE + "torch/serialization.py", 600))
LOCKED = (MAIN, at(40, "flush"), StackFrame("wait", LIB + "threading.py", 300))


class Scene:
    """One job of `world` ranks, `per_node` per node, sampled each `every_s` s. Ranks not added were not started."""

    def __init__(
        self, world: int = 4, per_node: int = 2, looks: int = 12, every_s: float = 0.5, job: str = "llama",
        attempt: int = 0,
    ) -> None:  # fmt: skip
        self.world, self.per_node, self.looks, self.every_s = world, per_node, looks, every_s
        self.job, self.attempt = job, attempt
        self.ranks: list[Rank] = []
        self.stacks: list[Stack] = []
        self.nodes = {f"node{number + 1}": "ok" for number in range((world + per_node - 1) // per_node)}
        self.still: dict[tuple[str, int, int], Still] = {}
        self.collectives: tuple = ()
        self.models: tuple = ()
        self.connections: tuple = ()
        self.gpus: dict = {}
        self.longest_pause_s = 0.0
        self.places: dict[tuple[str, int, int], Place] = {}

    def node_of(self, rank: int) -> str:
        return f"node{rank // self.per_node + 1}"

    def rank(
        self, rank: int, *paths: Sequence[StackFrame] | None, state: str = "S", syscall: str | None = "futex",
        wakes: int = 0, threads: Sequence[tuple[str, Sequence[StackFrame]]] = (), gil: str | None = None,
        locals: tuple[Local, ...] | None = None, gpu: str | None = None, from_look: int = 0, **more,
    ) -> Scene:  # fmt: skip
        """Add a rank that cycles through `paths`, one per sample. A path of None has no stack.

        `wakes`: context switches per sample. `gil`: name of the thread that holds the GIL.
        """
        self._add_rank(rank, gpu)
        for look in range(from_look, self.looks):
            frames = paths[look % len(paths)]
            self._look(rank, look, frames, state=state, syscall=syscall, wakes=wakes, threads=threads, gil=gil,
                       locals=locals, **more)  # fmt: skip
        return self

    def moving(self, rank: int, shift: int = 0, paths: Sequence[Sequence[StackFrame]] | None = None) -> Scene:
        """Add a rank that makes progress."""
        walk = paths or (own("forward", 20), own("backward", 24), REDUCE)
        turned = [*walk[shift % len(walk) :], *walk[: shift % len(walk)]]
        return self.rank(rank, *turned, wakes=9)

    def child(self, rank: int, frames: Sequence[StackFrame] | None, role: str = "dataloader_worker", **more) -> Scene:
        for look in range(self.looks):
            self._look(rank, look, frames, role=role, pid=900 + rank, **more)
        return self

    def peer(self, pid: int, frames: Sequence[StackFrame], **more) -> Scene:
        """Add a process outside of the job, on the first node."""
        for look in range(3):
            self._look(0, self.looks - 3 + look, frames, role="peer", pid=pid, **more)
            self.stacks[-1] = msgspec.structs.replace(self.stacks[-1], rank=None)
        return self

    def native(self, rank: int, python: Sequence[StackFrame], calls: Sequence[str]) -> Scene:
        """Add a blocking native read of one rank; `calls` outermost first."""
        frames = (*python, *(StackFrame(call, "/lib/libx.so", 0, native=True) for call in calls))
        self._look(rank, self.looks, frames, native=True, mode="blocking")
        return self

    def exited(self, rank: int, reason: str = "killed by signal 9", code: int | None = None, after_s: float = 0.0):
        record = self._rank(rank)
        record.status, record.reason, record.exit_code = "exited", reason, code
        record.rx = T0 + int(after_s * 1e9)
        self.ranks.append(record)
        return self

    def lost(self, node: str, state: str = "lost") -> Scene:
        self.nodes[node] = state
        return self

    def judged(self, order: int = 1) -> Judgement:
        states = [
            NodeState(node=name, state=state, error=None if state == "ok" else Failure("lost", "silent"))
            for name, state in self.nodes.items()
        ]
        [job] = [job for job in job_table(self.ranks, (), states).jobs if job.job == self.job]
        return diagnose_job(
            Evidence(
                job=job, ranks=tuple(self.ranks), stacks=tuple(self.stacks[::order]), still=self.still,
                nodes=tuple(sorted(name for name, state in self.nodes.items() if state == "ok")),
                models=self.models, collectives=self.collectives, connections=self.connections, gpus=self.gpus,
                longest_pause_s=self.longest_pause_s, places=self.places,
            )
        )  # fmt: skip

    def verdict(self):
        return self.judged().verdict

    def watched(self, rank: int, for_s: float, ago_s: float = 0.0) -> Scene:
        """Add a stall of `for_s` seconds before the capture that ended `ago_s` seconds before the last sample."""
        until_s = (T0 + (self.looks - 1) * self.every_s * 1e9) / 1e9 - ago_s
        self.still[self.node_of(rank), 100 + rank, 7] = Still(until_s, for_s)
        return self

    def light_samples(
        self, rank: int, frames: Sequence[StackFrame], for_s: float, ago_s: float, samples: int = 4
    ) -> Scene:
        """Add light samples of `for_s` seconds in these calls, that ended `ago_s` seconds before the last sample."""
        sampled = T0 + int(((self.looks - 1) * self.every_s - ago_s) * 1e9)
        key = (self.node_of(rank), 100 + rank, 7)
        self.places[key] = Place(
            job=self.job, rank=rank, pid=100 + rank, start_ticks=7, frames=tuple(frames), since=sampled,
            path_since=sampled - int(for_s * 1e9), sampled=sampled, samples=samples,
        )  # fmt: skip
        return self

    def _rank(self, rank: int, gpu: str | None = None) -> Rank:
        return Rank(
            node=self.node_of(rank), job=self.job, attempt=self.attempt, rank=rank, local_rank=rank % self.per_node,
            world_size=self.world, local_world_size=self.per_node, pid=100 + rank, start_ticks=7, source="environ",
            gpu=gpu, rx=T0,
        )  # fmt: skip

    def _add_rank(self, rank: int, gpu: str | None) -> None:
        if all(one.rank != rank for one in self.ranks):
            self.ranks.append(self._rank(rank, gpu))

    def _look(
        self, rank: int, look: int, frames: Sequence[StackFrame] | None, *, state: str = "S",
        syscall: str | None = "futex",
        wakes: int = 0, threads: Sequence[tuple[str, Sequence[StackFrame]]] = (), gil: str | None = None,
        locals: tuple[Local, ...] | None = None, role: str = "rank", pid: int | None = None, status: str = "ok", **more,
    ) -> None:  # fmt: skip
        instant = T0 + int(look * self.every_s * 1e9)
        common = {
            "capture": "c", "sample": look, "job": self.job, "attempt": self.attempt, "rank": rank, "role": role,
            "node": self.node_of(rank), "pid": pid or 100 + rank, "start_ticks": 7, "at": instant, "looked": instant,
            "began": instant, "ended": instant + 10, "proc_state": state, "syscall": syscall, "tracer_pid": 0,
            "ctx_switches": 50 + look * wakes, "locals": locals, **more,
        }  # fmt: skip
        if frames is None:
            status = status if status != "ok" else "no_permission"
            self.stacks.append(Stack(**{"reason": "not allowed", "try_": "use sudo", **common, "status": status}))
            return
        for number, (name, stack) in enumerate((("MainThread", frames), *threads)):
            self.stacks.append(Stack(
                **common, status="ok", thread_name=name, thread_id=number + 1,
                os_thread_id=common["pid"] + number, active=False, gil=name == gil, frames=tuple(stack),
            ))  # fmt: skip


def names(verdict) -> list[tuple[int | None, str]]:
    """(rank, class) of each culprit."""
    return [(culprit.rank, culprit.class_) for culprit in verdict.culprits]
