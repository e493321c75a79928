"""Targets that name a scheduler job: slurm:JOBID, k8s:NAMESPACE/SELECTOR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..config.exec_engine import Engine
from . import kubernetes, slurm


class AttachedNode(msgspec.Struct, frozen=True):
    """One node of an attached job, and the engine that starts its agent."""

    name: str
    engine: Engine


class AttachedJob(msgspec.Struct, frozen=True):
    """The nodes of a scheduler job, at least one, and warnings."""

    places: tuple[AttachedNode, ...]
    warnings: tuple[str, ...] = ()


def is_site_target(target: str) -> bool:
    """Whether TARGET begins with the name of a supported scheduler."""
    return target.partition(":")[0] in _KINDS


def attach(target: str) -> AttachedJob:
    """The nodes of the job, as its scheduler reports them. Raises SchedulerError."""
    kind, _, name = target.partition(":")
    return _KINDS[kind](name)


def _slurm(job: str) -> AttachedJob:
    return AttachedJob(tuple(AttachedNode(node, step) for node, step in slurm.steps_of(job)))


def _kubernetes(name: str) -> AttachedJob:
    pods, warnings = kubernetes.pods_of(name)
    return AttachedJob(tuple(AttachedNode(pod.pod, pod) for pod in pods), warnings)


_KINDS: Final[Mapping[str, Callable[[str], AttachedJob]]] = {"slurm": _slurm, "k8s": _kubernetes}
