"""The process that reads NVML: a driver library that hangs or crashes does not take the agent with it.

It runs the samplers that call NVML on threads of its own, and sends their records on one pipe: those of an instant as
a line of kinds, or columns (see rows.py), and JSON between tabs, which the agent does not decode. Other messages are a
line of JSON; other lines are a traceback of faulthandler. It starts with the first line of its input, and ends when its
input ends.
"""

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import threading
import time

from ..proc.starvation import HungCalls
from ..proc.threads import Thread
from ..samplers.gpu import GpuSampler
from ..samplers.topology import TopologySampler
from . import rows, wire
from .gpu_fork import RANK_FIELDS
from .sampler_run import SamplerRun
from .sampler_thread import SamplerThread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Iterable

    from ..samplers.base import Context, Fact, Fields
    from .digests import Order

#: Seconds between two checks of what hangs, and from the slot of the samplers to the check: one at the same instant
#: would wait for the interpreter's lock.
CHECK_S, AFTER_S = 1.0, 0.005


class _Ranks(object):
    """What the child's samplers read of the process sampler."""

    def __init__(self, ranks: "list[list[Any]]") -> None:
        self.ranks = [_Rank(row) for row in ranks]


class _Rank(object):
    __slots__ = RANK_FIELDS

    def __init__(self, row: "list[Any]") -> None:
        for name, value in zip(RANK_FIELDS, row):  # noqa: B905 - Python 3.6
            setattr(self, name, value)


class _Child(object):
    """Stands for the agent in the child: the outbox of its samplers, too."""

    def __init__(self, context: "Context", output: int, epoch: float) -> None:
        self.context = context
        self.ended = threading.Event()
        self.epoch = epoch  # the agent's grid: it sends the records of both in one write
        self.outbox = self
        self.digests: "Order | None" = None
        self.order: "rows.ColumnOrder | None" = None  # of columns, for records that are rows
        self.status: "Callable[[], Fields] | None" = None  # makes the message of `send_status`
        self.has_sent_status = False  # since the last check of what hangs
        self._output = output
        self._lock = threading.Lock()

    def send(self, message: "Fields") -> None:
        """Write one message; the child ends when the agent has."""
        self._write(json.dumps(message))

    def send_status(self) -> None:
        """Write the message of this process, which else comes with records: one write wakes the agent once."""
        self._write(self._status_line())

    def _status_line(self) -> str:
        assert self.status is not None
        self.has_sent_status = True
        return json.dumps(self.status())

    def _write(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._output, data) :]
            except (OSError, MemoryError):  # the latter after a part that was written: the next line would be damaged
                os._exit(0)

    def post(self, facts: "Iterable[Fact]") -> None:
        """Send the records of one instant."""
        parts = [part for fact in facts for part in self._encoded(*fact)]
        if parts:
            line = "\t".join([""] + parts + [""])
            self._write(line if self.status is None or self.has_sent_status else line + "\n" + self._status_line())

    def _encoded(self, kind: str, fields: "Fields") -> "tuple[str, str]":
        try:
            columns = self.order.columns(kind, fields) if self.order is not None else None
            return (kind, wire.to_json(fields)) if columns is None else (columns.text, columns.row(fields))
        except ValueError as error:  # NaN
            text = "a %s record could not be sent: %s" % (kind, error)
            return "log", wire.to_json({"source": "agent", "severity": "error", "text": text})

    def miss(self, name: str, text: str, try_: str) -> None:
        """NVML cannot be used: this child is of no more use, as the library keeps its state."""
        self.send({"refused": [text, try_, name]})
        os._exit(0)

    def unmiss(self, name: str) -> None:
        """Never called: see `miss`."""

    def report_crash(self, what: str) -> None:
        """A sampler failed."""
        self.send({"crash": "%s: %s" % (what, _traceback(-4))})


def _traceback(limit: int) -> str:
    """Of the exception being handled; `limit` as in traceback.format_exc."""
    import traceback  # only when something has failed: 0.2 MB

    return traceback.format_exc(limit=limit)[-2000:]


