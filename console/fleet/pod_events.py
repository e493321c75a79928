"""What Kubernetes reports about the pods of a job: warnings of the cluster, and containers that were restarted.

Read by `kubectl` on this machine, as the agents are started. An answer that is refused, invalid or late is one log
line, and is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from ..config.model import PodExec
from ..core.bus import Hub
from ..records import Log
from ..text.sanitize import printable

#: Seconds between two questions, and until one is given up; bytes of an answer at most.
EVERY_S: Final = 30.0
TIMEOUT_S: Final = 10.0
MAX_BYTES: Final = 16 << 20
#: Seconds. Older events are not reported; Kubernetes itself keeps them for an hour.
OLDEST_S: Final = 24 * 3600.0
#: Pods asked about in one command line, and events remembered as reported.
MOST_PODS, MOST_SEEN = 200, 10_000
_MAX_TEXT = 500
T = TypeVar("T")
_TRY = "kubectl describe pod shows all of its events"


class _Object(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _EventMetadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int | None = None
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _EventMetadata = _EventMetadata()
    involved_object: _Object = _Object()
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


class _Events(msgspec.Struct, frozen=True):
    items: tuple[_Event, ...] = ()


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    finished_at: str | None = None


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    last_state: _State = _State()
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _PodMetadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata = _PodMetadata()
    status: _PodStatus = _PodStatus()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


class PodEvents:
    """Asks about the pods of this fleet every `EVERY_S` and publishes each new fact once."""

    def __init__(self, hub: Hub, pods: Iterable[PodExec]) -> None:
        self._hub = hub
        self._pods: dict[str, list[str]] = {}
        for pod in pods:
            self._pods.setdefault(pod.namespace, []).append(pod.pod)
        self._seen: dict[tuple[str, ...], None] = {}
        self._failed: set[str] = set()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._started_ns = time.time_ns()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask, if there are pods."""
        if self._pods:
            self._task = asyncio.create_task(self._run(), name="pod events")

    async def stop(self) -> None:
        """End the question under way."""
        if self._task is not None:
            self._stopped = True
            self._task.cancel()
            for process in tuple(self._running):
                _kill(process)
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            for namespace, pods in self._pods.items():
                for logs in await asyncio.gather(self._events(namespace, pods), self._states(namespace, pods)):
                    self._hub.publish_own(*map(self._dated, logs))
            await asyncio.sleep(EVERY_S)

    async def _events(self, namespace: str, pods: Sequence[str]) -> list[Log]:
        selector = "--field-selector=involvedObject.kind=Pod,type!=Normal"
        answer = await self._ask(["get", "events", f"--namespace={namespace}", selector, "-o", "json"])
        names, now_s = set(pods), time.time()
        return [] if answer is None else [
            log for event in self._decode(answer, _Events, "events").items
            if event.involved_object.name in names and self._is_new(("event", event.metadata.uid, str(_count(event))))
            for log in (_event_log(event),)
            if log.at is None or now_s - log.at / 1e9 <= OLDEST_S
        ]  # fmt: skip

    async def _states(self, namespace: str, pods: Sequence[str]) -> list[Log]:
        argv = ["get", "pods", f"--namespace={namespace}", "-o", "json", "--ignore-not-found", *pods[:MOST_PODS]]
        answer = await self._ask(argv)
        if answer is None:
            return []
        if len(pods) == 1:  # one pod comes without a list
            items: tuple[_Pod, ...] = (self._decode(answer, _Pod, "pods"),) if answer.strip() else ()
        else:
            items = self._decode(answer, _Pods, "pods").items if answer.strip() else ()
        return [log for pod in items if pod.metadata.name in pods for key, log in _state_logs(pod) if self._is_new(key)]

    def _dated(self, log: Log) -> Log:
        return msgspec.structs.replace(log, is_earlier=log.at is not None and log.at < self._started_ns)

    def _is_new(self, key: tuple[str, ...]) -> bool:
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return True

    def _decode(self, answer: bytes, kind: type[T], what: str) -> T:
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._warn(f"the {what} of kubectl cannot be parsed: {error}")
            return kind()

    async def _ask(self, argv: Sequence[str]) -> bytes | None:
        """The answer of kubectl, or None with a warning."""
        answer = await asyncio.to_thread(self._ask_now, argv)
        if isinstance(answer, str):
            self._warn(f"kubectl get {argv[1]}: {answer}")
            return None
        return answer

    def _ask_now(self, argv: Sequence[str]) -> bytes | str:
        """The answer of kubectl, or why there is none."""
        try:
            process = subprocess.Popen(
                ["kubectl", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"does not start: {error.strerror or error}"
        with self._ending(process) as timer:
            assert process.stdout is not None and process.stderr is not None
            answer = process.stdout.read(MAX_BYTES + 1)
            if len(answer) > MAX_BYTES:
                return f"more than {MAX_BYTES >> 20} MiB"
            words = process.stderr.read(4096).decode("utf-8", "replace").strip().splitlines()
            status = process.wait()
            if not timer.is_alive():
                return f"no answer within {TIMEOUT_S:.0f} s"
        return answer if status == 0 else words[-1][:300] if words else f"exit status {status}"

    @contextlib.contextmanager
    def _ending(self, process: subprocess.Popen[bytes]) -> Iterator[threading.Timer]:
        """End the process, with the credential plugins that it started, after `TIMEOUT_S`, on `stop` and on leaving."""
        timer = threading.Timer(TIMEOUT_S, _kill, [process])
        timer.start()
        self._running.add(process)
        try:
            if self._stopped:
                _kill(process)
            yield timer
        finally:
            timer.cancel()
            self._running.discard(process)
            _kill(process)
            process.communicate()

    def _warn(self, text: str) -> None:
        """Publish a failure once."""
        text = printable(text)
        if text not in self._failed and len(self._failed) < 100:
            self._failed.add(text)
            try_ = "events and restarts of the pods are missing; ask for the verbs get and list on pods and events"
            self._hub.publish_own(Log(source="console", severity="info", text=text, try_=try_))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _event_log(event: _Event) -> Log:
    count = _count(event)
    often = f" ({count} times)" if count > 1 else ""
    reason = event.reason or "event"
    series = event.series.last_observed_time if event.series is not None else None
    logged_at = _instant(series or event.last_timestamp or event.event_time or event.first_timestamp)
    text = printable(f"{reason}: {event.message or ''}{often}")[:_MAX_TEXT]
    return Log(node=event.involved_object.name, source="kubernetes", severity="warning", text=text, try_=_TRY,
               fault=_CLASSES.get(reason, "pod_event"), subject=printable(reason)[:64], at=logged_at)  # fmt: skip


def _count(event: _Event) -> int:
    counts = (event.count, event.series.count if event.series is not None else None)
    return max((count for count in counts if count is not None and 0 < count < 1 << 31), default=1)


def _state_logs(pod: _Pod) -> Iterator[tuple[tuple[str, ...], Log]]:
    """Restarts and ends of containers, and why the pod failed."""
    name = pod.metadata.name
    if pod.status.phase == "Failed":
        text = ": ".join(filter(None, ("the pod failed", pod.status.reason, pod.status.message)))
        yield ("pod", name, text), _log(name, "pod_failed", text, None)
    for status in pod.status.container_statuses or ():
        for state, words in ((status.last_state, "was restarted"), (status.state, "has ended")):
            ended = state.terminated
            if ended is None or (ended.exit_code == 0 and not ended.signal):
                continue
            often = f" {status.restart_count} times, the last time" if 1 < status.restart_count < 1 << 31 else ""
            why = ", ".join(filter(None, (
                ended.reason, None if ended.exit_code is None else f"exit code {ended.exit_code}",
                f"signal {ended.signal}" if ended.signal else None,
            )))  # fmt: skip
            text = f"container {status.name} {words}{often if words == 'was restarted' else ''}: {why}"
            fault = "container_oom" if ended.reason == "OOMKilled" else "container_failed"
            yield (
                (name, status.name, words, str(ended.finished_at)),
                _log(name, fault, text, _instant(ended.finished_at)),
            )


def _log(pod: str, fault: str, text: str, ended_at: int | None) -> Log:
    return Log(node=pod, source="kubernetes", severity="warning", text=printable(text)[:_MAX_TEXT], try_=_TRY,
               fault=fault, at=ended_at)  # fmt: skip


def _instant(text: str | None) -> int | None:
    """CLOCK_REALTIME of the cluster, ns; None if it is not a time."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1e9) if text else None
    except (ValueError, OverflowError, OSError):
        return None


#: Reasons of events (pkg/kubelet/events, controllers, scheduler) that have a class of their own.
_CLASSES: Final[Mapping[str, str]] = {
    "BackOff": "container_failed", "Unhealthy": "probe_failed", "Evicted": "eviction", "Preempted": "eviction",
    "NodeNotReady": "node_not_ready", "FailedMount": "mount_failed", "FailedAttachVolume": "mount_failed",
    "OOMKilling": "container_oom", "TaintManagerEviction": "eviction",
}  # fmt: skip
