"""Scheduler jobs as targets: the nodes of a Slurm job, the pods of a Kubernetes job."""

from .command import SchedulerError
from .targets import AttachedJob, AttachedNode, attach, is_site_target

__all__ = ["AttachedJob", "AttachedNode", "SchedulerError", "attach", "is_site_target"]
