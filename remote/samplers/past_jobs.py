"""Outputs of jobs that had ended before the agent came, once at its start."""

import os

from ..clocks import stamps
from ..proc.launcher_logs import join_runs, past_logs
from ..proc.procfs import ProcFs
from ..proc.torchrun_logs import past_outputs
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .base import Context, Fact


class PastJobSampler(Sampler):
    """`output` records without a process, of jobs that failed; nothing where the node is a part of its machine."""

    name = "past_jobs"
    waits = True

    def __init__(self, context: "Context") -> None:
        super(PastJobSampler, self).__init__(context)
        self._is_done = bool(context.simulate_gpus or context.process_filter)
        self.folders = (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp")  # noqa: S108 - searched, not written

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks, of which only the first one reads."""
        return 60.0

    def tick(self, now: float) -> "Iterator[Fact]":
        """Yield the outputs, once."""
        if self._is_done:
            return
        self._is_done = True
        procfs, now_ns = ProcFs(self.context.proc), stamps.realtime_ns()
        outputs = list(past_outputs(procfs, self.folders, now_ns))
        logs = list(past_logs(procfs, now_ns, self.folders))
        join_runs(logs, outputs)
        for output in outputs + logs:
            yield "output", {
                "job": output.job, "attempt": output.attempt, "rank": None, "pid": None, "start_ticks": None,
                "stream": output.stream, "path": output.path, "status": "ok", "reason": "its job had ended",
                "try_": "", "text": output.text, "size": output.size, "written_at": output.written_ns,
            }  # fmt: skip
