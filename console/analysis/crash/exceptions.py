"""Failures in an output: Python tracebacks, fatal signals, C++ exceptions, errors of NCCL, CUDA, MPI and JAX."""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, datetime
from typing import Final

import msgspec

from ...text.secrets import excerpt_without_secrets
from ..hang.verdict import Site
from .categories import CATEGORIES, Category, category_of
from .fatal_lines import FATAL_TRIGGER, fatal_at
from .launchers import LauncherLines, launcher_lines
from .progress_lines import work_after
from .streams import OutputStream, split_streams
from .tracebacks import PythonError, is_header, parse_rest, parse_torn_head, parse_traceback
from .verdict import CrashFailure

#: Failures of one stream that are kept: the first and the last ones.
MAX_FAILURES: Final = 400
#: Exceptions whose further lines belong to their category: libraries put the reason there.
_LONG_MESSAGES: Final = re.compile(
    r"NCCL|nccl|CUDA|c10|DistBackend|gloo|Gloo|Xla|Jax|RayTask|ray\.|HIP|terminate|Store|Errors? in loading"
)


class ParsedStream(msgspec.Struct, frozen=True):
    """The failures of one stream, in the order of their lines, and what launchers report in it."""

    stream: OutputStream
    failures: tuple[CrashFailure, ...]
    reports: LauncherLines


def parse_output(text: str) -> tuple[CrashFailure, ...]:
    """The failures in an output, in the order of their lines, with secrets redacted. Never raises."""
    failures = [failure for parsed in parse_streams(text) for failure in parsed.failures]
    return tuple(sorted(failures, key=lambda failure: failure.line))


def parse_streams(text: str, is_shared: bool = False) -> list[ParsedStream]:
    """The streams of an output with their failures. `is_shared`: several ranks write to it, without prefixes."""
    return [_parse(stream, is_shared) for stream in split_streams(text)]


