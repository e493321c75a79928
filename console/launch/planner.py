"""Plans a job with preflight answers of the selected nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.control import Control
from ..core.job_protocol import Readiness
from .capacity import NodeCapacity
from .plan import LaunchPlan, PreflightNeeded, Refusal, plan, preflight_request
from .request import JobRequest


async def make_plan(
    control: Control, nodes: Sequence[NodeCapacity], request: JobRequest, job: str
) -> LaunchPlan | Refusal:
    """The plan, or why there is none. Every round asks only nodes that have not been asked, so that it ends."""
    ready: dict[str, Readiness | str] = {}
    created = time.time_ns()
    while True:
        outcome = plan(request, job, nodes, ready, created)
        if not isinstance(outcome, PreflightNeeded):
            return outcome
        answers = await control.probe_job(outcome.nodes, preflight_request(request, job))
        for node in outcome.nodes:
            answer = answers[node]
            ready[node] = answer if isinstance(answer, Readiness) else f"{answer.name}: {answer.text}"
