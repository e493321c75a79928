"""Makes a plan with the nodes' own answers: choose, ask those that were chosen, choose again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.control import Control
from ..core.job_protocol import Readiness
from .capacity import NodeFacts
from .plan import Asks, Plan, Refusal, plan, question
from .request import JobRequest


async def make_plan(control: Control, nodes: Sequence[NodeFacts], request: JobRequest, job: str) -> Plan | Refusal:
    """The plan, or why there is none. Every turn asks nodes that were not asked before, so it ends."""
    ready: dict[str, Readiness | str] = {}
    created = time.time_ns()
    while True:
        found = plan(request, job, nodes, ready, created)
        if not isinstance(found, Asks):
            return found
        answers = await control.probe_job(found.nodes, question(request, job))
        for node in found.nodes:
            answer = answers[node]
            ready[node] = answer if isinstance(answer, Readiness) else f"{answer.name}: {answer.text}"
