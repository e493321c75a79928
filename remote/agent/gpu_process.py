"""The agent's side of the process that reads NVML: starts it, watches it, and posts its records (see gpu_child.py)."""

import json
import os
import re
import signal
import threading
import time

from ..nvml import call, inventory
from ..proc.starvation import SHORT_S, Lateness, StarvedTime
from ..proc.threads import Thread
from ..samplers.base import Sampler, Unavailable
from . import release
from .gpu_fork import RANK_FIELDS, GpuChild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Iterable

    from ..samplers.base import Context, Fact, Fields
    from .agent import Agent
    from .digests import Order
    from .rows import ColumnOrder

#: Seconds without a first answer after which the driver counts as slow to start, and as hung. Without persistence mode
#: a start takes seconds per GPU.
SLOW_S, STUCK_S = 8.0, 30.0
#: Seconds without any message of the child after which it hangs as a whole.
SILENT_S = 10.0
#: Seconds of a hang after which the child is killed and started again.
KILL_S = 60.0
#: Seconds for which a child must run after a crash before the driver counts as repaired.
PROVEN_S = 15.0
#: nvidia-persistenced keeps the driver initialised, so that a start is fast.
_PERSISTENCED = "/var/run/nvidia-persistenced/socket"
#: Calls in which the driver starts a GPU.
_STARTING = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandle")
#: Seconds between attempts to start NVML, while GPUs are known to be there, so that a repair is soon noticed.
RETRY_FAULT_S = 8.0
_CRASH_TRY = "update or reload the NVIDIA driver; gconsole starts the reader again by itself"
_RELEASED_TRY = "gconsole release --undo, or wait until the time is over"
_HANG_TRY = "read dmesg for NVRM messages; drain the node and reboot it if the call does not return"