def run(context: "Context", from_agent: int, output: int) -> None:
    """Everything that the child does. The first line of its input: {"epoch": time.monotonic() of the agent's grid}."""
    try:
        _detach(from_agent, output)
        lines = os.fdopen(from_agent, "rb")
        start = lines.readline()
        if not start:
            os._exit(0)  # the agent has ended, or does not need this process
        if hasattr(gc, "freeze"):  # Python 3.7: collections do not touch the pages that it shares with the agent
            gc.freeze()
        child = _Child(context, output, json.loads(start.decode("ascii"))["epoch"])
        context.shared = {}
        runs = [SamplerRun(GpuSampler(context), child), SamplerRun(TopologySampler(context, of=("gpu",)), child)]
        receiver = Thread(target=_receive_settings, args=(context, lines, child))
        receiver.start()
        status = child.status = _Status(context, runs)
        SamplerThread(runs[0]).start()
        while not runs[0].ready.wait(CHECK_S):
            status.check(time.monotonic())
            child.send_status()
        SamplerThread(runs[1]).start()
        while True:
            if status.check(time.monotonic()) or not child.has_sent_status:
                child.send_status()
            child.has_sent_status = False
            time.sleep(CHECK_S + AFTER_S - (time.monotonic() - child.epoch) % CHECK_S)
    except BaseException:  # noqa: BLE001 - this process must not return into the agent's code
        os.write(output, (json.dumps({"crash": _traceback(-20)}) + "\n").encode("utf-8"))
    finally:
        os._exit(1)


def _detach(from_agent: int, output: int) -> None:
    """Keep nothing of the agent: its connection must end with it, and a crash must leave no core file."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    kept = sorted((from_agent, output))
    low = 3
    for number in kept + [min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 65536)]:
        os.closerange(low, number)
        low = number + 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(max(0, 10 - os.nice(0)))  # as the agent, which may have been as nice as its login
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(file=output, all_threads=False)


def _receive_settings(context: "Context", lines: "BinaryIO", child: "_Child") -> None:
    """Follow the agent's settings until it ends, and this process with it.

    The same after a failure: with old settings, the GPUs would be shown with ranks that have ended.
    """
    ordered: "Fields | None" = None
    try:
        for line in lines:
            settings = json.loads(line.decode("utf-8"))
            context.interval_s = settings["interval_s"]
            if settings["digests"] != ordered:
                ordered = settings["digests"]
                child.digests = _order(ordered)
            if settings["rows"] != (child.order and child.order.names):
                child.order = rows.ColumnOrder(settings["rows"]) if settings["rows"] else None
            context.shared["processes"] = _Ranks(settings["ranks"])
    except Exception:  # noqa: BLE001 - the agent starts another process
        child.report_crash("the settings of the GPU process could not be read")
    finally:
        os._exit(0)


def _order(fields: "Fields | None") -> "Order | None":
    """What comes as digests."""
    if fields is None:
        return None
    from .digests import Order  # most agents have no order

    return Order(fields)


class _Status(object):
    """Cost of the child, and its call that hangs; called, the message."""

    def __init__(self, context: "Context", runs: "list[SamplerRun]") -> None:
        self._context, self._runs, self._calls = context, runs, HungCalls()
        self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        self._hung: "tuple[str | None, float]" = (None, 0.0)

    def check(self, now: float) -> bool:
        """Look for a call that hangs, every CHECK_S; whether one does, or did until now."""
        before, hung = self._hung, self._calls.check(self._runs, now, CHECK_S)
        self._hung = (None, 0.0)
        if hung:
            run, hung_s = max(hung, key=lambda entry: entry[1])
            thread = run.runner.ident if run.runner is not None else None
            self._hung = (_call_of(sys._current_frames().get(thread or 0)), round(hung_s, 1))
        return self._hung != before

    def __call__(self) -> "Fields":
        rss = int(os.pread(self._statm, 256, 0).split()[1]) * resource.getpagesize()
        call, hung_s = self._hung
        return {"cpu_s": time.process_time(), "rss_bytes": rss, "call": call, "hung_s": hung_s,
                "xids": self._context.shared.get("xids", False),
                "gpu_faults": self._context.shared.get("gpu_faults")}  # fmt: skip


def _call_of(frame: "Any") -> "str | None":
    """The NVML function in which a thread is, and the GPU that it was called for."""
    call = gpu = None
    while frame is not None:
        name = frame.f_code.co_name
        if name.startswith("nvml"):
            call = name  # the outermost one: pynvml calls some through others
        elif call is None and frame.f_code.co_filename.endswith("nvml/fields.py"):
            call = "nvmlDeviceGetFieldValues"
        if gpu is None:
            gpu = getattr(frame.f_locals.get("device"), "index", None)
        frame = frame.f_back
    return call and (call if gpu is None else "%s of GPU %d" % (call, gpu))
