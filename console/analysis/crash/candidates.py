"""Candidates for the first cause of a crash, and their order in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from .exceptions import failure_of
from .launchers import SIGNAL_NAMES
from .rank_views import NATIVE_SIGNALS, Certainty, JobViews, RankView
from .verdict import CrashEvidence, CrashFailure, CrashKind, NodeFault

SECOND_NS: Final = 1_000_000_000
#: Clocks of different nodes are taken to agree within this where only the times in their outputs are known.
LOG_CLOCKS_NS: Final = SECOND_NS
#: A fault of a device counts for a crash that follows within this time.
HARDWARE_NS: Final = 600 * SECOND_NS
#: Classes of kernel messages that name a failed device.
HARDWARE_FAULTS: Final = frozenset(("xid", "sxid", "ecc_uncorrected", "machine_check", "pcie_uncorrected", "nic"))
OOM_FAULTS: Final = frozenset(("oom_kill", "oom_kill_in_cgroup"))
_MASKED: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
_PLACES: Final = re.compile(
    r"\[?\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b\]?(?::[0-9]+)?|\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](?::[0-9]+)?"
)


class Candidate(msgspec.Struct):
    """One possible first cause, with all ranks that have it and the interval in which the earliest of them failed."""

    kind: CrashKind
    failure: CrashFailure
    views: list[RankView]
    certainty: Certainty
    lo_ns: int | None = None
    hi_ns: int | None = None
    node: str | None = None
    evidence: tuple[str, ...] = ()
    ended_by: str = ""  # of kind launcher: who ended the job
    is_deliberate: bool = False  # a person or a scheduler ended the job on purpose


def masked(text: str) -> str:
    """A message without the parts that differ between ranks: addresses and numbers."""
    return _MASKED.sub("#", _PLACES.sub("@", text))[:160]


def signature(failure: CrashFailure) -> tuple[object, ...]:
    """What is equal for the same failure on several ranks."""
    site = (failure.site.file, failure.site.line) if failure.site else None
    return failure.type, masked(failure.message), site


def candidates_of(evidence: CrashEvidence, jobs: JobViews) -> list[Candidate]:
    """All possible first causes; consequences are none."""
    options = [*_lost_nodes(evidence, jobs), *_out_of_memory(evidence, jobs)]
    taken = {id(view) for candidate in options for view in candidate.views}
    options += _failures(jobs, taken)
    has_loose = any(candidate.kind == "exception" and not candidate.views for candidate in options)
    options += _signals(jobs, taken, has_loose)
    return _with_hardware(evidence, options)


def _failures(jobs: JobViews, taken: set[int]) -> Iterator[Candidate]:
    """Ranks with the same exception of their own."""
    groups: dict[tuple[object, ...], list[RankView]] = {}
    for view in jobs.ranks:
        if view.chosen is not None and view.role == "cause" and id(view) not in taken:
            groups.setdefault(signature(view.chosen), []).append(view)
    sure = {
        key: views for key, views in groups.items() if not all(view.chosen and view.chosen.is_caught for view in views)
    }
    for views in (sure or groups).values():
        failure = views[0].chosen
        assert failure is not None
        is_certain = bool(sure) and any(view.certainty == "certain" for view in views)
        certainty: Certainty = "certain" if is_certain else "likely"
        yield timed(Candidate(_kind_of(failure), failure, views, certainty))
    causes = [failure for failure in jobs.loose if failure.role == "cause" and failure.is_final and not failure.origin]
    uncaught = [failure for failure in causes if not failure.is_caught]
    loose: dict[tuple[object, ...], CrashFailure] = {}
    for failure in uncaught or causes:
        loose.setdefault(signature(failure), failure)
    for key, failure in loose.items():
        if key not in groups and not _is_reported(failure, jobs):
            yield timed(Candidate(_kind_of(failure), failure, [], "likely", node=failure.node))


def _is_reported(failure: CrashFailure, jobs: JobViews) -> bool:
    """Whether a rank has the same exception: the launcher repeats it."""
    return any(
        view.chosen is not None and view.chosen.type.rsplit(".", 1)[-1] == failure.type.rsplit(".", 1)[-1]
        and masked(view.chosen.message) == masked(failure.message) for view in jobs.ranks
    )  # fmt: skip


def _kind_of(failure: CrashFailure) -> CrashKind:
    if failure.category in ("segfault", "abort", "killed") and failure.type != "Assertion":
        return "signalled"
    kinds: dict[str, CrashKind] = {"cuda_hardware": "hardware", "oom_killed": "oom_killed", "outside": "launcher"}
    return kinds.get(failure.category, "exception")


def _signals(jobs: JobViews, taken: set[int], has_loose: bool) -> Iterator[Candidate]:
    """Ranks that a signal ended, without an output that explains it.

    `has_loose`: exceptions of which the rank is not known; a rank may abort while it ends because of one.
    """
    groups: dict[int, list[RankView]] = {}
    for view in jobs.ranks:
        code = view.exit_code
        if code is not None and 128 < code < 160:
            code = 128 - code
        if code is not None and code < 0 and view.chosen is None and id(view) not in taken and -code in NATIVE_SIGNALS:
            groups.setdefault(-code, []).append(view)
    for number, views in groups.items():
        if number == 6 and (has_loose or not all(view.has_output for view in views)) and not _is_only_end(views, jobs):
            continue
        category = {6: "abort", 7: "bus_error", 11: "segfault"}.get(number, "signalled")
        failure = failure_of(category, SIGNAL_NAMES.get(number, f"signal {number}"), f"exit code {-number}")
        yield timed(Candidate("signalled", failure, views, "certain"))


def _is_only_end(views: list[RankView], jobs: JobViews) -> bool:
    """Whether one rank aborted and all others lost a peer: it was not the watchdog of a rank that waited."""
    others = [view for view in jobs.ranks if view is not views[0]]
    return len(views) == 1 and bool(others) and all(
        view.chosen is not None and view.chosen.category == "peer_closed" for view in others
    )  # fmt: skip


def _lost_nodes(evidence: CrashEvidence, jobs: JobViews) -> Iterator[Candidate]:
    losses = [loss for loss in evidence.losses if not _has_run_on(loss.node, evidence, jobs)]
    for loss in losses:
        views = [view for view in jobs.ranks if view.node == loss.node]
        failure = failure_of("node_lost", "node lost", f"{loss.node}: {loss.reason}")
        yield Candidate(
            "node_lost",
            failure,
            views,
            "certain",
            loss.lo_ns,
            loss.hi_ns,
            loss.node,
            (f"node {loss.node}: {loss.reason}",),
        )
    events = [event for event in jobs.events if event.kind == "node_lost"]
    for event in [] if losses else sorted(events, key=lambda event: event.node is None)[:1]:
        views = [view for view in jobs.ranks if event.node is not None and view.node == event.node]
        failure = failure_of("node_lost", event.source, event.text)
        text = f"{event.source}: {event.text}"
        yield Candidate("node_lost", failure, views, "certain", node=event.node, evidence=(text,))


def _has_run_on(node: str, evidence: CrashEvidence, jobs: JobViews) -> bool:
    """Whether only the connection to a node was lost: it reports the exit code of a rank of which no error is known.

    A node that went down reports none. What that rank printed may be the cause.
    """
    failed = {(end.rank, end.pid) for end in evidence.ranks if end.node == node and (end.exit_code or 0) > 0}
    return any(
        view.node == node and view.role == "silent" and (view.rank, view.pid) in failed for view in jobs.ranks
    )  # fmt: skip


def _out_of_memory(evidence: CrashEvidence, jobs: JobViews) -> Iterator[Candidate]:
    """Kills by the kernel for lack of memory, whose process is a rank's or a child of one."""
    for fault in evidence.faults:
        if fault.fault in OOM_FAULTS:
            views = _killed(jobs, fault.node, fault.pid)
            if views or fault.pid is None:
                failure = failure_of("oom_killed", "OOM kill", fault.text)
                lo = fault.at_ns - 2 * SECOND_NS if fault.at_ns is not None else None
                hi = fault.at_ns + 2 * SECOND_NS if fault.at_ns is not None else None
                if views:
                    yield Candidate(
                        "oom_killed",
                        failure,
                        views,
                        "certain",
                        lo,
                        hi,
                        fault.node,
                        (f"kernel {fault.node}: {fault.text}",),
                    )
    for event in jobs.events:
        if event.kind == "oom":
            views = _killed(jobs, event.node, event.pid)
            certainty: Certainty = "certain" if event.pid is not None and views else "likely"
            failure = failure_of("oom_killed", event.source, event.text)
            yield Candidate(
                "oom_killed", failure, views, certainty, node=event.node, evidence=(f"{event.source}: {event.text}",)
            )


