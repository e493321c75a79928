"""A folder of py-spy dumps, text or JSON, as records: what somebody collected by hand is judged like a capture.

Nothing is invented: which rank a process is, is read from names; the instant is that of the file's last change; what
the kernel said of the process, and how often it woke up, nobody wrote down.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...records import ConsoleRecord, NodeState, Rank, Record, Stack, StackFrame
from ...text.format import size

#: No dump of one process is larger.
MOST_BYTES: Final = 16 << 20
MOST_FILES: Final = 65_536
#: What the job in a folder is called.
JOB: Final = "imported"
_RANK = re.compile(r"(?<![A-Za-z])(?:global_?)?rank[-_.=]?(\d{1,7})(?!\d)", re.IGNORECASE)
_PROCESS = re.compile(r"^Process (\d+): ?(.*)$")
_THREAD = re.compile(r'^Thread (?:(\d+)|0x[0-9A-Fa-f]+)(?:/0x[0-9A-Fa-f]+)? \(([a-z+]+)\)(?:: "(.*)")?$')
_FRAME = re.compile(r"^    (\S.*) \(([^()]*?)(?::(\d+))?\)$")
#: py-spy's text shows paths below the folders of sys.path: these are installed packages, whatever the path says.
_PACKAGES: Final = frozenset(
    {"torch", "torchvision", "numpy", "deepspeed", "megatron", "horovod", "jax", "jaxlib", "flax", "accelerate",
     "lightning", "pytorch_lightning", "transformers", "datasets", "ray", "safetensors", "orbax", "triton", "fsspec"}
)  # fmt: skip


class NoDumps(Exception):
    """There is no dump in that folder; the text says what was looked for."""


@dataclass(frozen=True, slots=True)
class ImportedDumps:
    """The records of a folder, and the files that are no dumps, each with the reason."""

    records: tuple[Record, ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Thread:
    name: str | None
    os_thread_id: int | None
    active: bool
    gil: bool
    frames: tuple[StackFrame, ...]


@dataclass(frozen=True, slots=True)
class _Dump:
    """One process at one instant."""

    pid: int
    threads: tuple[_Thread, ...]


def records_of(folder: Path, models: tuple[str, ...] = ()) -> ImportedDumps:
    """Everything in a folder and below it. `models` as in [hang] models. Raises NoDumps."""
    looks: Counter[tuple[str, int | None, int]] = Counter()
    records: list[Record] = []
    refused: list[tuple[str, str]] = []
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (_instant(path), path))
    for path in files[:MOST_FILES]:
        name = str(path.relative_to(folder))
        try:
            dumps = _dumps(path)
        except (OSError, ValueError) as error:
            refused.append((name, str(error) or type(error).__name__))
            continue
        rank, node = _rank_of(path, folder), _node_of(path, folder)
        for number, dump in enumerate(dumps):
            role = "rank" if number == 0 else "child"
            key = (node, rank, dump.pid)
            records += _records(dump, node, rank, role, looks[key], _instant(path))
            looks[key] += 1
    if not records:
        raise NoDumps(f"{folder}: nothing that `py-spy dump` or `py-spy dump --json` wrote")
    nodes = sorted({record.node for record in records})
    head = _head(folder, models, nodes, min(record.rx for record in records))
    return ImportedDumps((*head, *records), tuple(refused))


def without_stacks(folder: Path, models: tuple[str, ...] = ()) -> ImportedDumps:
    """A folder without any dump of stacks, in which something else was found."""
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
    """The processes in a file. Raises ValueError where it is no dump."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"larger than {size(MOST_BYTES)}")
    text = path.read_text("utf-8", "backslashreplace")
    found = _from_json(text) if text.lstrip().startswith("[") else _from_text(text)
    if not found:
        raise ValueError("no dump of py-spy")
    return found


def _from_json(text: str) -> list[_Dump]:
    try:
        said = json.loads(text)
        threads: dict[int, list[_Thread]] = {}
        for one in said:
            threads.setdefault(_number(one.get("pid")) or 0, []).append(_thread(one))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not py-spy's form: {type(error).__name__}") from error
    return [_Dump(pid, tuple(found)) for pid, found in threads.items()]


def _thread(said: dict[str, Any]) -> _Thread:
    frames = tuple(
        StackFrame(
            _text(one["name"]), _text(one["filename"]), _number(one["line"]) or 0, native=bool(one.get("module"))
        )
        for one in reversed(said["frames"])
    )
    name = said.get("thread_name")
    return _Thread(
        _text(name) if isinstance(name, str) else None, _number(said.get("os_thread_id")), bool(said["active"]),
        bool(said["owns_gil"]), tuple(frame for frame in frames if not frame.native),
    )  # fmt: skip


def _text(said: object) -> str:
    """As text that can be written: JSON may name half of a pair of surrogates, which is no character."""
    return str(said).encode("utf-8", "backslashreplace").decode()


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
    """The path as far as it can be told from what py-spy's text leaves of it."""
    first = shown.split("/", 1)[0]
    if first.removesuffix(".py") in sys.stdlib_module_names:
        return f"/usr/lib/python3/{shown}"
    return f"/usr/lib/python3/site-packages/{shown}" if first in _PACKAGES else shown


def _rank_of(path: Path, folder: Path) -> int | None:
    """The rank that the name of a file, or of the folder nearest to it, tells; None where it tells none."""
    for part in reversed(path.relative_to(folder).parts):
        found = {int(number) for number in _RANK.findall(part)}
        if len(found) == 1:
            return found.pop()
    return None


def _node_of(path: Path, folder: Path) -> str:
    """What stands before the rank in the name, or the folder that is not named after a rank."""
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
