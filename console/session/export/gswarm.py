"""`gswarm`: the JSON that gswarm-profiler documents, in its units.

Frames of one second: parallel arrays over the GPUs sampled in that second, percent from 0 to 100, GB/s. Values not
measured are null. `dram_*` is what its documentation calls "GPU-DRAM": PCIe traffic of the GPU; `gpu_bandwidth` is
NVLink traffic of all links in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from ...records import UNREADABLE, Gpu, GpuInfo
from ...text import format
from ..format.layout import SessionError
from .slice import SampleClock, SessionSlice

_SECOND: Final = 1_000_000_000
#: Bytes of a file that is read; it is held in memory.
MAX_BYTES: Final = 256 << 20
#: Names of GPUs: node, index, model.
_GPU_ID: Final = re.compile(r"(?:(?P<node>.+?):)??(?P<index>\d{1,4})(?::(?P<name>.*))?", re.DOTALL)


class _Average(msgspec.Struct):
    count: int = 0
    sum: float = 0.0
    max: float | None = None

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count, self.sum = self.count + 1, self.sum + value
            self.max = value if self.max is None or value > self.max else self.max

    @property
    def mean(self) -> float | None:
        return round(self.sum / self.count, 3) if self.count else None


class _Device(msgspec.Struct):
    util: _Average = msgspec.field(default_factory=_Average)
    memory: _Average = msgspec.field(default_factory=_Average)
    bandwidth: _Average = msgspec.field(default_factory=_Average)


def write(source: SessionSlice, out: BinaryIO) -> None:
    """Write the file. Raises OSError, and what reading the session raises."""
    frames = _Frames()
    out.write(b'{"session_name": %s,\n"frames": [' % msgspec.json.encode(source.meta.name))
    before = b"\n"
    for frame in frames.of(source):
        out.write(before + msgspec.json.encode(frame))
        before = b",\n"
    rest = {"start_time": frames.first, "end_time": frames.last, "summary_by_device": frames.summary()}
    out.write(b"\n],\n" + msgspec.json.encode(rest)[1:] + b"\n")


class _Frames:
    """Gathers samples into frames and the summary."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.last: str | None = None
        self._number = 0
        self._infos: dict[tuple[str, str], GpuInfo] = {}
        self._devices: dict[str, _Device] = {}

    def of(self, source: SessionSlice) -> Iterator[Mapping[str, Any]]:
        clock = SampleClock(source)
        late_s = _lateness_s(source, clock)
        open_: dict[int, dict[tuple[str, str], Gpu]] = {}
        newest = 0
        for record in source.only("gpu", "gpu_info"):
            if isinstance(record, GpuInfo):
                self._infos[record.node, record.uuid] = record
            elif isinstance(record, Gpu):
                second = clock.at(record) // _SECOND
                newest = max(newest, second)
                open_.setdefault(second, {})[record.node, record.uuid] = record
                while open_ and min(open_) < newest - late_s:
                    oldest = min(open_)
                    yield self._frame(oldest, open_.pop(oldest))
        for second in sorted(open_):
            yield self._frame(second, open_[second])

    def summary(self) -> Mapping[str, Any]:
        return {
            name: {
                "avg_gpu_util": device.util.mean, "max_gpu_util": device.util.max,
                "avg_gpu_memory": device.memory.mean, "max_gpu_memory": device.memory.max,
                "avg_dram_bandwidth": device.bandwidth.mean, "samples": device.util.count,
            }
            for name, device in sorted(self._devices.items())
        }  # fmt: skip

    def _frame(self, second: int, gpus: Mapping[tuple[str, str], Gpu]) -> Mapping[str, Any]:
        time = datetime.fromtimestamp(second, UTC).isoformat()
        self.first, self.last = self.first or time, time
        self._number += 1
        rows = [self._row(gpus[key]) for key in sorted(gpus, key=lambda key: (key[0], gpus[key].index, key[1]))]
        names = rows[0].keys() if rows else ()
        # as documented, `gpu_bandwidth` is present only if any GPU measured it
        kept = [name for name in names if name != "gpu_bandwidth" or any(row[name] is not None for row in rows)]
        return {"frame_id": self._number, "time": time, **{name: [row[name] for row in rows] for name in kept}}

    def _row(self, gpu: Gpu) -> dict[str, Any]:
        info = self._infos.get((gpu.node, gpu.uuid))
        name = f"{gpu.node}:{gpu.index}:{(info.name if info else None) or 'GPU'}"
        total = info.mem_total_bytes if info else None
        memory = 100 * gpu.mem_used_bytes / total if gpu.mem_used_bytes is not None and total else None
        rx, tx = _gigabytes(gpu.pcie_rx_bytes_s), _gigabytes(gpu.pcie_tx_bytes_s)
        both = None if rx is None or tx is None else round(rx + tx, 6)
        nvlink_rx, nvlink_tx = _gigabytes(gpu.nvlink_rx_bytes_s), _gigabytes(gpu.nvlink_tx_bytes_s)
        device = self._devices.setdefault(name, _Device())
        device.util.add(gpu.util_pct)
        device.memory.add(memory)
        device.bandwidth.add(both)
        return {
            "gpu_id": name, "gpu_util": gpu.util_pct, "gpu_memory": None if memory is None else round(memory, 3),
            "dram_bandwidth": both, "dram_bandwidth_rx": rx, "dram_bandwidth_tx": tx,
            "gpu_bandwidth": None if nvlink_rx is None or nvlink_tx is None else round(nvlink_rx + nvlink_tx, 6),
        }  # fmt: skip


