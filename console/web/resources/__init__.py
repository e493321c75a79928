"""The resources by subject. `OPERATIONS`: every operation but those that describe the API, in the order of the docs."""

from __future__ import annotations

from typing import Final

from ..operation import AnyOperation
from . import events, findings, folders, jobs, metrics, nodes, planning, profiling, query, status

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    status.get_status, status.get_clients, status.get_latest,
    nodes.get_nodes, nodes.get_node, nodes.add_nodes, nodes.remove_node, nodes.examine_nodes, nodes.get_gpus,
    nodes.get_ranks,
    jobs.get_jobs, jobs.get_job, jobs.stop_job, jobs.get_logs, planning.plan_job, planning.start_job,
    folders.send_folder, folders.get_folders, folders.remove_folder,
    findings.get_findings, findings.get_crashes, findings.get_clocks, findings.capture, findings.diagnose_jobs,
    profiling.start, profiling.stop, profiling.sessions, query.run_query, events.get_events, metrics.get_metrics,
)  # fmt: skip
