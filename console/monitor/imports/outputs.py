"""Import of a folder of outputs: logs of ranks and launchers, as evidence of a crash.

Recognised layouts: torchrun's folders (`attempt_0/3/stderr.log`), one file per rank or pod, files of all ranks.
Ranks are taken from the prefixes of lines first, then from the names of files and folders. Files are read, searched and
diagnosed in child processes with bounded memory and CPU time, as they come from other people.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import msgspec

from ...analysis.crash.verdict import CrashEvidence, LauncherOutput, RankEnd, RankOutput
from .isolated_files import FileFailure, read_each

#: Files of a folder, and bytes that are read of one file: of its beginning and of its end.
MAX_FILES: Final = 20_000
HEAD_BYTES: Final = 256 << 10
TAIL_BYTES: Final = 16 << 20
#: Bytes that are read of all files together; with more files, less is read of each.
MAX_BYTES: Final = 256 << 20
LEAST_BYTES: Final = 64 << 10
#: Uncompressed bytes of a compressed file that are read to reach its end.
MAX_UNPACKED: Final = 1 << 30
#: Names of files that are not outputs.
_SUFFIXES: Final = re.compile(
    r"\.(?:json|pickle|pkl|pt|pth|py|ya?ml|toml|md|csv|html|svg|png|npy|npz|bin|safetensors|so|xz|zst|zip|tar|bz2)$",
    re.IGNORECASE,
)
#: Lines that a launcher writes, or prefixes that it gives to the lines of its ranks.
_SHARED: Final = re.compile(
    r"^\[default[0-9]+\]:|torch[/.]distributed[/.](?:elastic|run)\b.*(?:Sending process|failed \(exitcode)"
    r"|ChildFailedError",
    re.MULTILINE,
)
#: torchrun's line at the end of each attempt.
_ATTEMPT_END: Final = re.compile(r"failed \(exitcode: -?[0-9]+\) local_rank: .*\n")
_ATTEMPT: Final = re.compile(r"^attempt[_-]?([0-9]{1,6})$")
_RANK: Final = re.compile(
    r"(?<![A-Za-z])(?<!local_)(?<!local-)(?:global_?)?rank[-_.=]?([0-9]{1,7})(?![0-9])", re.IGNORECASE
)
_NODE: Final = re.compile(r"(?<![A-Za-z])(?:[A-Za-z-]*node|[A-Za-z-]*host|nid|machine)[-_]?[0-9]{1,7}$", re.IGNORECASE)
#: The pod with rank 0 of a PyTorchJob; the ranks of its workers begin with 1.
_MASTER: Final = re.compile(r"(?<![A-Za-z])(?:master|chief)-#(?![0-9#])")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_STREAMS: Final[dict[str, Literal["stdout", "stderr"]]] = {
    "out": "stdout",
    "stdout": "stdout",
    "err": "stderr",
    "stderr": "stderr",
}


class OutputFile(msgspec.Struct, frozen=True):
    """One text file, and what its place says about it."""

    path: Path
    name: str  # relative to the folder; bytes that are not UTF-8 as \\x…
    text: str
    written_at_ns: int


class ImportedOutputs(msgspec.Struct, frozen=True):
    """The evidence of each attempt, the oldest first, the files that were read, and problems with others."""

    attempts: tuple[CrashEvidence, ...]
    read: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


def import_outputs(folder: Path, job: str, skip: Iterable[Path] = ()) -> ImportedOutputs:
    """Read all outputs in a folder tree except `skip`. Raises nothing: unreadable files become problems."""
    skipped = set(skip)
    root = folder.resolve()
    paths = sorted(
        path for path in folder.rglob("*")
        if path not in skipped and _is_candidate(path) and path.is_file() and path.resolve().is_relative_to(root)
    )  # fmt: skip
    files: list[OutputFile] = []
    read: list[str] = []
    problems: list[tuple[str, str]] = []
    if len(paths) > MAX_FILES:
        problems.append((str(folder), f"only the first {MAX_FILES} files were read"))
    paths = paths[:MAX_FILES]
    tail = min(TAIL_BYTES, max(LEAST_BYTES, MAX_BYTES // max(1, len(paths))))
    for path, content in read_each(paths, lambda path: _content(path, tail), _Content):
        name = str(path.relative_to(folder))
        if isinstance(content, FileFailure):
            problems.append((name, content.text))
        elif content.text is not None:
            files.append(OutputFile(path, _encodable(name), content.text, content.written_at_ns))
            read.append(name)
    [(_, attempts)] = read_each([folder], lambda _: _attempts(folder, files, _encodable(job)), list[CrashEvidence])
    if isinstance(attempts, FileFailure):
        problems.append((str(folder), f"its outputs cannot be assigned to ranks: {attempts.text}"))
        attempts = []
    return ImportedOutputs(tuple(attempts), tuple(read), tuple(problems))


class _Content(msgspec.Struct, frozen=True):
    """What one file has: its text, None if it is none."""

    text: str | None
    written_at_ns: int


def _content(path: Path, tail: int) -> _Content:
    """Raises OSError, ValueError."""
    try:
        data = _read(path, tail)
    except (EOFError, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return _Content(data.decode("utf-8", "replace") if _is_text(data) else None, path.stat().st_mtime_ns)


def _encodable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _is_candidate(path: Path) -> bool:
    return path.name == "error.json" or _SUFFIXES.search(path.name) is None


def _read(path: Path, tail: int) -> bytes:
    """The beginning and the end of a file; a line says how much is left out between them."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as stream:
            return _ends(stream, tail)
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= HEAD_BYTES + tail:
            return stream.read(HEAD_BYTES + tail)
        head = stream.read(HEAD_BYTES)
        stream.seek(size - tail)
        return _joined(head, stream.read(tail), size)


