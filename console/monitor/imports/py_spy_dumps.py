"""Import of py-spy dumps (text or JSON) from a folder as records, so that they are analysed like a capture.

Ranks are parsed from file names; times are those of the files. State and context switches of the processes are unknown.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ...records import ConsoleRecord, NodeState, Rank, Record, Stack, StackFrame
from ...text.format import size
from .isolated_files import FileFailure, read_each

#: Upper bound of a dump of one process.
MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 65_536
#: Name of the imported job.
JOB: Final = "imported"
_RANK = re.compile(r"(?<![A-Za-z])(?:global_?)?rank[-_.=]?(\d{1,7})(?!\d)", re.IGNORECASE)
_PROCESS = re.compile(r"^Process ([0-9]{1,10}): ?(.*)$")
_THREAD = re.compile(r'^Thread (?:([0-9]{1,18})|0x[0-9A-Fa-f]+)(?:/0x[0-9A-Fa-f]+)? \(([a-z+]+)\)(?:: "(.*)")?$')
_FRAME = re.compile(r"^    (\S.*) \(([^()]*?)(?::([0-9]{1,9}))?\)$")
#: py-spy's text shows paths below the folders of sys.path: these are installed packages, whatever the path says.
_PACKAGES: Final = frozenset(
    {"torch", "torchvision", "numpy", "deepspeed", "megatron", "horovod", "jax", "jaxlib", "flax", "accelerate",
     "lightning", "pytorch_lightning", "transformers", "datasets", "ray", "safetensors", "orbax", "triton", "fsspec"}
)  # fmt: skip


class NoDumps(Exception):
    """No dump in the folder."""


class ImportedDumps(msgspec.Struct, frozen=True):
    """The records of a folder, and the files that are not dumps, each with the reason."""

    records: tuple[Record, ...]
    refused: tuple[tuple[str, str], ...]


class _Thread(msgspec.Struct, frozen=True):
    name: str | None
    os_thread_id: int | None
    active: bool
    gil: bool
    frames: tuple[StackFrame, ...]


class _Dump(msgspec.Struct, frozen=True):
    """One process at one instant."""

    pid: int
    threads: tuple[_Thread, ...]


def records_of(folder: Path, models: tuple[str, ...] = ()) -> ImportedDumps:
    """Return the records of all dumps in a folder tree. `models` as in [hang] models. Raises NoDumps."""
    samples: Counter[tuple[str, int | None, int]] = Counter()
    records: list[Record] = []
    refused: list[tuple[str, str]] = []
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (_instant(path), path))
    for path, dumps in read_each(files[:MAX_FILES], _dumps, list[_Dump]):
        if isinstance(dumps, FileFailure):
            refused.append((str(path.relative_to(folder)), dumps.text))
            continue
        rank, node = _rank_of(path, folder), _node_of(path, folder)
        for number, dump in enumerate(dumps):
            role = "rank" if number == 0 else "child"
            key = (node, rank, dump.pid)
            records += _records(dump, node, rank, role, samples[key], _instant(path))
            samples[key] += 1
    if not records:
        raise NoDumps(f"{folder}: no output of `py-spy dump` or `py-spy dump --json`")
    nodes = sorted({record.node for record in records})
    head = _head(folder, models, nodes, min(record.rx for record in records))
    return ImportedDumps((*head, *records), tuple(refused))


def without_stacks(folder: Path, models: tuple[str, ...] = ()) -> ImportedDumps:
    """Return the head records of a folder without dumps, which contains other evidence."""
    return ImportedDumps(tuple(_head(folder, models, ["imported"], _instant(folder))), ())


def _head(folder: Path, models: tuple[str, ...], nodes: list[str], rx: int) -> list[Record]:
    console = ConsoleRecord(cluster=folder.name or str(folder), version="", hang_models=models, rx=rx)
    return [console, *(NodeState(node=node, state="ok", rx=rx) for node in nodes)]


def _records(dump: _Dump, node: str, rank: int | None, role: str, sample: int, instant: int) -> Iterator[Record]:
    place = {"node": node, "job": JOB, "rank": rank, "pid": dump.pid, "start_ticks": 0, "rx": instant}
    if role == "rank" and sample == 0:
        yield Rank(source="name of the file", **place)  # type: ignore[arg-type]
    for number, thread in enumerate(dump.threads):
        yield Stack(
            capture="imported", sample=sample, role=role, status="ok", engine="py-spy", looked=instant,
            thread_id=number + 1, os_thread_id=thread.os_thread_id, thread_name=thread.name, active=thread.active,
            gil=thread.gil, frames=thread.frames, **place,  # type: ignore[arg-type]
        )  # fmt: skip


def _dumps(path: Path) -> list[_Dump]:
    """The processes in a file. Raises ValueError if it is not a dump."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"larger than {size(MAX_BYTES)}")
    text = path.read_text("utf-8", "backslashreplace")
    dumps = _from_json(text) if text.lstrip().startswith("[") else _from_text(text)
    if not dumps:
        raise ValueError("not a py-spy dump")
    return dumps