class GpuProcess(Sampler):
    """Starts the child and watches it; its records go to the agent's outbox as they arrive."""

    name = "gpu"

    def __init__(self, context: "Context", agent: "Agent", first: "GpuChild | None" = None) -> None:
        """`first`: the child that was forked before; None: `start` forks it."""
        super(GpuProcess, self).__init__(context)
        self._next = first
        self._agent = agent
        self._pid = 0
        self._input = -1  # the child's, for ranks and intervals
        self._sent = ""
        #: What that line was made of: ranks, interval, digests, rows.
        self._basis: "tuple[Any, float, Order | None, ColumnOrder | None]" = (None, 0.0, None, None)
        self._crash: "list[str]" = []  # lines of faulthandler
        self._ended = threading.Event()  # the child closed its output
        self._first = threading.Event()  # its first answer has arrived
        self._refused: "Unavailable | None" = None
        self._call: "str | None" = None  # the call that hangs, as the child reports it
        self._hung_since: "float | None" = None
        self._last_line = 0.0
        self._lateness = Lateness()
        self._starved = StarvedTime(None, 0.0)  # of the child's first thread, since its last line
        self._crashed = -PROVEN_S
        self._inventory: "Fields | None" = None  # the child's last one
        self._posted: "Fields | None" = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child and wait until NVML has started. Raises Unavailable."""
        self._check_released()
        call.check_installed()
        self.context.prepare_nvml()
        if self._pid and not self._reap():
            raise Unavailable("the process that reads the NVIDIA driver cannot be killed", _HANG_TRY, "gpu_hung")
        self._start_child()
        while not self._first.wait(0.5):
            if self._ended.is_set() and not self._first.is_set():
                raise self._death()
            now = time.monotonic()
            waited = max(self._silent_s(now, 0.5), self._hung_s(now))
            if waited > SLOW_S and not self._agent.ended.is_set():
                is_start = (self._call or "nvmlInit").startswith(_STARTING)
                is_stuck = waited > STUCK_S or os.path.exists(_PERSISTENCED) or not is_start
                self._post(self._fault("gpu_hung" if is_stuck else "gpu_starting", waited // 4 * 4))
            if waited > KILL_S:
                raise self._kill("gpu_hung")
        if self._refused is not None:
            refused = self._refused
            self._end_child()
            raise refused

    def _check_released(self) -> None:
        """Raises Unavailable while `gconsole release` lets the GPUs go."""
        if release.left_s(self._agent.place.root):
            raise Unavailable("gconsole has let the GPUs go (gconsole release)", _RELEASED_TRY, "gpu_released")

    def _hung_s(self, now: float) -> float:
        """Seconds since the call began that hangs, as the child reports it; 0.0 if none does."""
        return now - self._hung_since if self._hung_since is not None else 0.0

    def _silent_s(self, now: float, every_s: float) -> float:
        """Seconds since the child's last line, without those in which it, or this thread, got no CPU."""
        late_s = self._lateness.check(now, every_s)
        last_line = self._last_line
        if now - last_line < SHORT_S:
            return now - last_line
        if self._starved.began != last_line:
            self._starved = StarvedTime("/proc/%d" % self._pid, last_line)
        return now - last_line - self._starved.seconds(now, late_s)

    def _words(self, seconds: float) -> str:
        if self._call is None and self._first.is_set():
            return "the process that reads the NVIDIA driver has sent nothing for %d s" % seconds
        return "%s has not returned for %d s" % (self._call or "nvmlInit", seconds)

    def _fault(self, name: str, seconds: float) -> "Fields":
        text = self._words(seconds)
        if name == "gpu_starting":
            text += "; without persistence mode the driver needs some seconds per GPU to start"
        return dict(inventory.absence(self.context, Unavailable(text, _HANG_TRY, name)))

    def tick(self, now: float) -> "Iterable[Fact]":
        """Check the child, and send it the ranks of this node. Raises Unavailable when it has died."""
        self._check_released()
        if self._ended.is_set():
            raise self._death()
        self._send_settings()
        hung_s, silent_s = self._hung_s(now), self._silent_s(now, self.interval_s)
        if silent_s > SILENT_S:
            hung_s = max(hung_s, silent_s)
        self.context.shared["gpu_hung"] = bool(hung_s)
        if hung_s > KILL_S:
            raise self._kill("gpu_hung")
        if hung_s:
            self._post(self._fault("gpu_hung", hung_s // 5 * 5))
        elif self._inventory is not None and now - max(self._crashed, 0.0) >= PROVEN_S:
            self._post(self._inventory)
        return ()

    def absence(self, error: "Unavailable") -> "list[Fact]":
        """Why the GPUs cannot be read, or that there are none."""
        fields = inventory.absence(self.context, error)
        self.retry_most_s = RETRY_FAULT_S if "fault" in fields or fields.get("missing") else Sampler.retry_most_s
        self._posted = self.context.shared["gpu_inventory"] = fields
        self.context.shared.pop("gpu_faults", None)  # known again once the next child has read the GPUs
        self.context.shared["gpu_edges"] = 0
        self.context.shared["gpu_hung"] = False
        return [("inventory", fields)]

    def stop(self) -> None:
        """End the child."""
        self._end_child()

    # -- the child -----------------------------------------------------------------------------------------------------

    def _start_child(self) -> None:
        self._crash, self._refused, self._call, self._hung_since = [], None, None, None
        self._inventory, self._sent = None, ""
        self._ended, self._first = threading.Event(), threading.Event()
        self._last_line = time.monotonic()
        self._lateness = Lateness()
        child, self._next = self._next, None
        if child is None:
            from . import gpu_child  # noqa: F401 - not in the child, where another thread's import may be locked

            child = GpuChild(self.context)
        self._pid, self._input = child.pid, child.input
        lines: "IO[bytes] | None" = None
        try:
            lines = os.fdopen(child.output, "rb")
            arguments = (lines, self._ended, self._first)
            Thread(target=self._receive, args=arguments, name="gconsole-gpu-pipe").start()
        except Exception:  # no memory or threads: nothing is left of this attempt
            if lines is not None:
                lines.close()
            else:
                os.close(child.output)
            self._end_child()
            raise
        self._write(json.dumps({"epoch": self._agent.epoch}) + "\n")
        self._send_settings()

    def _receive(self, lines: "IO[bytes]", ended: "threading.Event", first: "threading.Event") -> None:
        try:
            with lines:
                for line in lines:
                    self._last_line = time.monotonic()
                    if line.startswith(b"\t") and line.endswith(b"\t\n"):  # else a crash has interrupted it
                        self._post_facts(line.decode("ascii").split("\t")[1:-1], first)
                        continue
                    try:
                        message = json.loads(line.decode("utf-8", "replace"))
                    except ValueError:
                        if len(self._crash) < 200:
                            self._crash.append(line.decode("utf-8", "replace"))
                        continue
                    self._handle(message, first)
        except Exception:  # noqa: BLE001 - reported; the child is started again
            self._agent.report_crash("the output of the GPU process could not be read")
        finally:
            ended.set()

    def _post_facts(self, parts: "list[str]", first: "threading.Event") -> None:
        """Post the records of one instant: `parts` are kind or columns, and JSON, in turn."""
        pairs = zip(parts[::2], parts[1::2])  # noqa: B905 - Python 3.6
        facts = [(kind, text) for kind, text in pairs if kind != "inventory" or self._counts(text)]
        if facts:
            first.set()
            self._agent.outbox.post(facts)

    def _counts(self, text: str) -> bool:
        """Note an `inventory` of the child; whether it is posted."""
        fields = json.loads(text)
        if fields["of"] != "gpu":
            self.context.shared["gpu_edges"] = fields["count"]
            return False
        self._inventory = fields
        if time.monotonic() - self._crashed < PROVEN_S:
            return False  # posted when it has proved itself
        self._posted = self.context.shared["gpu_inventory"] = fields
        return True

    def _handle(self, message: "Fields", first: "threading.Event") -> None:
        if "refused" in message:
            self._refused = Unavailable(*message["refused"])
            first.set()
        if "crash" in message:
            self._agent.log("error", message["crash"])
        if "cpu_s" in message:
            self.context.shared["gpu_process"] = message["cpu_s"], message["rss_bytes"]
            self._call = message["call"]
            self._hung_since = time.monotonic() - message["hung_s"] if message["hung_s"] else None
            self.context.shared["xids"] = message["xids"]
            if message["gpu_faults"] is not None:
                self.context.shared["gpu_faults"] = message["gpu_faults"]

    def _send_settings(self) -> None:
        snapshot = self.context.shared.get("processes")
        order = self._agent.digests
        rows = self._agent.outbox.order
        basis = (snapshot.ranks if snapshot is not None else None, self.context.interval_s, order, rows)
        if self._sent and basis[0] is self._basis[0] and basis == self._basis:
            return  # the usual case: the process sampler publishes the same tuple until a rank changes
        present = snapshot.ranks if snapshot is not None else ()
        ranks = [[getattr(rank, name) for name in RANK_FIELDS] for rank in present]
        settings = {
            "interval_s": self.context.interval_s, "ranks": ranks, "digests": order and order.fields,
            "rows": rows and rows.names,
        }  # fmt: skip
        line = json.dumps(settings) + "\n"
        if line != self._sent and len(line) < 65536:  # of a pipe's buffer: a hung child must not block the agent
            if self._write(line):
                self._sent, self._basis = line, basis

    def _write(self, line: str) -> bool:
        """Write to the child; False if it has died, or reads nothing, which is noticed by its output."""
        try:
            os.set_blocking(self._input, False)
            os.write(self._input, line.encode("utf-8"))
        except OSError:
            return False
        return True

    def _post(self, fields: "Fields") -> None:
        with self._lock:
            if fields != self._posted:
                self._posted = self.context.shared["gpu_inventory"] = fields
                self._agent.outbox.post([("inventory", fields)])

    def _death(self) -> "Unavailable":
        """Why the child has ended."""
        status = self._reap()
        self._crashed = time.monotonic()
        match = re.search(r"\bin (nvml[A-Z]\w+)", "".join(self._crash))
        where = " in %s" % match.group(1) if match else ""
        how = "ended"
        if status is not True and os.WIFSIGNALED(status):
            how = "was killed by signal %s%s" % (signal_name(os.WTERMSIG(status)), where)
        self._end_child()
        return Unavailable("the process that reads the NVIDIA driver %s" % how, _CRASH_TRY, "gpu_crashed")

    def _kill(self, name: str) -> "Unavailable":
        now = time.monotonic()
        text = self._words(max(self._hung_s(now), now - self._last_line))
        self._end_child()
        return Unavailable(text, _HANG_TRY, name)

    def _end_child(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1
        if self._pid:
            try:
                os.kill(self._pid, signal.SIGKILL)
            except OSError:
                pass  # it has ended
            self._reap()
        self.context.shared.pop("gpu_process", None)

    def _reap(self, seconds: float = 2.0) -> "Any":
        """The child's exit status; True if it was reaped before, False while it does not die."""
        deadline = time.monotonic() + seconds
        while self._pid:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except OSError:
                pid, status = self._pid, True
            if pid:
                self._pid = 0
                return status
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def signal_name(number: int) -> str:
    """SIGSEGV for 11; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "%d" % number
