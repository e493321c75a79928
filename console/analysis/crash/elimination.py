"""The first cause where no output contains it: the rank that ended in silence, or that all others name."""

from __future__ import annotations

import re
from typing import Final

from .candidates import Candidate, earliest, signature, timed
from .exceptions import failure_of
from .launchers import SIGNAL_NAMES
from .rank_views import JobViews, RankView
from .verdict import CrashFailure

_NAMED_RANKS: Final = (
    re.compile(r"[Rr]anks? ([0-9, ]{1,2000}) failed to pass monitoredBarrier"),
    re.compile(
        r"(?:unhealthy|stopped sending heartbeats|not reached|heartbeat timeout|crashed).{0,300}/task:([0-9]{1,7})",
        re.DOTALL,
    ),
    re.compile(r"/task:([0-9]{1,7}) (?:heartbeat timeout|has crashed|is unhealthy)"),
    re.compile(r"MPI_ABORT was invoked on rank ([0-9]{1,7})"),
)


def by_elimination(jobs: JobViews) -> Candidate | None:
    """The rank that did not report a consequence where all others do; None where that does not single one out."""
    for search in (_reported_exit, _of_earlier, _named, _silent, _unknown_role):
        if (candidate := search(jobs)) is not None:
            return candidate
    return None


def _affected(jobs: JobViews) -> list[RankView]:
    return [view for view in jobs.ranks if view.role == "consequence"]


def _silent(jobs: JobViews) -> Candidate | None:
    """Ranks that ended without a failure in their output, while others lost the connection to a peer."""
    silent = [view for view in jobs.ranks if view.chosen is None and view.state != "running"]
    ended = [view for view in silent if _ended_itself(view)]
    affected = _affected(jobs)
    loose = [failure for failure in jobs.loose if failure.role == "consequence" and failure.is_final]
    if ended and (affected or loose or len(ended) < max(2, len(jobs.ranks))):
        return _of_exit(ended, jobs)
    if len(silent) == 1 and len(affected) >= 1 and len(affected) == len(jobs.ranks) - 1:
        view = silent[0]
        is_last = jobs.absent == 0 or (view.rank is None and jobs.absent == 1)  # else it may be any absent one
        if is_last and (view.has_output or view.exit_code is not None):
            return _of_quiet(view, affected)
    return None


def _ended_itself(view: RankView) -> bool:
    code = view.exit_code
    return code is not None and code not in (-15, 143) and not (view.is_stopped and code in (-9, 137))


def _of_exit(ended: list[RankView], jobs: JobViews) -> Candidate | None:
    """Ranks by their exit code: 0 while others still needed them, SIGKILL, or an error that no output shows."""
    is_mixed = any(failure.category != "launcher_report" for failure in jobs.loose)  # whose output it is, is not known
    failed = [view for view in ended if view.exit_code and (view.exit_code < 0 or view.has_output or not is_mixed)]
    if not failed:
        return _of_leaving([view for view in ended if view.exit_code == 0], jobs)
    first = [view for view in failed if view.is_reported_first] if len(failed) > 1 else failed
    first = first or failed
    if len({view.node for view in first}) > 1 and len(first) < len(failed):
        return None  # each launcher names the first one of its node
    codes = {view.exit_code for view in first}
    code = first[0].exit_code or 0
    code = 128 - code if 128 < code < 160 else code
    if len(codes) > 1:
        return None
    if code == -6 and not all(view.has_output for view in first):
        return None  # watchdogs of ranks that wait abort, too
    if code < 0:
        category, name = ("killed" if code == -9 else "signalled"), SIGNAL_NAMES.get(-code, f"signal {-code}")
        return Candidate("signalled", failure_of(category, name, f"exit code {code}"), first, "likely")
    if not all(view.has_output for view in first):
        return _of_unread(failed, code)
    last = f"; the last line of its output: {first[0].last_line}" if first[0].last_line else ""
    failure = failure_of("exit", f"exit code {code}", f"exited with {code}; its output contains no exception{last}")
    is_sure = len(first) < len(jobs.ranks) and len(first) == len(failed)
    return Candidate("unknown", failure, first, "likely" if is_sure else "possible")


def _of_leaving(left: list[RankView], jobs: JobViews) -> Candidate | None:
    """Ranks that ended with 0 while others lost the connection to a peer."""
    if not left or len(left) == len(jobs.ranks) or not _affected(jobs):
        return None
    failure = failure_of("exit", "exit code 0", "exited with 0 while other ranks still communicated with it")
    return Candidate("unknown", failure, left, "likely")


