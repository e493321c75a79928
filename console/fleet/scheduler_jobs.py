"""Scheduler jobs as targets: the nodes of `slurm:JOBID`, the pods of `k8s:NAMESPACE/SELECTOR`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..config.host_types import HOST_PATTERN
from ..config.load import load
from ..config.model import Config, ConfigError, Engine, PodExec, SlurmStep
from ..text.sanitize import printable

#: Seconds. A busy scheduler answers within a few.
TIMEOUT_S = 30.0
_MAX_MESSAGE = 300


class SchedulerError(Exception):
    """The scheduler did not return the job's nodes: `text` is the cause, `try_` the remedy."""

    def __init__(self, text: str, try_: str) -> None:
        super().__init__(f"{text}; {try_}")
        self.text, self.try_ = text, try_


def run_query(argv: list[str], try_: str) -> bytes:
    """The program's standard output. Raises SchedulerError."""
    program = argv[0]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise SchedulerError(f"`{program}` is not installed here", "run gconsole on a login node of the site") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"`{program}` did not respond within {TIMEOUT_S:.0f} s", try_) from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        words = printable(lines[-1][:_MAX_MESSAGE]) if lines else f"exit status {done.returncode}"
        raise SchedulerError(f"{program}: {words}", try_)
    return done.stdout


class AttachedNode(msgspec.Struct, frozen=True):
    """One node of an attached job, and the engine that starts its agent."""

    name: str
    engine: Engine


class AttachedJob(msgspec.Struct, frozen=True):
    """The nodes of a scheduler job, at least one, and warnings."""

    places: tuple[AttachedNode, ...]
    warnings: tuple[str, ...] = ()


def load_configuration(target: str, flags: Mapping[str, object]) -> Config:
    """The configuration of any TARGET, with the nodes of a scheduler job and their launch engines.

    `flags` as for `config.load`. Raises ConfigError.
    """
    if not is_site_target(target):
        return load(target, flags=flags)
    try:
        allocation = attach(target)
    except SchedulerError as error:
        raise ConfigError("target", target, str(error)) from error
    engines = {place.name: place.engine for place in allocation.places}
    config = load(",".join(engines), flags=flags, name=target)
    nodes = tuple(msgspec.structs.replace(node, engine=engines[node.name]) for node in config.nodes)
    return msgspec.structs.replace(config, nodes=nodes, warnings=(*config.warnings, *allocation.warnings))


def is_site_target(target: str) -> bool:
    """Whether TARGET begins with the name of a supported scheduler."""
    return target.partition(":")[0] in _KINDS


def attach(target: str) -> AttachedJob:
    """The nodes of the job, as its scheduler reports them. Raises SchedulerError."""
    kind, _, name = target.partition(":")
    return _KINDS[kind](name)


def _slurm(job: str) -> AttachedJob:
    return AttachedJob(tuple(AttachedNode(node, step) for node, step in steps_of(job)))


def _kubernetes(name: str) -> AttachedJob:
    pods, warnings = pods_of(name)
    return AttachedJob(tuple(AttachedNode(pod.pod, pod) for pod in pods), warnings)


_KINDS: Final[Mapping[str, Callable[[str], AttachedJob]]] = {"slurm": _slurm, "k8s": _kubernetes}


_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
_TRY = "squeue --me lists your jobs"


def steps_of(job: str) -> list[tuple[str, SlurmStep]]:
    """Every node of a running job by name, in Slurm's order. Raises SchedulerError."""
    if not _JOB.fullmatch(job):
        raise SchedulerError(
            f"{job!r} is not a Slurm job id", "write slurm:1234, or slurm:1234_7 for a task of an array"
        )
    output = run_query(["squeue", "--noheader", f"--jobs={job}", "--format=%T %N"], _TRY).decode("utf-8", "replace")
    rows = [line.split() for line in output.splitlines() if line.strip()]
    if not rows:
        raise SchedulerError(f"Slurm has no pending or running job {job}", _TRY)
    if len(rows) > 1:
        raise SchedulerError(f"job {job} is an array of {len(rows)} tasks", f"name one of them: slurm:{job}_0")
    state, *nodes = rows[0]
    if state != "RUNNING" or not nodes:
        raise SchedulerError(f"job {job} is {state.lower()}; it has no nodes yet", "attach when it is running")
    return [(name, SlurmStep(job)) for name in _hosts(nodes[0], job)]


def _hosts(folded: str, job: str) -> list[str]:
    names = run_query(["scontrol", "show", "hostnames", folded], _TRY).decode("utf-8", "replace").split()
    if not names or not all(re.match(HOST_PATTERN, name) for name in names):
        raise SchedulerError(f"scontrol returned no valid node names for {folded!r} of job {job}", _TRY)
    return names


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
        raise SchedulerError(f"{name!r} is not NAMESPACE/SELECTOR", _HOW)
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
