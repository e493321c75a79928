"""Jobs that gconsole started here: `job` and `job_node` records from their folders, and followed output."""

from ..clocks import stamps
from ..jobs import job_dir, output
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..agent.agent import Agent
    from ..jobs.output import Follower
    from .base import Context, Fact, Fields

#: Seconds between two reads of followed output.
FOLLOWED_S = 0.2
#: Seconds between two reads of the job folders.
EVERY_S = 1.0
#: Reads of the output of a job that has ended, of at most READ_BYTES of each file, in one tick.
MOST_READS = 4
#: Seconds since its end for which the output of a job that failed is sent to a console that comes later.
RECENT_S = 3600
_SPEC_FIELDS = (
    "job", "command", "launcher", "nodes", "procs_per_node", "gpus_per_node", "world_size", "master_addr",
    "master_port", "workdir", "created",
)  # fmt: skip


class JobSampler(Sampler):
    """Records on change; a finished job is not read again.

    Where the output of a job is followed, the record of its end comes after all of it.
    """

    name = "jobs"
    finest_s = FOLLOWED_S

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(JobSampler, self).__init__(context)
        self._agent = agent
        self._sent: dict[str, Fields] = {}  # job: the fields of its last record
        self._ended: dict[str, Fields] = {}  # job: its last state, until its output has been sent
        self._due = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks. Shorter while output is followed."""
        return FOLLOWED_S if self._agent.followed else max(EVERY_S, self.context.interval_s)

    def expedite(self) -> None:
        """Read the job folders in the next tick."""
        self._due = 0.0

    def tick(self, now: float) -> "Iterator[Fact]":
        """Changed `job` and `job_node` records, and the followed output."""
        if now >= self._due:
            self._due = now + EVERY_S * 0.9
            for fact in self._states():
                yield fact
        for job, follower in list(self._agent.followed.items()):
            if follower is not None:
                for fact in self._read(job, follower):
                    yield fact
        for job in [job for job in self._ended if job not in self._agent.followed]:
            self._sent[job] = self._ended.pop(job)
            yield "job_node", self._sent[job]

    def _read(self, job: str, follower: "Follower") -> "Iterator[Fact]":
        """The output since the last call; a job that has ended is followed until its output has been read."""
        is_over = self._has_ended(job, follower)
        for _ in range(MOST_READS if is_over else 1):
            facts = follower.facts(whole=is_over)
            for fact in facts:
                yield fact
            if is_over and (not facts or follower.has_reached_end()):
                if self._agent.followed.get(job) is follower:
                    del self._agent.followed[job]
                    self._agent.left_off[job] = follower
                return

    def _has_ended(self, job: str, follower: "Follower") -> bool:
        """Whether a followed job has ended; an end that is not reported yet waits for the output."""
        last = self._ended.get(job) or self._sent.get(job)
        if last is None:
            return False  # `_states` reports the job first
        if job_dir.is_over(last):
            return True
        fields = job_dir.state_of(follower.folder, follower.spec)
        if not job_dir.is_over(fields):
            return False
        self._ended[job] = fields
        return True

    @staticmethod
    def _failed_recently(fields: "Fields") -> bool:
        """Whether a job had failed, not long ago, before this agent came."""
        ended_ns = fields.get("ended")
        has_failed = fields["state"] == "failed" and fields.get("pid") is not None
        return has_failed and ended_ns is not None and stamps.realtime_ns() - ended_ns < RECENT_S * 1e9

    def _states(self) -> "Iterator[Fact]":
        folders = job_dir.all_folders(self._agent.place.root)
        if not folders and not self._sent:
            return  # as on most nodes
        here = set()
        for folder, spec in job_dir.of_node(folders, job_dir.identity_of(self.context)):
            job = spec["job"]
            here.add(job)
            last = self._sent.get(job)
            if job in self._ended or (last is not None and job_dir.is_over(last)):
                continue
            fields = job_dir.state_of(folder, spec)
            if last is None:
                yield "job", {name: spec[name] for name in _SPEC_FIELDS}
            if job_dir.is_over(fields) and job in self._agent.followed:
                self._ended[job] = fields
            elif fields != last:
                self._sent[job] = fields
                yield "job_node", fields
                if last is None and self._failed_recently(fields):
                    for fact in output.last_outputs(folder, spec, fields):
                        yield fact
        for job, last in self._sent.items():
            if job not in here and not job_dir.is_over(last):
                self._sent[job] = dict(
                    last, state="failed", reason="not started: it could not be started on another node"
                )
                yield "job_node", self._sent[job]
