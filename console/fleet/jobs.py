"""Jobs over the links that are there: prepared everywhere, begun everywhere, ended again if one node cannot."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest
from ..records import Failure
from ..transport.errors import AgentRefused, FleetError, Lost, Timeout
from .link import NodeLink

#: A node looks for programs and folders, which may lie on a file system that takes its time.
ASK_S = 15.0
#: A supervisor is a Python that starts: 20 s on a cold node, and the way there.
BEGIN_S = 30.0
#: What had begun on other nodes has so long to end by itself when one node cannot.
UNDO_GRACE_S = 3.0
#: Beyond the grace: KILL, the supervisor's own patience, and its last word.
STOP_S = 30.0
ANSWER_S = 30.0
#: Of each rank so many lines are read of what it wrote before somebody looked.
WATCHED_LINES = 500
_ATTACHED = Failure("attached", "jobs are started there by the site: sbatch, or kubectl apply", "name nodes, not a job")
Links = Mapping[str, NodeLink]
T = TypeVar("T")


async def probe(links: Links, nodes: Sequence[str], question: ReadinessRequest) -> dict[str, Readiness | Failure]:
    """See `Control.probe_job`. A node of the site's own job takes no other: that would end with our way there."""
    attached = {node: _ATTACHED for node in nodes if (link := links.get(node)) and link.node.engine}
    others = [node for node in nodes if node not in attached]
    return attached | await _each(links, others, "job_probe", msgspec.to_builtins(question), ASK_S, Readiness)


async def start(links: Links, orders: Mapping[str, NodeOrder]) -> dict[str, Failure]:
    """See `Control.start_job`. Whoever cancels it ends what has begun."""
    job = next(iter(orders.values())).job
    try:
        failures = await _all(links, {node: ("job_prepare", {"spec": order}) for node, order in orders.items()}, ASK_S)
        if failures:
            return {**await _undo(links, orders, job), **failures}
        failures = await _all(links, {node: ("job_begin", {"job": job}) for node in orders}, BEGIN_S)
        return {**await _undo(links, orders, job), **failures} if failures else {}
    except asyncio.CancelledError:
        await asyncio.shield(_undo(links, orders, job))
        raise


async def stop(links: Links, job: str, nodes: Sequence[str], grace_s: float) -> dict[str, NodeStop | Failure]:
    """See `Control.stop_job`."""
    return await _each(links, nodes, "job_stop", {"job": job, "grace_s": grace_s}, grace_s + STOP_S, NodeStop)


async def follow(links: Links, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> dict[str, Failure]:
    """See `Control.follow_job`."""
    args = {"job": job, "tail": tail, "follow": follow}

    async def one(node: str) -> Failure | None:
        try:
            link = _link(links, node)
            agent = link.agent_id
            answer = await link.request("job_follow", args, ANSWER_S)
            await _arrived(link, agent, int(answer["last_seq"]))
        except FleetError as error:
            return error.as_failure()
        return None

    found = await asyncio.gather(*map(one, nodes))
    return {node: failure for node, failure in zip(nodes, found, strict=True) if failure is not None}


async def watch(links: Links, job: str, nodes: Sequence[str], wanted: bool) -> dict[str, Failure]:
    """See `Control.watch_job`."""
    args = {"job": job, "tail": WATCHED_LINES, "wanted": wanted}
    return await _all(links, dict.fromkeys(nodes, ("job_watch", args)), ASK_S)


async def list_files(links: Links, job: str, node: str, path: str) -> FileList | Failure:
    """See `Control.list_job_files`."""
    return (await _each(links, [node], "job_files", {"job": job, "path": path}, ANSWER_S, FileList))[node]


async def read_file(links: Links, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
    """See `Control.read_job_file`."""
    try:
        args = {"job": job, "path": path, "offset": offset}
        answer = await _link(links, node).request("job_read", args, ANSWER_S)
        return base64.b64decode(answer["data"]), bool(answer["end"])
    except FleetError as error:
        return error.as_failure()
    except (KeyError, TypeError, binascii.Error) as error:
        return Failure("no_answer", f"what came back for a file is no answer: {error}")


async def _undo(links: Links, nodes: Iterable[str], job: str) -> dict[str, Failure]:
    """End and forget whatever there is of a job that could not start everywhere; nodes where that is not known."""

    async def one(node: str) -> Failure | None:
        try:
            link = _link(links, node)
            if not await link.request("job_drop", {"job": job}, ASK_S):
                args = {"job": job, "grace_s": UNDO_GRACE_S}
                done = _typed(await link.request("job_stop", args, UNDO_GRACE_S + STOP_S), NodeStop)
                if done.left:
                    return Failure("left", f"processes that could not be ended: {', '.join(map(str, done.left))}")
                await link.request("job_drop", {"job": job}, ASK_S)
        except AgentRefused as error:
            return None if error.reason == "no_job" else error.as_failure()
        except FleetError as error:
            return error.as_failure()
        return None

    names = list(nodes)
    found = await asyncio.gather(*map(one, names))
    return {node: failure for node, failure in zip(names, found, strict=True) if failure is not None}


async def _all(links: Links, asked: Mapping[str, tuple[str, dict[str, Any]]], deadline_s: float) -> dict[str, Failure]:
    """Ask every node its own thing; those that refuse or fail."""

    async def one(node: str, verb: str, args: dict[str, Any]) -> Failure | None:
        try:
            await _link(links, node).request(verb, msgspec.to_builtins(args), deadline_s)
        except FleetError as error:
            return error.as_failure()
        return None

    found = await asyncio.gather(*(one(node, verb, args) for node, (verb, args) in asked.items()))
    return {node: failure for node, failure in zip(asked, found, strict=True) if failure is not None}


async def _each(
    links: Links, nodes: Sequence[str], verb: str, args: dict[str, Any], deadline_s: float, kind: type[T]
) -> dict[str, T | Failure]:
    """Ask every node the same; the typed answer of each, or why there is none."""

    async def one(node: str) -> T | Failure:
        try:
            return _typed(await _link(links, node).request(verb, args, deadline_s), kind)
        except FleetError as error:
            return error.as_failure()

    return dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))


def _typed(answer: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentRefused("no_answer", f"what came back is no {kind.__name__}: {error}") from error


def _link(links: Links, node: str) -> NodeLink:
    link = links.get(node)
    if link is None:
        raise Lost(f"{node} is not of this fleet")
    return link


async def _arrived(link: NodeLink, agent: str, last_seq: int) -> None:
    """Wait for the records that were queued before an answer: it overtakes them."""
    deadline = time.monotonic() + ANSWER_S
    while link.agent_id == agent and link.last_seq < last_seq:
        if time.monotonic() > deadline:
            raise Timeout("its last records did not arrive in time")
        await asyncio.sleep(0.005)