def _killed(jobs: JobViews, node: str | None, pid: int | None) -> list[RankView]:
    """The ranks that a kill for lack of memory ended: by pid, or all on the node that SIGKILL ended."""
    if pid is not None:
        views = [view for view in jobs.ranks if (view.pid == pid or pid in view.children) and node in (None, view.node)]
        if views:
            return views
        return [
            view
            for view in jobs.ranks
            if view.chosen is not None
            and re.search(rf"\bpids?(?:\(s\))? {pid}\b", view.chosen.message + view.chosen.details)
        ]
    killed = [view for view in jobs.ranks if _is_killed(view) and (node is None or view.node in (None, node))]
    return (
        killed
        if len(killed) == 1 or node is not None
        else [view for view in killed if view.is_reported_first] or killed
    )


def _is_killed(view: RankView) -> bool:
    if view.exit_code in (-9, 137) and not view.is_stopped:
        return view.role in ("silent", "cause") and (
            view.chosen is None or view.chosen.category in ("killed", "data_worker")
        )
    return view.chosen is not None and (
        view.chosen.category == "killed"
        or (view.chosen.category == "data_worker" and "illed" in view.chosen.message + view.chosen.details)
    )


def _with_hardware(evidence: CrashEvidence, options: list[Candidate]) -> list[Candidate]:
    """A failure of CUDA, NCCL or a signal that follows a reported fault of a device of its node is the device's."""
    results = []
    for candidate in options:
        fault = next((fault for view in candidate.views if (fault := _device_fault(evidence, candidate, view))), None)
        if fault is not None and _may_be_hardware(candidate, fault):
            text = f"kernel {fault.node}: {fault.text}"
            candidate = msgspec.structs.replace(
                candidate, kind="hardware", certainty="likely", node=fault.node, evidence=(*candidate.evidence, text)
            )
        results.append(candidate)
    return results