def _lateness_s(source: SessionSlice, clock: SampleClock) -> int:
    """Return by how many seconds samples are behind others that arrived before; frames are held for so long."""
    newest = late_s = 0
    for record in source.only("gpu"):
        second = clock.at(record) // _SECOND
        newest = max(newest, second)
        late_s = max(late_s, newest - second)
    return late_s


def _gigabytes(bytes_s: float | None) -> float | None:
    return None if bytes_s is None else round(bytes_s / 1e9, 6)


class _Frame(msgspec.Struct):
    """The arrays of a frame that are read: one value per GPU."""

    time: datetime
    gpu_id: list[str] = []
    gpu_util: list[float | None] = []
    dram_bandwidth_rx: list[float | None] = []
    dram_bandwidth_tx: list[float | None] = []


class _File(msgspec.Struct):
    frames: list[_Frame]
    session_name: str = ""


def is_gswarm(path: Path) -> bool:
    """Whether a file is gswarm's JSON. Raises OSError."""
    with path.open("rb") as file:
        return re.match(rb'\s*\{\s*"(session_name|frames|frame_id|start_time)"\s*:', file.read(4096)) is not None


def read(path: Path) -> Iterator[Gpu | GpuInfo]:
    """Return the samples of a file, in order of time. Raises SessionError, OSError.

    Its `gpu_memory` is a share of an unknown size, and `gpu_bandwidth` a sum of both directions: both are left out.
    """
    if (size := path.stat().st_size) > MAX_BYTES:
        raise SessionError(f"{path}: {format.size(size)}; at most {format.size(MAX_BYTES)} of gswarm's JSON are read")
    try:
        frames = msgspec.json.decode(path.read_bytes(), type=_File).frames
    except UNREADABLE as error:
        raise SessionError(f"{path}: not gswarm's JSON: {error}") from error
    return _samples(sorted(frames, key=lambda frame: frame.time.timestamp()))


def _samples(frames: list[_Frame]) -> Iterator[Gpu | GpuInfo]:
    described: set[str] = set()
    for number, frame in enumerate(frames, 1):
        instant = round(frame.time.timestamp() * 1000) * (_SECOND // 1000)
        stamps: dict[str, Any] = {"agent": "gswarm", "seq": number, "t": instant, "mono": instant, "rx": instant}
        for place, name in enumerate(frame.gpu_id):
            match = _GPU_ID.fullmatch(name)
            node = (match["node"] if match else None) or "gswarm"
            device: dict[str, Any] = {"node": node, "index": int(match["index"]) if match else place, "uuid": name}
            if name not in described:
                described.add(name)
                yield GpuInfo(**device, **stamps, name=match["name"] if match else name)
            yield Gpu(
                **device, **stamps, util_pct=_at(frame.gpu_util, place),
                pcie_rx_bytes_s=_bytes_s(_at(frame.dram_bandwidth_rx, place)),
                pcie_tx_bytes_s=_bytes_s(_at(frame.dram_bandwidth_tx, place)),
            )  # fmt: skip


def _at(values: list[float | None], place: int) -> float | None:
    return values[place] if place < len(values) else None


def _bytes_s(gigabytes: float | None) -> float | None:
    return None if gigabytes is None else gigabytes * 1e9
