"""The pods of a Kubernetes job, and the command that starts an agent in one."""

from __future__ import annotations

import re

import msgspec

from ..config.exec_engine import PodExec
from .command import SchedulerError, run_query

#: Annotation that names the container kubectl uses by default.
_DEFAULT = "kubectl.kubernetes.io/default-container"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABELS = re.compile(r"[A-Za-z0-9_./=!,() -]+")
#: DNS names, so that a hostile API server cannot inject an option into kubectl.
_POD = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOW = "write k8s:NAMESPACE/SELECTOR, for example k8s:training/job-name=llama"


class _Container(msgspec.Struct, frozen=True):
    name: str


class _Spec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    annotations: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True):
    phase: str = "Unknown"


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...]


def pods_of(name: str) -> tuple[tuple[PodExec, ...], tuple[str, ...]]:
    """The running pods of NAMESPACE/SELECTOR by name, and a warning for each other one. Raises SchedulerError."""
    namespace, _, selector = name.partition("/")
    if not _NAMESPACE.fullmatch(namespace) or not _LABELS.fullmatch(selector):
        raise SchedulerError(f"{name!r} does not name pods", _HOW)
    try_ = f"kubectl get pods --namespace={namespace} --selector={selector}"
    output = run_query(
        ["kubectl", "get", "pods", f"--namespace={namespace}", f"--selector={selector}", "-o", "json"], try_
    )
    try:
        pods = msgspec.json.decode(output, type=_Pods).items
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SchedulerError(f"the pod list of kubectl cannot be parsed: {error}", try_) from None
    strange = [pod.metadata.name for pod in pods if not _POD.fullmatch(pod.metadata.name)]
    if strange:
        raise SchedulerError(f"kubectl returned {strange[0]!r}, which is not a valid pod name", try_)
    running = sorted((pod for pod in pods if pod.status.phase == "Running"), key=lambda pod: pod.metadata.name)
    if not running:
        there = f"; {len(pods)} found, none is running" if pods else ""
        raise SchedulerError(f"no running pod of {name}{there}", try_)
    others = sorted((pod for pod in pods if pod.status.phase != "Running"), key=lambda pod: pod.metadata.name)
    warnings = tuple(f"pod {pod.metadata.name} is {pod.status.phase.lower()}; left out" for pod in others)
    return tuple(PodExec(namespace, pod.metadata.name, _container(pod, try_)) for pod in running), warnings


def _container(pod: _Pod, try_: str) -> str:
    """The container that kubectl would use: the annotated default, else the first."""
    names = [container.name for container in pod.spec.containers]
    chosen = pod.metadata.annotations.get(_DEFAULT, names[0] if names else "")
    if not _NAMESPACE.fullmatch(chosen):
        raise SchedulerError(f"pod {pod.metadata.name} has no valid container name", try_)
    return chosen


def argv(pod: PodExec, command: str) -> list[str]:
    """The command line that runs `command` in the pod's container."""
    return [
        "kubectl", "exec", "--stdin", f"--namespace={pod.namespace}", pod.pod, f"--container={pod.container}", "--",
        "/bin/sh", "-c", command,
    ]  # fmt: skip
