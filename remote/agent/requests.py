"""The requests that an agent accepts: one row per verb; every other one is refused."""

import threading
import time

from ..clocks import stamps
from ..proc.threads import Thread
from ..samplers.base import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..samplers.base import Fields
    from .agent import Agent

_SAME_VERSION = "use the same version of gconsole on both sides"
_opening = threading.Lock()


def act(agent: "Agent", frame: "Fields") -> None:
    """Act on one frame. A request with an unknown verb is answered with an error."""
    if "ping" in frame:
        agent.outbox.control({"pong": frame["ping"], "t": stamps.realtime_ns(), "mono": stamps.mono_ns()})
    elif "ack" in frame:
        agent.outbox.acknowledge(frame["ack"])
    elif frame.get("rows") is False:
        agent.outbox.end_rows()
    elif "snapshots" in frame:
        agent.read_clocks_every(frame["snapshots"])
    elif "watch" in frame:
        agent.follow_watch(frame["watch"])
    elif "traffic" in frame:
        agent.follow_traffic(frame["traffic"])
    elif "blob" in frame:
        agent.blobs.receive(agent, frame)
    elif "stop" in frame:
        agent.end()
    elif "id" in frame:
        Thread(target=_answer, args=(agent, frame), name="gconsole-request").start()


def _answer(agent: "Agent", frame: "Fields") -> None:
    verb = VERBS.get(frame.get("do", ""))
    try:
        if verb is None:
            raise RequestError("unknown_request", "unknown request %r" % frame.get("do"), _SAME_VERSION)
        answer = {"ok": verb(agent, frame.get("args") or {})}
    except RequestError as error:
        answer = {"error": {"name": error.name, "text": error.text, "try": error.try_}}
    except Exception as error:  # noqa: BLE001 - every request is answered
        agent.report_crash("request %s failed" % frame.get("do"))
        answer = {"error": {"name": "agent_error", "text": "%s: %s" % (type(error).__name__, error), "try": ""}}
    try:
        agent.outbox.control(dict(answer, re=frame["id"]))
    except (ValueError, TypeError) as error:
        problem = {"name": "agent_error", "text": "the reply cannot be sent: %s" % error, "try": ""}
        agent.outbox.control({"re": frame["id"], "error": problem})


class RequestError(Exception):
    """A request that fails: stable name, text and what to try."""

    def __init__(self, name: str, text: str, try_: str = "") -> None:
        super(RequestError, self).__init__(text)
        self.name, self.text, self.try_ = name, text, try_


def _offer(agent: "Agent", args: "Fields") -> "list[str]":
    """Offer of binaries, {name: {arch: sha256}}: the names of those that this node lacks."""
    for name, by_arch in args.items():
        agent.blobs.offer(name, by_arch)
    return [name for name in agent.blobs.wanted() if name in args]


def _settled(agent: "Agent", args: "Fields") -> "Fields":
    """Wait for a binary that is being sent: its path. Raises RequestError if it does not arrive."""
    agent.blobs.wait(args["name"], 110.0)
    path = agent.blobs.path(args["name"])
    if path is None:
        raise RequestError(
            "blob", agent.blobs.problem(args["name"]) or "%s did not arrive" % args["name"], "gconsole doctor"
        )
    return {"path": path}


def _digest(agent: "Agent", args: "Fields") -> "Fields":
    """Order digests of some kinds; of none, every sample is sent again from the next tick on."""
    from . import digests

    try:
        order = digests.Order(args)
    except ValueError as error:
        raise RequestError("bad_request", str(error), _SAME_VERSION)
    agent.digests = order if order.kinds else None
    agent.outbox.hold(order.hold_s if order.kinds else 0.0, agent.config.get("tick_offset_s", 0.0))
    agent.wake_sampler("gpu")  # it passes the order on to the process of the driver
    return {"kinds": sorted(order.kinds)}


def _doctor(agent: "Agent", args: "Fields") -> "list[Fields]":
    from . import doctor  # imported late: ctypes and subprocess cost memory

    return doctor.examine(agent, args)


def _clean(agent: "Agent", args: "Fields") -> "Fields":
    from . import clean

    return clean.clean(agent, args)


def _release(agent: "Agent", args: "Fields") -> "Fields":
    from . import release

    try:
        return release.release(agent, args)
    except OSError as error:
        raise RequestError("cache", "the cache folder cannot be written: %s" % error, "free some disk space")


def _clock(name: str) -> "Callable[[Agent, Fields], Any]":
    """A request to the probe service, which is created by the first one."""

    def answer(agent: "Agent", args: "Fields") -> "Any":
        began = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)  # importing is a cost of probing, too
        from ..clocks import commands

        with _opening:
            if agent.clocks is None:
                agent.clocks = commands.ProbeService(agent)
        try:
            reply = getattr(agent.clocks, name)(args)
            agent.clocks.add_cost(time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - began, 0)
            return reply
        except (commands.BadProbePlan, commands.BadPeer) as error:
            raise RequestError("bad_request", str(error), _SAME_VERSION)
        except Unavailable as error:
            raise RequestError(error.name, error.text, error.try_)

    return answer


def _clock_stop(agent: "Agent", args: "Fields") -> "Fields":
    return agent.clocks.stop() if agent.clocks is not None else {"probing": False}


def _capture(agent: "Agent", args: "Fields") -> "Any":
    from ..stacks import capture

    try:
        return capture.run_capture(agent, args)
    except capture.BadCaptureRequest as error:
        raise RequestError("bad_request", str(error), _SAME_VERSION)


def _profile(agent: "Agent", args: "Fields") -> "Any":
    from ..stacks import profile

    try:
        return profile.run_profile(agent, args)
    except ValueError as error:
        raise RequestError("bad_request", str(error), _SAME_VERSION)


def _eval(agent: "Agent", args: "Fields") -> "Any":
    from ..stacks import evaluate

    return evaluate.run_eval(agent, args)


def _job(name: str) -> "Callable[[Agent, Fields], Any]":
    """A request of `gconsole run`; its modules are imported by the first one."""

    def answer(agent: "Agent", args: "Fields") -> "Any":
        from ..jobs import requests

        return getattr(requests, name)(agent, args)

    return answer


def _sync(name: str) -> "Callable[[Agent, Fields], Any]":
    """A request that copies a folder; its modules are imported by the first one."""

    def answer(agent: "Agent", args: "Fields") -> "Any":
        from ..jobs import sync

        return getattr(sync, name)(agent, args)

    return answer


VERBS = {
    "capture": _capture,
    "release": _release,
    "clean": _clean,
    "clock_listen": _clock("listen"),
    "clock_probe": _clock("probe"),
    "clock_stop": _clock_stop,
    "digest": _digest,
    "doctor": _doctor,
    "eval": _eval,
    "job_begin": _job("begin"),
    "job_drop": _job("drop"),
    "job_files": _job("list_files"),
    "job_follow": _job("follow"),
    "job_prepare": _job("prepare"),
    "job_probe": _job("probe"),
    "job_read": _job("read_file"),
    "job_stop": _job("stop"),
    "job_watch": _job("watch"),
    "offer": _offer,
    "profile": _profile,
    "settled": _settled,
    "sync_compare": _sync("compare"),
    "sync_done": _sync("done"),
    "sync_put": _sync("put"),
}
