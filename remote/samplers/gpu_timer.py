"""Every GPU's global timer against the node's clocks, once a minute, where `[clock] gpu_clock` asks for it."""

import json
import sys
import time

from ..agent import commands
from ..clocks import stamps
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from .base import Context, Fact, Fields

#: It costs a CUDA context on every GPU: seldom.
EVERY_S = 60.0
#: A context takes a fraction of a second, on a cold node with eight GPUs some seconds in all.
_TIMEOUT_S = 40.0
_PROGRAM = __name__.replace(".samplers.", ".clocks.")
#: A timer that runs so much faster or slower than this machine's clock was set meanwhile.
_MOST_PPM = 1000.0
#: What Python 3.6 cannot say of CLOCK_REALTIME, in a float of seconds.
_FLOAT_NS = 0 if hasattr(time, "clock_gettime_ns") else 256
_NAMES = {"no_library": "gpu_clock_no_cuda", "no_gpu": "gpu_clock_none", "failed": "gpu_clock_failed"}
_TRIES = {
    "no_library": "install the NVIDIA driver if the node has GPUs, or leave [clock] gpu_clock off",
    "no_gpu": "leave [clock] gpu_clock off on such nodes",
    "failed": "run nvidia-smi on the node: it says the same in more words",
}


class GpuTimerSampler(Sampler):
    """`gpu_clock` records, one a GPU. What reads the timers is a process of its own, and gone after that."""

    name = "gpu_clock"
    finest_s = EVERY_S

    def __init__(self, context: "Context", simulated: "Any" = None) -> None:
        """`simulated`: what stands in for NVML where GPUs are invented; their timers are, then."""
        super(GpuTimerSampler, self).__init__(context)
        self._simulated = simulated
        self._read: list[Fields] = []  # at the start, for the first tick
        self._first: dict[str | None, tuple[int, int, int]] = {}  # uuid: (gpu_ns, raw, bound_ns)

    def start(self) -> None:
        """Read the timers once. Raises Unavailable."""
        self._read = self._look()

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `gpu_clock` record per GPU."""
        try:
            read, self._read = self._read or self._look(), []
        except Unavailable as error:  # it could be read before
            read = [{"index": 0, "uuid": None, "error": error.text}]
        for line in read:
            yield "gpu_clock", self._record(line)

    def _look(self) -> "list[Fields]":
        """Lines of `gputimer`. Raises Unavailable where there is no GPU to read."""
        if self._simulated is not None:
            return [_invented(index, uuid) for index, uuid in enumerate(self._simulated.uuids)]
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
            messages = err.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            text = "what reads the GPUs' timers ended with status %s: %s" % (status, messages[-1])
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
        """(ppm against MONOTONIC_RAW since the first read, the most that this is wrong by); None at the first."""
        gpu_ns, raw, first_bound = self._first.setdefault(line["uuid"], (line["gpu_ns"], line["raw"], bound))
        if line["raw"] <= raw:
            return None, None
        gone = line["raw"] - raw
        ppm, ppm_bound = 1e6 * (line["gpu_ns"] - gpu_ns - gone) / gone, 1e6 * (bound + first_bound) / gone
        if abs(ppm) > _MOST_PPM + ppm_bound:
            self._first[line["uuid"]] = (line["gpu_ns"], line["raw"], bound)
            return None, None
        return round(ppm, 4), round(ppm_bound, 4)


def _invented(index: int, uuid: str) -> "Fields":
    """A timer that is some milliseconds ahead, and 0.8 ppm fast."""
    raw = stamps.mono_ns()
    real = raw + stamps.realtime_ns() - stamps.mono_ns()
    fast = (raw % 86400000000000) * 8 // 10000000
    return {
        "index": index, "uuid": uuid, "gpu_ns": (real + 2000000 * (index + 1) + fast) // 32 * 32, "raw": raw,
        "width_ns": 5200, "step_ns": 32, "reads": 64,
    }  # fmt: skip