def _ends(stream: gzip.GzipFile, tail: int) -> bytes:
    head, end, size = stream.read(HEAD_BYTES), b"", HEAD_BYTES
    while block := stream.read(1 << 20):
        size += len(block)
        end = (end + block)[-tail:]
        if size > MAX_UNPACKED:
            raise OSError(0, "more than 1 GiB uncompressed")
    return _joined(head, end, size) if size > HEAD_BYTES + len(end) else head + end


def _joined(head: bytes, end: bytes, size: int) -> bytes:
    left_out = size - len(head) - len(end)
    return head.rpartition(b"\n")[0] + f"\n[{left_out} bytes left out]\n".encode() + end.partition(b"\n")[2]


def _is_text(data: bytes) -> bool:
    """Whether a file is text: few control characters at its end, where a crash is."""
    sample = data[-65_536:].replace(b"\0", b"")  # a file with a hole reads as zeros there
    controls = len(sample.translate(None, bytes(range(32, 256)) + b"\t\n\r\x1b\b\f"))
    return controls <= len(sample) // 32


def _attempts(folder: Path, files: Sequence[OutputFile], job: str) -> list[CrashEvidence]:
    """The files by attempt: of torchrun's folders, or all as one attempt, which its launcher's output divides."""
    numbers = sorted({number for file in files if (number := _attempt_of(file)) is not None})
    if not numbers:
        return split_attempts(_evidence(folder, files, job, None))
    launchers = [file for file in files if _attempt_of(file) is None]
    attempts = []
    for number in numbers:
        own = [file for file in files if _attempt_of(file) == number]
        attempts.append(_evidence(folder, own, job, number))
    shared = split_attempts(_evidence(folder, launchers, job, None)) if launchers else []
    if len(shared) == len(attempts):
        return [
            msgspec.structs.replace(attempt, launchers=part.launchers, ranks=(*attempt.ranks, *part.ranks))
            for attempt, part in zip(attempts, shared, strict=True)
        ]
    if len(shared) == 1:
        last = attempts[-1]
        attempts[-1] = msgspec.structs.replace(
            last, launchers=shared[0].launchers, ranks=(*last.ranks, *shared[0].ranks)
        )
    return attempts