def _parse(stream: OutputStream, is_shared: bool) -> ParsedStream:
    lines = stream.lines
    failures: list[tuple[CrashFailure, int]] = []
    index = 0
    error, end = parse_torn_head(lines)
    if error is not None:
        failures.append((_python_failure(stream, error), error.head_end))
        index = end
    while index < len(lines):
        line = lines[index]
        if "Traceback (" in line and is_header(line):
            error, end = parse_traceback(lines, index)
            if error is not None:
                failures.append((_python_failure(stream, error), error.head_end))
                for _ in range(min(error.open_headers, 64)):
                    if (rest := parse_rest(lines, end)) is None:
                        break
                    failures.append((_python_failure(stream, rest), rest.head_end))
                    end = rest.end
            elif end >= len(lines):
                failures.append((_cut_off(stream, index), end))
            index = max(end, index + 1)
        elif FATAL_TRIGGER.search(line) and (fatal := fatal_at(lines, index)) is not None:
            failure = fatal.failure(_redacted)
            failures.append((_placed(failure, stream, index), fatal.end))
            index = max(fatal.end, index + 1)
        else:
            index += 1
    kept = failures if len(failures) <= MAX_FAILURES else failures[: MAX_FAILURES // 2] + failures[-MAX_FAILURES // 2 :]
    is_shared = is_shared and stream.rank is None and stream.local_rank is None
    checked = tuple(_with_finality(stream, failure, end, is_shared) for failure, end in kept)
    return ParsedStream(stream, checked, launcher_lines(lines, stream.numbers))


def _python_failure(stream: OutputStream, error: PythonError) -> CrashFailure:
    """The failure of a traceback. A chain that begins with a consequence of another rank's end is one as a whole.

    Of another chain it is the last exception that is not a consequence. If that is not the last one, it is not certain:
    the program may have handled it with an operation that then failed.
    """
    chain = _chain(error)
    rated = [(link, _category(link)) for link in chain]
    chosen, category = next(
        ((link, category) for link, category in rated if category.role in ("cause", "unknown")), rated[0]
    )
    if rated[-1][1].role in ("consequence", "teardown") and not _names_own_process(rated):
        chosen, category = rated[-1]
    is_handled = chosen is not chain[0] and category.role == "cause"
    specific = next(
        (category for _, category in rated if category.role == "cause" and category.id != "exception"), None
    )
    if category.id == "exception" and specific is not None and category.role == "cause":
        category = specific
    first = chosen
    while first.inner is not None:
        first = _chain(first.inner)[0]
    earlier = chain[chain.index(chosen) + 1 :]
    details = [*chosen.details, *(f"caused by {_named(link)}" for link in earlier)]
    site = first.site or chosen.site
    message = chosen.message if first is chosen else first.message
    name = chosen.type if first is chosen else first.type
    if first is not chosen:
        details.insert(0, f"{chosen.type}: {chosen.message}")
    failure = CrashFailure(
        type=_redacted(name, 200), message=_redacted(message, 500), category=category.id, role=category.role,
        details=_redacted("\n".join(details), 2_000), site=_clean_site(site), origin=error.origin[:200],
        rank=chosen.process, is_caught=error.is_caught or is_handled,
    )  # fmt: skip
    return _placed(failure, stream, error.first)


def _names_own_process(rated: list[tuple[PythonError, Category]]) -> bool:
    """Whether a chain that begins with the loss of a process of the node says that it was a data worker of the rank."""
    return rated[-1][1].id == "worker_pipe" and any(category.id == "data_worker" for _, category in rated)


def _chain(error: PythonError) -> list[PythonError]:
    """An exception and those before it in its chain, the last one first."""
    chain = [error]
    while chain[-1].cause is not None and len(chain) < 50:
        chain.append(chain[-1].cause)
    return chain


def _category(error: PythonError) -> Category:
    files = {frame.file for frame in error.frames}
    text = f"{error.type}: {error.message}"
    if _LONG_MESSAGES.search(text) or not error.message:
        text = "\n".join((text, *error.details[:12]))
    category = category_of(text, files)
    if error.inner is not None and category.role == "cause":
        inner = _category(error.inner)
        return inner if category.id == "exception" or inner.role != "cause" else category
    return category


def _named(error: PythonError) -> str:
    site = error.site
    place = f" at {site.file}:{site.line} {site.function}" if site else ""
    return f"{error.type}: {error.message}{place}"


def _cut_off(stream: OutputStream, index: int) -> CrashFailure:
    details = _redacted("\n".join(stream.lines[index + 1 :][-20:]), 2_000)
    failure = CrashFailure("Traceback", "cut off", category="cut_off", role="unknown", details=details)
    return _placed(failure, stream, index)


def _placed(failure: CrashFailure, stream: OutputStream, index: int) -> CrashFailure:
    instant, bound = _instant(stream, index)
    return msgspec.structs.replace(
        failure, line=stream.numbers[index], at_ns=instant, at_bound_ns=bound,
        rank=failure.rank if failure.rank is not None else stream.rank, node=failure.node or stream.node,
        pid=failure.pid if failure.pid is not None else stream.pid,
    )  # fmt: skip


def _with_finality(stream: OutputStream, failure: CrashFailure, end: int, is_shared: bool) -> CrashFailure:
    """An exception that torch's hook printed ended the process; others did if no work follows them."""
    if stream.is_hooked and not failure.origin:
        return msgspec.structs.replace(failure, is_uncaught=True)
    if failure.role == "teardown":
        return failure
    is_final = not work_after(stream.lines, bisect_left(stream.numbers, failure.line), end, is_shared)
    return failure if is_final else msgspec.structs.replace(failure, is_final=False, is_uncaught=False)


_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T _]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]{1,9}))?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def _instant(stream: OutputStream, index: int) -> tuple[int | None, int | None]:
    """The time before a line, or in the log line that precedes a traceback, and its resolution, in ns."""
    text = stream.times.get(index) or (stream.lines[index - 1][:60] if index else "")
    return parse_instant(text)


def parse_instant(text: str) -> tuple[int | None, int | None]:
    """The first time in a text as ns since the epoch, and its resolution; a time without a zone is taken as UTC."""
    match = _TIME.search(text)
    if match is None:
        return None, None
    try:
        moment = datetime(*(int(match[part]) for part in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None, None
    fraction = (match[7] or "").ljust(9, "0")[:9]
    seconds = int(moment.timestamp())
    if (zone := match[8]) and zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        seconds -= minutes * 60 if zone[0] == "+" else -minutes * 60
    return seconds * 10**9 + int(fraction), 10 ** (9 - len(match[7] or ""))


def _redacted(text: str, limit: int) -> str:
    return excerpt_without_secrets(text, limit)


def _clean_site(site: Site | None) -> Site | None:
    if site is None:
        return None
    source = _redacted(site.source, 300) if site.source else None
    return Site(site.function[:200], site.file[:500], site.line, source)


def failure_of(category: str, type_: str, message: str) -> CrashFailure:
    """A failure that no output holds, from an exit code or from the kernel."""
    return CrashFailure(type=type_, message=message, category=category, role=CATEGORIES[category].role)
