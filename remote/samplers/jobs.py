"""Jobs that gconsole started here: `job` and `job_node` records from their folders, and the output somebody follows."""

from ..jobs import job_dir, state
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields

#: While somebody reads along.
FOLLOWED_S = 0.2
#: The folders are looked at this often.
EVERY_S = 1.0
_ORDERED = (
    "job", "command", "launcher", "nodes", "procs_per_node", "gpus_per_node", "world_size", "master_addr",
    "master_port", "workdir", "created",
)  # fmt: skip


class JobSampler(Sampler):
    """Says what changes; a job that is over is looked at no more."""

    name = "jobs"
    finest_s = FOLLOWED_S

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(JobSampler, self).__init__(context)
        self._agent = agent
        self._said: dict[str, Fields] = {}  # job: the fields of its last record
        self._due = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks. Shorter while output is followed."""
        return FOLLOWED_S if self._agent.followed else max(EVERY_S, self.context.interval_s)

    def tick(self, now: float) -> "Iterator[Fact]":
        """Changed `job` and `job_node` records, and the followed output."""
        if now >= self._due:
            self._due = now + EVERY_S * 0.9
            for fact in self._states():
                yield fact
        for job, follower in list(self._agent.followed.items()):
            over = self._said.get(job) is not None and state.is_over(self._said[job])
            facts = follower.facts(whole=over)
            for fact in facts:
                yield fact
            if over and not facts and self._agent.followed.pop(job, None) is not None:
                self._agent.left_off[job] = follower

    def _states(self) -> "Iterator[Fact]":
        here = set()
        for folder, spec in job_dir.folders(self._agent.place.root, job_dir.identity_of(self.context)):
            job = spec["job"]
            here.add(job)
            last = self._said.get(job)
            if last is not None and state.is_over(last):
                continue
            fields = state.state_of(folder, spec)
            if last is None:
                yield "job", {name: spec[name] for name in _ORDERED}
            if fields != last:
                self._said[job] = fields
                yield "job_node", fields
        for job, last in self._said.items():
            if job not in here and not state.is_over(last):
                self._said[job] = dict(last, state="failed", reason="it was not started: another node could not")
                yield "job_node", self._said[job]
