"""A TARGET that names a job of the site instead of machines: slurm:JOBID, k8s:NAMESPACE/SELECTOR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..config.exec_engine import Engine
from . import kubernetes, slurm


class Place(msgspec.Struct, frozen=True):
    """One node of an attached job, and how its agent is started."""

    name: str
    engine: Engine


class Attached(msgspec.Struct, frozen=True):
    """What a site's scheduler says of a job: at least one place, and what is worth a warning."""

    places: tuple[Place, ...]
    warnings: tuple[str, ...] = ()


def is_site_target(target: str) -> bool:
    """Whether TARGET begins with the name of a scheduler that is known here."""
    return target.partition(":")[0] in _KINDS


def attach(target: str) -> Attached:
    """Ask the scheduler. Raises SiteError: no such job, not running, not allowed, no such program, no answer."""
    kind, _, name = target.partition(":")
    return _KINDS[kind](name)


def _slurm(job: str) -> Attached:
    return Attached(tuple(Place(node, step) for node, step in slurm.steps_of(job)))


def _kubernetes(name: str) -> Attached:
    pods, warnings = kubernetes.pods_of(name)
    return Attached(tuple(Place(pod.pod, pod) for pod in pods), warnings)


_KINDS: Final[Mapping[str, Callable[[str], Attached]]] = {"slurm": _slurm, "k8s": _kubernetes}
