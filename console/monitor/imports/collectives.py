"""Import of communication library files: Flight Recorder dumps (pickle, JSON), NCCL RAS responses (text, JSON), logs of
NCCL and NCCL Inspector.

The format is detected from the content. Pickles are never executed: the parser accepts only plain values.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gconsole_remote.comms import flight_recorder, nccl_log, nccl_ras

from ...records import Collective, CollectiveSource, PgStatus
from ...text import format
from .isolated_files import FileFailure, read_each

#: Upper bounds of a file's size and of the time to parse it.
MAX_BYTES: Final = 256 << 20
MAX_PARSE_S: Final = 60.0
MAX_FILES: Final = 20_000
#: Capture id of imported records.
CAPTURE: Final = "import"

Fact = Collective | PgStatus
T = TypeVar("T", Collective, PgStatus)


class Problem(msgspec.Struct, frozen=True):
    """A part of a file that could not be imported."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class ImportedCollectives(msgspec.Struct):
    """Imported records, problems, and the files in a known format, or that could not be read (`read`)."""

    records: list[Fact] = msgspec.field(default_factory=list)
    problems: list[Problem] = msgspec.field(default_factory=list)
    read: list[Path] = msgspec.field(default_factory=list)
    logs: set[Path] = msgspec.field(default_factory=set)  # those of NCCL's log, which a program's output may hold


def import_folder(folder: Path, job: str | None = None) -> ImportedCollectives:
    """Import all files in a known format from a folder tree. `job` defaults to the folder's name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    result = import_files(paths[:MAX_FILES], job or folder.resolve().name)
    if len(paths) > MAX_FILES:
        result.problems.append(Problem(str(folder), f"only the first {MAX_FILES} files were read"))
    return result


def import_files(paths: Iterable[Path], job: str) -> ImportedCollectives:
    """Import these files. Raises nothing: errors become problems that name the file."""
    result = ImportedCollectives()
    logs: list[tuple[Path, CollectiveSource, list[dict[str, Any]]]] = []
    for path, file in read_each(list(paths), partial(_read, job), _CollectiveFile):
        if isinstance(file, FileFailure):
            result.problems.append(Problem(str(path), file.text))
            result.read.append(path)
            continue
        if file.kind is None:
            continue
        result.read.append(path)
        result.problems += [Problem(str(path), text) for text in file.problems]
        result.records += file.records
        if file.kind in ("nccl_log", "inspector"):
            result.logs.update([path] if file.kind == "nccl_log" else [])
            logs.append((path, file.kind, file.entries))
    result.records += _of_logs(logs, job, result.problems)
    return result


class _CollectiveFile(msgspec.Struct):
    """What one file contains: records, or the fields of a log's operations; `kind` is None in an unknown format."""

    kind: CollectiveSource | None = None
    records: list[Fact] = msgspec.field(default_factory=list)
    entries: list[dict[str, Any]] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)


def _read(job: str, path: Path) -> _CollectiveFile:
    """Raises OSError; a file that is malformed as a whole has that as its problem."""
    data = _bytes_of(path)
    file = _CollectiveFile(source_of(data))
    try:
        match file.kind:
            case None:
                pass
            case "fr_dump":
                file.records += _of_trace(data, path, job, file.problems)
            case "ras":
                file.records += _of_ras(data, job, file.problems)
            case _:
                file.entries += _of_log(data, file.kind, file.problems)
    except (flight_recorder.BadDump, nccl_ras.BadRasResponse) as error:
        file.problems.append(str(error))
    return file


def source_of(data: bytes) -> CollectiveSource | None:
    """Return the format of a file's content; None if unknown."""
    head = data[: 1 << 16]
    if head[:1] == b"\x80":
        return "fr_dump" if b"pg_config" in data or b"entries" in data else None
    if b'"coll_perf"' in head or b'"p2p_perf"' in head:
        return "inspector"
    begin = head.lstrip()[:1]
    if begin == b"{" and b'"communicators"' in head:
        return "ras"
    if begin == b"{" and any(key in data for key in (b'"pg_status"', b'"pg_config"', b'"profiling_name"')):
        return "fr_dump"
    if b"Job summary\n===" in head or re.search(rb"^#\d+-\d+ \([0-9a-f]+\) [A-Z]{5,}", head, re.MULTILINE):
        return "ras"
    return "nccl_log" if b"NCCL INFO" in data else None