def _attempt_of(file: OutputFile) -> int | None:
    return next((int(match[1]) for part in file.path.parts[:-1] if (match := _ATTEMPT.match(part))), None)


def _evidence(folder: Path, files: Sequence[OutputFile], job: str, attempt: int | None) -> CrashEvidence:
    """One attempt: files of one rank each, and files that several processes share."""
    places = _places(files)
    shared = {group for file in files if (group := _group_of(file)) is not None and _is_shared(file)}
    ends: dict[tuple[str | None, int], list[OutputFile]] = {}
    launchers: list[LauncherOutput] = []
    for file in files:
        place = places.get(file.name)
        if place is None or _is_shared(file) or _group_of(file) in shared:
            launchers.append(LauncherOutput(_output(file), _node_of(file)))
        else:
            ends.setdefault(place, []).append(file)
    numbers = _global_ranks(ends)
    ranks = [
        RankEnd(
            rank=numbers[place], node=place[0], state="unknown", outputs=tuple(_output(file) for file in files_)
        )
        for place, files_ in ends.items()
    ]  # fmt: skip
    numbered = {end.rank for end in ranks if end.rank is not None}
    world_size = len(numbered) if numbered == set(range(len(numbered))) and len(numbered) > 1 else None
    return CrashEvidence(job, attempt, world_size, tuple(ranks), tuple(launchers))


def _output(file: OutputFile) -> RankOutput:
    is_error = file.path.name == "error.json"
    stem = file.path.name.removesuffix(".gz").removesuffix(".log")
    word = re.split(r"[._-]", stem)[-1].lower()
    return RankOutput(
        "error_file" if is_error else _STREAMS.get(word, "file"), file.text, file.name, written_at_ns=file.written_at_ns
    )


def _stem(file: OutputFile) -> str:
    """The name without what tells streams apart, and without the random suffix of a pod."""
    stem = re.sub(r"(?:^|[._-])(?:std)?(?:out|err)(?:\.log|\.txt)?(?:\.gz)?$|\.(?:log|txt)(?:\.gz)?$", "", file.name)
    pod = re.match(r"^(.*-[0-9]{1,5})-(?=[a-z0-9]*[a-z])[a-z0-9]{5}$", stem)
    return pod[1] if pod else stem


def _group_of(file: OutputFile) -> str | None:
    """Files with the same group are of the same kind: their names differ in numbers only."""
    if any(_ATTEMPT.match(part) for part in file.path.parts) or _RANK.search(file.name):
        return None
    return _NUMBER.sub("#", _stem(file))


def _node_of(file: OutputFile) -> str | None:
    """The node in the name of a file of all its ranks: `node3.log`."""
    match = _NODE.search(_stem(file))
    return match[0] if match else None


def _is_shared(file: OutputFile) -> bool:
    """Whether several processes write to a file: a launcher, or lines of several ranks."""
    if file.path.name == "error.json":
        return False
    sample = file.text[:200_000] + file.text[-200_000:]
    ranks = set(re.findall(r"^(?:\[default[0-9]+\]:)?\[rank([0-9]{1,7})\]:", sample, re.MULTILINE))
    return len(ranks) > 1 or _SHARED.search(sample) is not None


def _places(files: Sequence[OutputFile]) -> dict[str, tuple[str | None, int]]:
    """By name of the file: (node or run, number of its rank there)."""
    places: dict[str, tuple[str | None, int]] = {}
    rest: list[OutputFile] = []
    for file in files:
        parts = Path(file.name).parts
        if any(_ATTEMPT.match(part) for part in parts[:-1]) and parts[-2].isascii() and parts[-2].isdigit():
            index = max(index for index, part in enumerate(parts) if _ATTEMPT.match(part))
            places[file.name] = (parts[index - 1] if index else None, int(parts[-2][:7]))
        elif named := _RANK.findall(file.name):
            is_local = sum(other.path.name == file.path.name for other in files) > 1
            places[file.name] = (parts[-2] if is_local and len(parts) > 1 else None, int(named[-1]))
        else:
            rest.append(file)
    if len({run for run, _ in places.values()}) == 1:
        places = {name: (None, number) for name, (_, number) in places.items()}
    places.update(_numbered(rest))
    return places


