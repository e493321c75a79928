"""Clock records: snapshots of the node's clocks, its time service, and the GPUs' timers."""

import json
import sys
import time

from ..agent import commands
from ..clocks import services, stamps
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields

#: ns. A larger change of CLOCK_REALTIME against MONOTONIC_RAW between two reads is a step. Slewing (adjtime: at most
#: 500 ppm, 50 us in 100 ms) is allowed for on top.
STEP_NS = 20000
_SLEW = 600e-6
#: ns between two records: while probes run, and otherwise.
PROBING_NS, IDLE_NS = 1000000000, 10000000000
#: Interval of checking `snapshot_period_ms` while it is 0.
_IDLE_CHECK_MS = 1000
#: While no probes run, only steps are looked for: so many periods between two reads, at most so many milliseconds.
_IDLE_PERIODS, _IDLE_MS = 5, 500


class SnapshotSampler(Sampler):
    """Bracketed reads of all clocks; the tightest of each second (or 10 s) is sent, and every step at once.

    The read interval is `agent.snapshot_period_ms`, set by the console, and longer while no probes run; 0: no reads.
    """

    name = "clock"

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(SnapshotSampler, self).__init__(context)
        self._agent = agent
        self._last: Fields | None = None  # the previous read
        self._sent: Fields | None = None  # the read of the previous record
        self._best: Fields | None = None  # the tightest read since then
        self._reads = self._step = 0
        self._namespace: Fields = {}

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        period_ms = self._agent.snapshot_period_ms
        if period_ms and not self._is_probing:
            period_ms = max(period_ms, min(_IDLE_MS, _IDLE_PERIODS * period_ms))
        return (period_ms or _IDLE_CHECK_MS) / 1000.0

    @property
    def _is_probing(self) -> bool:
        return self._agent.clocks is not None and self._agent.clocks.is_probing

    def start(self) -> None:
        """Read the time namespace."""
        self._namespace = stamps.time_namespace()

    def tick(self, now: float) -> "Iterator[Fact]":
        """Read the clocks; a `clock_snapshot` when one is due or a step occurred."""
        if not self._agent.snapshot_period_ms:
            return
        read = stamps.snapshot()
        step = self._stepped(read)
        self._last = read
        self._reads += 1
        if abs(step) > abs(self._step):
            self._step = step
        if step or self._best is None or read["width_ns"] <= self._best["width_ns"]:
            self._best = read
        if step or self._sent is None or read["raw"] - self._sent["raw"] >= self._every_ns():
            yield "clock_snapshot", self._record()

    def _stepped(self, read: "Fields") -> int:
        """Step of CLOCK_REALTIME since the last read, ns; 0 if there was none."""
        if self._last is None:
            return 0
        moved = _real_ahead(read) - _real_ahead(self._last)
        slewed = _SLEW * (read["raw"] - self._last["raw"])
        allowed = STEP_NS + slewed + read["width_ns"] + self._last["width_ns"]
        return moved if abs(moved) > allowed else 0

    def _every_ns(self) -> int:
        return PROBING_NS if self._is_probing else IDLE_NS

    def _record(self) -> "Fields":
        best, previous = self._best, self._sent
        assert best is not None
        slew = None
        if previous is not None and not self._step and best["raw"] > previous["raw"]:
            slew = round(1e6 * (_real_ahead(best) - _real_ahead(previous)) / (best["raw"] - previous["raw"]), 3)
        record: Fields = dict(best, reads=self._reads, step_ns=self._step, slew_ppm=slew, **self._namespace)
        self._sent, self._best = best, None
        self._reads = self._step = 0
        return record


def _real_ahead(read: "Fields") -> int:
    return int(read["real"] - read["raw"])


