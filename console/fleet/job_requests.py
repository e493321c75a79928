"""Jobs over connected links: prepared on all nodes, then started on all, rolled back if one node fails."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest
from ..records import Failure
from ..transport.errors import AgentRefused, FleetError, Lost
from .node_link import NodeLink
from .rpc import failure_of

_log = logging.getLogger(__name__)

#: Seconds. A node checks programs and folders, maybe on a slow file system.
QUERY_S = 15.0
#: Seconds. Start of the supervisor's Python (20 s on a cold node) plus the round trip.
START_S = 30.0
#: Seconds of grace for processes already started when another node fails.
UNDO_GRACE_S = 3.0
#: Seconds beyond the grace: SIGKILL, supervisor timeout, and its final record.
STOP_S = 30.0
ANSWER_S = 30.0
#: Lines of earlier output read per rank when a watch starts.
WATCHED_LINES = 500
_ATTACHED = Failure(
    "attached",
    "the node belongs to the site's scheduler; start jobs there with sbatch or kubectl apply",
    "select nodes, not a job",
)
Links = Mapping[str, NodeLink]
T = TypeVar("T")


async def probe(links: Links, nodes: Sequence[str], request: ReadinessRequest) -> dict[str, Readiness | Failure]:
    """See `Control.probe_job`. Nodes of a site's job accept no other job: it would end with that job."""
    attached = {node: _ATTACHED for node in nodes if (link := links.get(node)) and link.node.engine}
    others = [node for node in nodes if node not in attached]
    return attached | await _each(links, others, "job_probe", msgspec.to_builtins(request), QUERY_S, Readiness)


async def start(links: Links, orders: Mapping[str, NodeOrder]) -> dict[str, Failure]:
    """See `Control.start_job`. Cancelling rolls the job back."""
    job = next(iter(orders.values())).job
    _log.info("job %s: starting on %s", job, ", ".join(orders))
    try:
        failures = await _all(
            links, {node: ("job_prepare", {"spec": order}) for node, order in orders.items()}, QUERY_S
        )
        if failures:
            return {**await _undo(links, orders, job), **failures}
        failures = await _all(links, {node: ("job_begin", {"job": job}) for node in orders}, START_S)
        if failures:
            return {**await _undo(links, orders, job), **failures}
        _log.info("job %s: started", job)
        return {}
    except asyncio.CancelledError:
        await asyncio.shield(_undo(links, orders, job))
        raise


async def stop(links: Links, job: str, nodes: Sequence[str], grace_s: float) -> dict[str, NodeStop | Failure]:
    """See `Control.stop_job`."""
    _log.info("job %s: stopping on %s, grace %.1f s", job, ", ".join(nodes), grace_s)
    return await _each(links, nodes, "job_stop", {"job": job, "grace_s": grace_s}, grace_s + STOP_S, NodeStop)


async def follow(links: Links, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> dict[str, Failure]:
    """See `Control.follow_job`."""
    args = {"job": job, "tail": tail, "follow": follow}

    async def run(node: str) -> None:
        link = link_of(links, node)
        agent = link.agent_id
        answer = await link.request("job_follow", args, ANSWER_S)
        await link.wait_for_record(agent, int(answer["last_seq"]), ANSWER_S)

    return await _failures(nodes, run)


async def watch(links: Links, job: str, nodes: Sequence[str], wanted: bool) -> dict[str, Failure]:
    """See `Control.watch_job`."""
    args = {"job": job, "tail": WATCHED_LINES, "wanted": wanted}
    return await _all(links, dict.fromkeys(nodes, ("job_watch", args)), QUERY_S)


async def list_files(links: Links, job: str, node: str, path: str) -> FileList | Failure:
    """See `Control.list_job_files`."""
    return (await _each(links, [node], "job_files", {"job": job, "path": path}, ANSWER_S, FileList))[node]


async def read_file(links: Links, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
    """See `Control.read_job_file`."""
    try:
        args = {"job": job, "path": path, "offset": offset}
        answer = await link_of(links, node).request("job_read", args, ANSWER_S)
        return base64.b64decode(answer["data"]), bool(answer["end"])
    except FleetError as error:
        return failure_of(error)
    except (KeyError, TypeError, binascii.Error) as error:
        return Failure("no_answer", f"invalid response for a file: {error}")


async def _undo(links: Links, nodes: Iterable[str], job: str) -> dict[str, Failure]:
    """Stop and drop a job that could not start everywhere; failures of nodes where that is unknown."""
    _log.warning("job %s: not started on every node; stopping it everywhere", job)

    async def run(node: str) -> Failure | None:
        try:
            link = link_of(links, node)
            if not await link.request("job_drop", {"job": job}, QUERY_S):
                args = {"job": job, "grace_s": UNDO_GRACE_S}
                done = _typed(await link.request("job_stop", args, UNDO_GRACE_S + STOP_S), NodeStop)
                if done.left:
                    return Failure("left", f"processes still running: {', '.join(map(str, done.left))}")
                await link.request("job_drop", {"job": job}, QUERY_S)
        except AgentRefused as error:
            if error.reason != "no_job":
                raise
        return None

    return await _failures(nodes, run)


async def _all(links: Links, calls: Mapping[str, tuple[str, dict[str, Any]]], deadline_s: float) -> dict[str, Failure]:
    """Send each node its own request; the failures."""

    async def run(node: str) -> None:
        verb, args = calls[node]
        await link_of(links, node).request(verb, msgspec.to_builtins(args), deadline_s)

    return await _failures(calls, run)


async def _each(
    links: Links, nodes: Sequence[str], verb: str, args: dict[str, Any], deadline_s: float, kind: type[T]
) -> dict[str, T | Failure]:
    """Send every node the same request; the typed reply of each, or its failure."""

    async def run(node: str) -> T:
        return _typed(await link_of(links, node).request(verb, args, deadline_s), kind)

    return await gather(nodes, run)


async def gather(nodes: Iterable[str], run: Callable[[str], Awaitable[T]]) -> dict[str, T | Failure]:
    """The result of `run` for every node, concurrently; a FleetError becomes its Failure."""

    async def run_guarded(node: str) -> T | Failure:
        try:
            return await run(node)
        except FleetError as error:
            _log.warning("%s: %s: %s", node, error.name, error)
            return failure_of(error)

    names = list(nodes)
    return dict(zip(names, await asyncio.gather(*map(run_guarded, names)), strict=True))


async def _failures(nodes: Iterable[str], run: Callable[[str], Awaitable[Failure | None]]) -> dict[str, Failure]:
    """The failures of `run`, returned or raised as FleetError."""
    return {node: failure for node, failure in (await gather(nodes, run)).items() if failure is not None}


def _typed(answer: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentRefused("no_answer", f"invalid response, expected {kind.__name__}: {error}") from error


def link_of(links: Links, node: str) -> NodeLink:
    """The link of a node. Raises Lost."""
    link = links.get(node)
    if link is None:
        raise Lost(f"{node} is not a node of this console", "gconsole config show TARGET lists the nodes")
    return link
