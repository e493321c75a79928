"""What each rank of a crashed job reported: its failures in all outputs, its exit, and which of them ended it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from .exceptions import ParsedStream, parse_streams
from .launchers import ExitReport, OutsideEvent
from .verdict import CrashEvidence, CrashFailure, RankEnd, RankOutput

#: Signals that native code causes in its own process.
NATIVE_SIGNALS: Final = frozenset((4, 5, 6, 7, 8, 11))
#: A line that reports an error; the last one of a rank is preferred to what it printed elsewhere.
_ERROR_LINE: Final = re.compile(r"(?i)\b(?:error|fatal|critical|fail(?:ed|ure)?|abort(?:ed|ing)?)\b")
Certainty = Literal["certain", "likely", "possible"]


class RankView(msgspec.Struct):
    """One rank with everything that outputs and launchers report about it."""

    rank: int | None
    node: str | None = None
    pid: int | None = None
    state: str = "ended"
    exit_code: int | None = None
    ended_lo_ns: int | None = None
    ended_hi_ns: int | None = None
    children: tuple[int, ...] = ()
    has_output: bool = False
    is_stopped: bool = False  # the launcher sent it SIGTERM or SIGKILL
    is_reported_first: bool = False  # a launcher says that it failed first
    failures: list[CrashFailure] = []
    last_line: str = ""
    unread: str = ""  # why an output of it could not be read
    chosen: CrashFailure | None = None  # the failure that ended it
    certainty: Certainty = "possible"
    earlier: CrashFailure | None = None  # an exception before that, which may have been handled

    @property
    def role(self) -> str:
        """The role of the failure that ended it; "silent" without one."""
        return self.chosen.role if self.chosen is not None else "silent"


class JobViews(msgspec.Struct):
    """All ranks of one attempt, and what is not about a rank."""

    ranks: list[RankView]
    loose: list[CrashFailure]  # failures of which the rank is unknown
    exits: list[ExitReport]
    events: list[OutsideEvent]
    absent: int = 0  # ranks of which nothing is known
    is_teed: bool = False  # torchrun copied the outputs of ranks together: their order is not that of the failures


def job_views(evidence: CrashEvidence) -> JobViews:
    """Parse all outputs, and attribute failures and exits to ranks."""
    return _Builder(evidence).build()


class _Builder:
    def __init__(self, evidence: CrashEvidence) -> None:
        self.evidence = evidence
        self.views: dict[tuple[str, object], RankView] = {}
        self.loose: list[CrashFailure] = []
        self.exits: list[ExitReport] = []
        self.events: list[OutsideEvent] = []
        self.stopped: set[int] = set()
        self.is_teed = False
        self.exits_of: dict[str, list[ExitReport]] = {}  # by output
        self.locals: dict[tuple[str | None, int], set[int]] = {}  # (node, local rank) → ranks
        self.pending: list[tuple[str | None, ParsedStream, str]] = []

    def build(self) -> JobViews:
        shared = self._shared_paths()
        for number, end in enumerate(self.evidence.ranks):
            view = self._of_end(end, number)
            for output in end.outputs:
                if (end.node, output.path) not in shared:
                    self._read(output, view, end.node)
        for launcher in self.evidence.launchers:
            self._read(launcher.output, None, launcher.node)
        for (node, _), output in shared.items():
            self._read(output, None, node)
        self._place_local_ranks()
        self._place_exits()
        self._place_loose()
        ranks = sorted(self.views.values(), key=lambda view: (view.rank is None, view.rank or 0))
        for view in ranks:
            choose(view)
        absent = max(0, (self.evidence.world_size or 0) - sum(view.rank is not None for view in ranks))
        return JobViews(ranks, self.loose, self.exits, self.events, absent, self.is_teed)

    def _shared_paths(self) -> dict[tuple[str | None, str], RankOutput]:
        """Files to which several ranks of a node write."""
        writers: dict[tuple[str | None, str], set[int]] = {}
        outputs: dict[tuple[str | None, str], RankOutput] = {}
        for number, end in enumerate(self.evidence.ranks):
            for output in end.outputs:
                if output.path and output.text is not None:
                    writers.setdefault((end.node, output.path), set()).add(number)
                    outputs[end.node, output.path] = output
        return {key: outputs[key] for key, ranks in writers.items() if len(ranks) > 1}

    def _of_end(self, end: RankEnd, number: int) -> RankView:
        key = ("rank", end.rank) if end.rank is not None else ("end", number)
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = _view(end.rank)
        view.node, view.pid, view.state = end.node, end.pid, end.state
        view.exit_code, view.children = end.exit_code, end.children
        view.ended_lo_ns, view.ended_hi_ns = end.ended_lo_ns, end.ended_hi_ns
        view.unread = next((output.reason for output in end.outputs if output.text is None and output.reason), "")
        return view

    def _rank(self, rank: int, node: str | None) -> RankView:
        view = self.views.get(("rank", rank))
        if view is None:
            view = self.views["rank", rank] = _view(rank)
        view.node = view.node or node
        return view

    def _read(self, output: RankOutput, view: RankView | None, node: str | None) -> None:
        if output.text is None:
            return
        if view is not None:
            view.has_output = True
        name = output.path or output.stream
        if output.stream == "error_file":
            self._read_error_file(output.text, view, name)
            return
        for parsed in parse_streams(output.text, is_shared=view is None):
            stream = parsed.stream
            place = node or stream.node
            self.is_teed = self.is_teed or stream.local_rank is not None
            self.exits += parsed.reports.exits
            self.exits_of.setdefault(name, []).extend(parsed.reports.exits)
            for event in parsed.reports.events:
                self.events.append(msgspec.structs.replace(event, node=event.node or place))
            self.stopped |= parsed.reports.stopped
            if stream.rank is not None and (view is None or view.rank != stream.rank):
                if stream.local_rank is not None:
                    self.locals.setdefault((place, stream.local_rank), set()).add(stream.rank)
                owner = self._rank(stream.rank, place)
                owner.has_output = True
                self._add(owner, parsed, name)
            elif view is not None:
                self._add(view, parsed, name)
            elif stream.local_rank is not None:
                self.pending.append((place, parsed, name))
            else:
                self._add_loose(parsed, place, name)

    def _read_error_file(self, text: str, view: RankView | None, name: str) -> None:
        """torchrun's error file: the exception that `@record` caught."""
        at_ns = error_file_time(text) if view is None or view.ended_hi_ns is None else None  # its end is more precise
        for parsed in parse_streams(error_file_text(text)):
            for failure in parsed.failures:
                uncaught = msgspec.structs.replace(failure, is_uncaught=True, is_final=True, output=name)
                if uncaught.at_ns is None and at_ns is not None:
                    uncaught = msgspec.structs.replace(uncaught, at_ns=at_ns, at_bound_ns=1_000_000_000)
                (view.failures if view is not None else self.loose).append(uncaught)

    def _add(self, view: RankView, parsed: ParsedStream, name: str) -> None:
        for parsed_failure in parsed.failures:
            failure = msgspec.structs.replace(parsed_failure, output=name)
            if failure.rank is not None and view.rank is not None and failure.rank != view.rank:
                named = self._rank(failure.rank, None)  # a collective operation passed its failure on
                named.failures.append(msgspec.structs.replace(failure, is_uncaught=False))
                failure = msgspec.structs.replace(failure, category="aborted_by_peer", role="consequence")
            view.failures.append(failure)
        last_line = _last_line(parsed.stream.lines)
        if last_line and (_ERROR_LINE.search(last_line) or not _ERROR_LINE.search(view.last_line)):
            view.last_line = last_line

    def _add_loose(self, parsed: ParsedStream, node: str | None, name: str) -> None:
        for parsed_failure in parsed.failures:
            failure = msgspec.structs.replace(parsed_failure, output=name, node=parsed_failure.node or node)
            owner = self._rank(failure.rank, node) if failure.rank is not None else self._of_pid(failure.pid)
            (owner.failures if owner is not None else self.loose).append(failure)

    def _of_pid(self, pid: int | None) -> RankView | None:
        if pid is None:
            return None
        return next((view for view in self.views.values() if view.pid == pid or pid in view.children), None)

    def _place_local_ranks(self) -> None:
        for exit_ in self.exits:
            if exit_.rank is not None and exit_.local_rank is not None:
                for node in (exit_.node, None):
                    self.locals.setdefault((node, exit_.local_rank), set()).add(exit_.rank)
        for node, parsed, name in self.pending:
            rank = self._rank_of(node, parsed.stream.local_rank)
            if rank is None:
                self._add_loose(parsed, node, name)
            else:
                view = self._rank(rank, node)
                view.has_output = True
                self._add(view, parsed, name)

    def _rank_of(self, node: str | None, local_rank: int | None) -> int | None:
        """The rank with that local rank on that node; a single launcher's local ranks are its ranks."""
        if local_rank is None:
            return None
        for place in (node, None):
            ranks = self.locals.get((place, local_rank), set())
            if len(ranks) == 1:
                return next(iter(ranks))
        differs = any(local not in ranks for (_, local), ranks in self.locals.items())
        return None if differs or len(self.evidence.launchers) > 1 else local_rank

    def _place_exits(self) -> None:
        tables = {exit_.pid for exit_ in self.exits if exit_.is_table}
        for exit_ in self.exits:
            rank = exit_.rank if exit_.rank is not None else self._rank_of(exit_.node, exit_.local_rank)
            view = self._of_pid(exit_.pid) or (self._rank(rank, None) if rank is not None else None)
            if view is None:
                continue
            is_newest = exit_.is_table or exit_.pid not in tables
            view.exit_code = exit_.exit_code if view.exit_code is None and is_newest else view.exit_code
            view.pid = view.pid if view.pid is not None else exit_.pid
            view.node = view.node or exit_.node
            view.is_reported_first = view.is_reported_first or exit_.is_first
        self._place_successes()
        for view in self.views.values():
            view.is_stopped = view.pid is not None and view.pid in self.stopped

    def _place_loose(self) -> None:
        """The only failure without a rank in an output is that of the only rank that ended by itself there."""
        for name in {failure.output for failure in self.loose}:
            loose = [failure for failure in self.loose if failure.output == name and _is_own(failure)]
            if len(loose) != 1:
                continue
            ended = [view for view in self._writers(name, loose[0].node) if view.exit_code and not view.is_stopped]
            ended = [view for view in ended if view.exit_code not in (-15, 143)]
            if len(ended) == 1 and (ended[0].exit_code or 0) > 0 and not ended[0].failures:
                self.loose.remove(loose[0])
                ended[0].failures.append(msgspec.structs.replace(loose[0], rank=ended[0].rank))
                ended[0].has_output = True

    def _writers(self, name: str, node: str | None) -> list[RankView]:
        """The ranks that write to a shared output: reported by its launcher, else all of its node without others."""
        reported = self.exits_of.get(name, [])
        ranks = {
            exit_.rank if exit_.rank is not None else self._rank_of(exit_.node, exit_.local_rank) for exit_ in reported
        }
        views = [view for rank in ranks if rank is not None and (view := self.views.get(("rank", rank))) is not None]
        if views or node is None:
            return views
        return [view for view in self.views.values() if view.node == node and not view.has_output]

    def _place_successes(self) -> None:
        """torchrun's table lists every rank of its node that failed or was terminated; the others ended with 0."""
        table = {exit_.local_rank: exit_.rank for exit_ in self.exits if exit_.is_table}
        if not table or len({exit_.node for exit_ in self.exits if exit_.is_table}) > 1:
            return
        offsets = {rank - local for local, rank in table.items() if rank is not None and local is not None}
        if len(offsets) != 1:
            return
        offset = next(iter(offsets))
        highest = max((local for local in table if local is not None), default=0)
        successes = {offset + local for local in range(highest) if local not in table}
        if offset == 0 and self._is_on_one_node:  # the table does not say how many ranks its node has
            successes |= {rank for kind, rank in self.views if kind == "rank" and isinstance(rank, int)}
        for rank in successes - set(table.values()):
            view = self._rank(rank, None)
            view.exit_code = 0 if view.exit_code is None else view.exit_code

    @property
    def _is_on_one_node(self) -> bool:
        """Whether all that is known of the job is of one node: other nodes have tables of their own."""
        nodes = {end.node for end in self.evidence.ranks} | {launcher.node for launcher in self.evidence.launchers}
        return len(nodes - {None}) <= 1 and len(self.evidence.launchers) <= 1