def rank_of(path: Path) -> int | None:
    """Return the rank in a file's name: `nccl_trace_rank_12`, `rank3.json`, `dump.0.pickle`."""
    named = re.findall(r"rank[_.-]?(\d{1,7})", path.name, re.IGNORECASE)
    numbers = named or re.findall(r"(?<![0-9])(\d{1,7})(?![0-9])", path.name)
    return int(numbers[-1]) if numbers else None


def _bytes_of(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise OSError(0, f"more than {format.size(MAX_BYTES)}")
    return path.read_bytes()


def _of_trace(data: bytes, path: Path, job: str, problems: list[str]) -> list[Fact]:
    parsed = flight_recorder.parse(data, time.monotonic() + MAX_PARSE_S)
    rank = rank_of(path)
    if rank is None:
        problems.append("no rank in its file name")
    problems += parsed.problems
    head = {"capture": CAPTURE, "source": "fr_dump", "job": job, "rank": rank, "version": parsed.version}
    sent = {"entries_sent": len(parsed.entries), "size_bytes": len(data)}
    groups = [{**head, **sent, **group} for group in parsed.groups or [{"entries": parsed.held}]]
    return [*_made(PgStatus, groups, problems), *_made(Collective, _with(parsed.entries, head), problems)]


def _of_ras(data: bytes, job: str, problems: list[str]) -> list[Fact]:
    parsed = nccl_ras.parse(data)
    problems += parsed.problems
    head = {"capture": CAPTURE, "source": "ras", "job": job, "rank": None, "version": parsed.version}
    return list(_made(PgStatus, _with(parsed.groups, head), problems))


def _of_log(data: bytes, kind: CollectiveSource, problems: list[str]) -> list[dict[str, Any]]:
    if kind == "inspector":
        inspected = nccl_log.parse_inspector(data, limit=1 << 20)
        if inspected.bad:
            problems.append(f"{inspected.bad} malformed lines")
        return list(inspected.entries)
    parsed = nccl_log.parse_log(data, limit=1 << 20)
    if parsed.bad:
        problems.append(f"{parsed.bad} operations of communicators without Init lines in it")
    return list(parsed.entries)


def _of_logs(
    logs: Sequence[tuple[Path, CollectiveSource, list[dict[str, Any]]]], job: str, problems: list[Problem]
) -> list[Fact]:
    """Logs name processes; the rank of a process is its number in the largest communicator."""
    largest: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (-1, -1))
    for _, _, entries in logs:
        for entry in entries:
            if None not in (entry["group_rank"], entry["group_size"], entry["pid"]):
                place = (str(entry["host"]), entry["pid"])
                largest[place] = max(largest[place], (entry["group_size"], entry["group_rank"]))
    records: list[Fact] = []
    for path, kind, entries in logs:
        made = []
        for entry in entries:
            rank = largest.get((str(entry["host"]), entry["pid"] or -1), (-1, -1))[1]
            fields = {key: value for key, value in entry.items() if key != "host"}
            made.append({**fields, "capture": CAPTURE, "source": kind, "job": job, "rank": rank if rank >= 0 else None})
        bad: list[str] = []
        records += _made(Collective, made, bad)
        problems += [Problem(str(path), text) for text in bad]
    return records


def _with(lines: Iterable[dict[str, Any]], head: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**line, **head} for line in lines]


def _made(kind: type[T], lines: Iterable[dict[str, Any]], problems: list[str]) -> list[T]:
    """Records of these fields; invalid ones are skipped and reported once."""
    made, bad = [], []
    for line in lines:
        try:
            made.append(msgspec.convert({**line, "kind": kind.__struct_config__.tag}, kind))
        except msgspec.ValidationError as error:
            bad.append(str(error))
    if bad:
        problems.append(f"{len(bad)} invalid operations or groups: {bad[0]}")
    return made