def _of_unread(failed: list[RankView], code: int) -> Candidate | None:
    """Of ranks whose output is not known, the one that ended before all others; None if the order is not known."""
    failure = failure_of("exit", f"exit code {code}", f"exited with {code}; its output is not known")
    candidates = [timed(Candidate("unknown", failure, [view], "possible")) for view in failed]
    return candidates[0] if len(candidates) == 1 else earliest(candidates)


def _of_quiet(view: RankView, affected: list[RankView]) -> Candidate:
    """The only rank without a failure: it left, was killed, or never entered the operation that the others wait in."""
    waited = all(
        other.chosen is not None and other.chosen.category in ("collective_timeout", "store_timeout")
        for other in affected
    )
    message = "did not take part in what the others waited for until their time-out; its output does not show why"
    if not waited:
        message = "ended without an error in its output; the others failed because a peer was gone"
    failure = failure_of("unknown_exit", "silent end" if not waited else "absent", message)
    return Candidate("unknown", failure, [view], "likely" if len(affected) > 1 else "possible")


def _reported_exit(jobs: JobViews) -> Candidate | None:
    """SIGTERM that the launcher did not send, to one rank that it reports first."""
    ended = [
        view for view in jobs.ranks
        if view.exit_code == -15 and view.is_reported_first and not view.is_stopped and view.chosen is None
    ]  # fmt: skip
    others_stopped = any(view.is_stopped for view in jobs.ranks)
    if len(ended) != 1 or not others_stopped:
        return None
    failure = failure_of("signalled", "SIGTERM", "sent by a process other than the launcher")
    return Candidate("signalled", failure, ended, "likely")


def _of_earlier(jobs: JobViews) -> Candidate | None:
    """An exception that a thread or a handler printed, on some of the ranks, where nothing else explains the end."""
    views = [view for view in jobs.ranks if view.earlier is not None]
    if not views or (len(views) == len(jobs.ranks) and len(views) > 1):
        return None
    groups: dict[tuple[object, ...], list[RankView]] = {}
    for view in views:
        assert view.earlier is not None
        groups.setdefault(signature(view.earlier), []).append(view)
    if len(groups) != 1:
        return None
    failure: CrashFailure | None = views[0].earlier
    assert failure is not None
    silent_exit = [view for view in jobs.ranks if view.earlier is None and view.chosen is None and _ended_itself(view)]
    if silent_exit or not failure.is_final:
        return None
    is_thread = bool(failure.origin)
    exits = all(view.exit_code in (None, 1) or (view.exit_code or 0) > 0 for view in views)
    if not is_thread and (not exits or any(view.chosen is None for view in views)):
        return None
    return Candidate("exception", failure, views, "likely" if is_thread else "possible")


def _named(jobs: JobViews) -> Candidate | None:
    """The rank that the failures of the others name."""
    failures = [view.chosen for view in jobs.ranks if view.chosen is not None] + jobs.loose
    named = {rank for failure in failures for rank in _named_ranks(failure)}
    if len(named) != 1:
        return None
    rank = next(iter(named))
    view = next((view for view in jobs.ranks if view.rank == rank), None)
    if view is not None and view.role == "consequence":
        return None
    failure = failure_of(
        "unknown_exit", "absent", "is named by the errors of the other ranks; its output does not show why"
    )
    return Candidate("unknown", failure, [view if view is not None else RankView(rank, failures=[])], "likely")


def _named_ranks(failure: CrashFailure) -> set[int]:
    text = f"{failure.message}\n{failure.details}"
    return {
        int(number)
        for pattern in _NAMED_RANKS
        for match in pattern.finditer(text)
        for number in re.findall(r"[0-9]{1,7}", match[1])
    }


def _unknown_role(jobs: JobViews) -> Candidate | None:
    """Failures that may be cause or consequence, where no other failure is known."""
    views = [view for view in jobs.ranks if view.role == "unknown" and view.chosen is not None]
    loose = {signature(failure): failure for failure in jobs.loose if failure.role == "unknown" and failure.is_final}
    if not views and len(loose) == 1:
        return Candidate("unknown", next(iter(loose.values())), [], "possible")
    groups: dict[tuple[object, ...], list[RankView]] = {}
    for view in views:
        assert view.chosen is not None
        groups.setdefault(signature(view.chosen), []).append(view)
    if len(groups) != 1:
        return None
    failure = views[0].chosen
    assert failure is not None
    if len(views) < len(jobs.ranks) and _affected(jobs):
        return Candidate("exception", failure, views, "likely" if len(views) == 1 else "possible")
    return Candidate("unknown", failure, [], "possible")