def _is_own(failure: CrashFailure) -> bool:
    return failure.category != "launcher_report" and failure.is_final


def _view(rank: int | None) -> RankView:
    return RankView(rank, failures=[])


def error_file_text(text: str) -> str:
    """The traceback in torchrun's error file; the text itself if it is not one."""
    try:
        message = json.loads(text)["message"]
        if isinstance(message, str):
            return message
        extra = message.get("extraInfo") or {}
        return str(extra.get("py_callstack") or message["message"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text


def error_file_time(text: str) -> int | None:
    """When the failure in torchrun's error file happened, in whole seconds, as ns since the epoch."""
    try:
        seconds = json.loads(text)["message"]["extraInfo"]["timestamp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_number = isinstance(seconds, str) and len(seconds) <= 10 and seconds.isascii() and seconds.isdigit()
    return int(seconds) * 1_000_000_000 if is_number else None


def choose(view: RankView) -> None:
    """Set the failure that ended a rank, how certain that is, and an exception before it that may have been handled."""
    failures = [failure for failure in view.failures if failure.category != "launcher_report"]
    final = [failure for failure in failures if failure.is_final]
    python = [failure for failure in final if failure.is_uncaught and not _is_native(failure)]
    native = [failure for failure in final if failure.is_uncaught and _is_native(failure)]
    logged = [failure for failure in final if not failure.is_uncaught and not failure.origin]
    if python:
        view.chosen, view.certainty = _most_telling(python[-1], final), "certain"
    elif logged and not (native and _is_decisive(native[0], view)):
        view.chosen, view.certainty = _last(logged, view)
    elif native:
        before = [failure for failure in final if failure.line < native[0].line and failure.role == "consequence"]
        view.chosen, view.certainty = (before or native)[0], "certain"
    others = [failure for failure in failures if failure is not view.chosen and failure.role == "cause"]
    if view.chosen is None or view.chosen.role != "cause":
        view.earlier = others[-1] if others else None


def _last(logged: list[CrashFailure], view: RankView) -> tuple[CrashFailure | None, Certainty]:
    """The last exception of a stream without torch's hook: the one that ended the process, unless its exit differs."""
    python = [failure for failure in logged if not _is_hint(failure)]
    if not python:
        return logged[0], "likely"
    uncaught = [failure for failure in python if not failure.is_caught]
    last = _most_telling((uncaught or python)[-1], logged)
    if view.exit_code is None or view.exit_code > 0:
        return last, "likely"
    if last.role == "cause" and view.exit_code != -6:
        hints = [failure for failure in logged if failure.role == "consequence"]
        return (hints[-1], "likely") if hints else (None, "possible")  # something else ended the process
    return last, "likely"


def _most_telling(failure: CrashFailure, others: list[CrashFailure]) -> CrashFailure:
    """The failure, with the category of a line before it that says why: the kernel that failed, the CUDA call."""
    if failure.category not in ("cuda_error", "device_assert", "nccl_internal", "exception", "nccl_network"):
        return failure
    for other in others:
        if (
            _is_hint(other)
            and other.line < failure.line
            and other.category == "device_assert"
            and failure.category != "exception"
        ):
            details = f"{other.type}: {other.message}\n{failure.details}".strip()
            return msgspec.structs.replace(failure, category=other.category, role=other.role, details=details)
    return failure


def _is_hint(failure: CrashFailure) -> bool:
    return failure.type in ("c10d", "NCCL WARN", "CUDA assertion")


def _is_native(failure: CrashFailure) -> bool:
    return failure.category in (
        "segfault",
        "abort",
        "native_exception",
        "killed",
        "teardown_noise",
        "unknown_exit",
    ) or (failure.type.startswith(("SIG", "Fatal Python", "std::", "c10::", "MPI", "fatal check")))


def _is_decisive(failure: CrashFailure, view: RankView) -> bool:
    """Whether a fatal signal ended the rank, and not the exception before it."""
    if failure.type in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGKILL", "Fatal Python error"):
        return view.exit_code is None or view.exit_code < 0 or view.exit_code > 128
    return False


def _last_line(lines: list[str]) -> str:
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def ranks_of(views: list[RankView]) -> Iterator[int]:
    """The numbers of those of which the rank is known."""
    return (view.rank for view in views if view.rank is not None)