def _from_json(text: str) -> list[_Dump]:
    try:
        threads: dict[int, list[_Thread]] = {}
        for entry in json.loads(text):
            threads.setdefault(_number(entry.get("pid")) or 0, []).append(_thread(entry))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not py-spy's format: {type(error).__name__}") from error
    return [_Dump(pid, tuple(entries)) for pid, entries in threads.items()]


def _thread(entry: dict[str, Any]) -> _Thread:
    frames = tuple(
        StackFrame(
            _text(frame["name"]),
            _text(frame["filename"]),
            _number(frame["line"]) or 0,
            native=bool(frame.get("module")),
        )
        for frame in reversed(entry["frames"])
    )
    name = entry.get("thread_name")
    return _Thread(
        _text(name) if isinstance(name, str) else None, _number(entry.get("os_thread_id")), bool(entry["active"]),
        bool(entry["owns_gil"]), tuple(frame for frame in frames if not frame.native),
    )  # fmt: skip


def _text(value: object) -> str:
    """As text that can be encoded: JSON may contain lone surrogates."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _from_text(text: str) -> list[_Dump]:
    dumps: list[tuple[int, list[tuple[str | None, int | None, str, list[StackFrame]]]]] = []
    for line in text.splitlines():
        if process := _PROCESS.match(line):
            dumps.append((int(process[1]), []))
        elif (thread := _THREAD.match(line)) and dumps:
            dumps[-1][1].append((thread[3], int(thread[1]) if thread[1] else None, thread[2], []))
        elif (frame := _FRAME.match(line)) and dumps and dumps[-1][1]:
            number = int(frame[3]) if frame[3] else 0
            dumps[-1][1][-1][3].append(StackFrame(frame[1], _path(frame[2]), number))
    return [
        _Dump(pid, tuple(
            _Thread(name, tid, "active" in status, "gil" in status, tuple(reversed(frames)))
            for name, tid, status, frames in threads
        ))
        for pid, threads in dumps if threads
    ]  # fmt: skip


def _path(shown: str) -> str:
    """The full path of a frame, as far as the shortened path in py-spy's text allows."""
    first = shown.split("/", 1)[0]
    if first.removesuffix(".py") in sys.stdlib_module_names:
        return f"/usr/lib/python3/{shown}"
    return f"/usr/lib/python3/site-packages/{shown}" if first in _PACKAGES else shown


def _rank_of(path: Path, folder: Path) -> int | None:
    """The rank in the name of a file, or of its nearest folder; None without one."""
    for part in reversed(path.relative_to(folder).parts):
        ranks = {int(number) for number in _RANK.findall(part)}
        if len(ranks) == 1:
            return ranks.pop()
    return None


def _node_of(path: Path, folder: Path) -> str:
    """The part of the name before the rank, or the nearest folder not named after a rank."""
    name = path.relative_to(folder).parts
    before = _RANK.split(name[-1])[0].strip(".-_ ") if _RANK.search(name[-1]) else ""
    if before and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", before):
        return before
    folders = [part for part in name[:-1] if not _RANK.search(part)]
    return folders[-1] if folders else "imported"


def _instant(path: Path) -> int:
    return path.stat().st_mtime_ns


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