class ServiceSampler(Sampler):
    """State of chronyd, ntpd, timesyncd or ptp4l every 60 s; finding the service scans all processes."""

    name = "clock_source"
    waits = True
    finest_s = 60.0

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(ServiceSampler, self).__init__(context)
        self._agent = agent

    def start(self) -> None:
        """Terminate a running query when the agent ends."""
        self._agent.on_end(commands.end_all)

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `clock_source` record."""
        if self._agent.snapshot_period_ms:
            yield "clock_source", services.read_clock_source(self.context.proc)


#: Seconds between two reads, each of which creates a CUDA context on every GPU.
EVERY_S = 60.0
#: A context takes less than a second, on a cold node with eight GPUs several seconds in all.
_TIMEOUT_S = 40.0
_PROGRAM = __name__.replace(".samplers.clock", ".clocks.gpu_timer")
#: Larger drift against the node's clock means that the timer was reset.
_MAX_PPM = 1000.0
#: ns. Rounding error of Python 3.6's CLOCK_REALTIME, a float of seconds.
_FLOAT_NS = 0 if hasattr(time, "clock_gettime_ns") else 256
_NAMES = {"no_library": "gpu_clock_no_cuda", "no_gpu": "gpu_clock_none", "failed": "gpu_clock_failed"}
_TRIES = {
    "no_library": "leave [clock] gpu_clock off on nodes without the driver of NVIDIA GPUs: it reads their timers only",
    "no_gpu": "leave [clock] gpu_clock off on such nodes",
    "failed": "run nvidia-smi on the node for details",
}


class GpuTimerSampler(Sampler):
    """`gpu_clock` records, one per GPU. A short-lived process reads the timers."""

    name = "gpu_clock"
    waits = True
    finest_s = EVERY_S

    def __init__(self, context: "Context", simulated: "Any" = None) -> None:
        """`simulated`: the simulated NVML whose GPUs get simulated timers, or None."""
        super(GpuTimerSampler, self).__init__(context)
        self._simulated = simulated
        self._read: list[Fields] = []  # read by start(), for the first tick
        self._first: dict[str | None, tuple[int, int, int]] = {}  # uuid: (gpu_ns, raw, bound_ns)

    def start(self) -> None:
        """Read the timers once. Raises Unavailable."""
        self._read = self._read_timers()

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `gpu_clock` record per GPU."""
        try:
            read, self._read = self._read or self._read_timers(), []
        except Unavailable as error:  # it could be read before
            read = [{"index": 0, "uuid": None, "error": error.text}]
        for line in read:
            yield "gpu_clock", self._record(line)

    def _read_timers(self) -> "list[Fields]":
        """Output lines of clocks/gpu_timer. Raises Unavailable."""
        if self._simulated is not None:
            return [_simulated_timer(index, uuid) for index, uuid in enumerate(self._simulated.uuids)]
        try:
            source = commands.source_of(_PROGRAM).encode()
            status, out, err = commands.run_apart("gpu_clock", _TIMEOUT_S, python=sys.executable, given=source)
        except (OSError, commands.CommandTimeout) as error:
            raise Unavailable("the GPUs' timers cannot be read: %s" % error, _TRIES["failed"], _NAMES["failed"])
        lines = [json.loads(line) for line in out.decode("utf-8", "replace").splitlines() if line.startswith("{")]
        none = next((line for line in lines if "none" in line), None)
        if none is not None:
            raise Unavailable("no GPU timer: %s" % none["text"], _TRIES[none["none"]], _NAMES[none["none"]])
        if status or not lines:
            messages = err.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            text = "the reader of the GPUs' timers ended with status %s: %s" % (status, messages[-1])
            if not lines:
                raise Unavailable(text, _TRIES["failed"], _NAMES["failed"])
            lines.append({"index": lines[-1]["index"] + 1, "uuid": None, "error": text})
        return lines

    def _record(self, line: "Fields") -> "Fields":
        if "error" in line:
            self._first.pop(line["uuid"], None)
            return {"index": line["index"], "uuid": line["uuid"], "error": line["error"]}
        now = stamps.snapshot()
        real = line["raw"] + now["real"] - now["raw"]
        bound = line["width_ns"] // 2 + 1 + line["step_ns"] + now["width_ns"] + _FLOAT_NS
        drift, drift_bound = self._drift(line, bound)
        return {
            "index": line["index"], "uuid": line["uuid"], "gpu_ns": line["gpu_ns"], "raw": line["raw"], "real": real,
            "ahead_ns": line["gpu_ns"] - real, "bound_ns": bound, "width_ns": line["width_ns"],
            "step_ns": line["step_ns"], "reads": line["reads"], "drift_ppm": drift, "drift_bound_ppm": drift_bound,
            "simulated": self._simulated is not None,
        }  # fmt: skip

    def _drift(self, line: "Fields", bound: int) -> "tuple[float | None, float | None]":
        """(drift against MONOTONIC_RAW since the first read, its error bound), ppm; None at the first read."""
        gpu_ns, raw, first_bound = self._first.setdefault(line["uuid"], (line["gpu_ns"], line["raw"], bound))
        if line["raw"] <= raw:
            return None, None
        gone = line["raw"] - raw
        ppm, ppm_bound = 1e6 * (line["gpu_ns"] - gpu_ns - gone) / gone, 1e6 * (bound + first_bound) / gone
        if abs(ppm) > _MAX_PPM + ppm_bound:
            self._first[line["uuid"]] = (line["gpu_ns"], line["raw"], bound)
            return None, None
        return round(ppm, 4), round(ppm_bound, 4)


def _simulated_timer(index: int, uuid: str) -> "Fields":
    """A timer some ms ahead and 0.8 ppm fast."""
    raw = stamps.mono_ns()
    real = raw + stamps.realtime_ns() - stamps.mono_ns()
    fast = (raw % 86400000000000) * 8 // 10000000
    return {
        "index": index, "uuid": uuid, "gpu_ns": (real + 2000000 * (index + 1) + fast) // 32 * 32, "raw": raw,
        "width_ns": 5200, "step_ns": 32, "reads": 64,
    }  # fmt: skip