def _numbered(files: Sequence[OutputFile]) -> dict[str, tuple[str | None, int]]:
    """Files whose names differ in one number: `train-worker-3.log`, `123_4.out`, `3.log`; streams apart."""
    templates: dict[str, list[tuple[OutputFile, list[str]]]] = {}
    for file in files:
        stem = _stem(file)
        if _NODE.search(stem) is None:
            templates.setdefault(_NUMBER.sub("#", stem), []).append((file, _NUMBER.findall(stem)))
    places: dict[str, tuple[str | None, int]] = {}
    for template, members in templates.items():
        shift = sum(_MASTER.sub("worker-#", other) == template for other in templates if _MASTER.search(other))
        is_master = shift == 0 and _MASTER.search(template) is not None
        columns = list(zip(*(numbers for _, numbers in members), strict=True))
        varying = [index for index, column in enumerate(columns) if len(set(column)) > 1]
        if len(varying) == 1:
            for file, numbers in members:
                places[file.name] = (None, int(numbers[varying[0]][:7]) + shift)
        elif (is_master and not varying) or (shift and not varying):
            places.update((file.name, (None, 1 if shift else 0)) for file, _ in members)
        elif len(varying) == 2:
            for file, numbers in members:
                places[file.name] = (Path(file.name).parent.name or numbers[varying[0]], int(numbers[varying[1]][:7]))
    return places


def _global_ranks(ends: dict[tuple[str | None, int], list[OutputFile]]) -> dict[tuple[str | None, int], int | None]:
    """The rank of each place: from the prefixes of its lines, else its number where that is certain."""
    prefixed: dict[tuple[str | None, int], int] = {}
    for place, files in ends.items():
        ranks = {
            int(rank)
            for file in files
            for rank in re.findall(r"^\[rank([0-9]{1,7})\]:", file.text[-200_000:], re.MULTILINE)
        }
        if len(ranks) == 1:
            prefixed[place] = ranks.pop()
    offsets: dict[str | None, set[int]] = {}
    for (run, number), rank in prefixed.items():
        offsets.setdefault(run, set()).add(rank - number)
    runs = {run for run, _ in ends}
    results: dict[tuple[str | None, int], int | None] = {}
    for run, number in ends:
        offset = offsets.get(run, set())
        if (run, number) in prefixed:
            results[run, number] = prefixed[run, number]
        elif len(offset) == 1:
            results[run, number] = number + next(iter(offset))
        else:
            results[run, number] = number if len(runs) == 1 and not offset else None
    return results


def split_attempts(evidence: CrashEvidence) -> list[CrashEvidence]:
    """The attempts in the output of a launcher: torchrun reports the end of each."""
    if evidence.ranks:
        return [evidence]
    parts = [parts for launcher in evidence.launchers if len(parts := _parts(launcher)) > 1]
    if not parts or len({len(pieces) for pieces in parts}) > 1:
        return [evidence]
    return [
        msgspec.structs.replace(evidence, attempt=number, launchers=launchers)
        for number, launchers in enumerate(zip(*parts, strict=True))
    ]


def _parts(launcher: LauncherOutput) -> list[LauncherOutput]:
    """The output of a launcher in parts of one attempt each."""
    text = launcher.output.text or ""
    ends = [match.end() for match in _ATTEMPT_END.finditer(text)]
    return [
        msgspec.structs.replace(launcher, output=msgspec.structs.replace(launcher.output, text=text[start:end]))
        for start, end in pairwise([0, *ends[:-1], len(text)])
    ]