def _device_fault(evidence: CrashEvidence, candidate: Candidate, view: RankView) -> NodeFault | None:
    end = candidate.hi_ns if candidate.hi_ns is not None else view.ended_hi_ns
    for fault in evidence.faults:
        if fault.node != view.node or fault.fault not in HARDWARE_FAULTS or fault.severity != "error":
            continue
        if fault.at_ns is None or end is None or -2 * SECOND_NS <= end - fault.at_ns <= HARDWARE_NS:
            return fault
    return None


def _may_be_hardware(candidate: Candidate, fault: NodeFault) -> bool:
    """Whether the failure is of the kind that such a fault causes; an exception of the job's own code is not."""
    if candidate.kind == "signalled":
        return True
    category = candidate.failure.category
    return category.startswith("cuda_") and category not in ("cuda_oom", "cuda_setup") and (fault.fault != "nic")


def timed(candidate: Candidate) -> Candidate:
    """The candidate with the interval in which the earliest of its ranks failed."""
    intervals = [interval for view in candidate.views if (interval := _interval(view)) is not None]
    if not candidate.views and candidate.failure.at_ns is not None:
        intervals = [(candidate.failure.at_ns, candidate.failure.at_ns + (candidate.failure.at_bound_ns or 0))]
    if intervals:
        candidate.lo_ns = min(lo for lo, _ in intervals)
        candidate.hi_ns = min(hi for _, hi in intervals)
    return candidate


def _interval(view: RankView) -> tuple[int, int] | None:
    """When a rank failed: the time in its output, which is before its end, or its end."""
    chosen = view.chosen
    if chosen is not None and chosen.at_ns is not None:
        return chosen.at_ns, chosen.at_ns + (chosen.at_bound_ns or 0)
    if view.ended_lo_ns is not None and view.ended_hi_ns is not None:
        return view.ended_lo_ns, view.ended_hi_ns
    return None


def earliest(options: Sequence[Candidate]) -> Candidate | None:
    """The candidate that precedes all others for certain; None if the order is not known."""
    for candidate in options:
        if all(other is candidate or _precedes(candidate, other) for other in options):
            return candidate
    return None


def _precedes(first: Candidate, second: Candidate) -> bool:
    if first.hi_ns is None or second.lo_ns is None:
        return False
    nodes = {view.node for candidate in (first, second) for view in candidate.views} | {first.node, second.node} - {
        None
    }
    is_logged = any(view.chosen is not None and view.chosen.at_ns is not None for view in first.views + second.views)
    bound = LOG_CLOCKS_NS if is_logged and len(nodes) > 1 else 0
    return first.hi_ns + bound < second.lo_ns
