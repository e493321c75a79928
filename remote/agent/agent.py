"""The agent: each sampler on its own thread, one writer and one reader.

Nothing waits for the console: records queue in the outbox. Nothing waits for a sampler: one that hangs is reported.
"""

import importlib.util
import os
import signal
import sys
import threading
import time

from ..accelerators.devices import sysfs_gpus
from ..clocks import stamps
from ..nvml import call
from ..proc.threads import Thread
from ..samplers.base import Context
from ..samplers.capacity import CapacitySampler
from ..samplers.clock import ServiceSampler
from ..samplers.cost import CostSampler
from ..samplers.host import HostSampler, node_fields
from ..samplers.jobs import JobSampler
from ..samplers.kernel_log import KernelLogSampler
from ..samplers.nic import NicSampler
from ..samplers.topology import TopologySampler
from . import cache_users, requests, wire
from .binaries import BinaryStore
from .commands import DetachedStarter
from .gpu_process import GpuProcess
from .outbox import Outbox
from .rows import ColumnOrder
from .sampler_run import SamplerRun
from .sampler_thread import SamplerThread, SharedThread, grid_origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, NoReturn

    from ..accelerators.devices import SysfsGpu
    from ..clocks.commands import ProbeService
    from ..jobs.output import Follower
    from ..jobs.waiting_supervisor import WaitingSupervisor
    from ..samplers.base import Fields, Sampler
    from .bootstrap import BundleImporter
    from .cache import Cache
    from .digests import Order
    from .gpu_fork import GpuChild

#: Seconds the writer waits for the records of a tick, which several threads post, to send them in one write.
GATHER_S = 0.02
#: Seconds between two checks that the agent's threads live.
CHECK_S = 5.0
#: Seconds of a pause without memory, and for the last records to be sent before the agent ends.
PAUSE_S = 0.5


class Agent(object):
    """One incarnation of the agent on a node, with the id that all its records carry."""

    def __init__(
        self, start: "Fields", place: "Cache", importer: "BundleImporter", gpu_child: "GpuChild | None" = None,
        waiting_supervisor: "WaitingSupervisor | None" = None,
    ) -> None:  # fmt: skip
        """`gpu_child`: the process for NVML that was forked before; `waiting_supervisor`: that for the next job."""
        config = start["config"]
        self.id = "%016x" % int.from_bytes(os.urandom(8), "big")
        self.console = start["console"]
        self.bundle = start["bundle"]
        self.config: Fields = config
        self.place = place
        self.linger_s = config.get("linger_s", 0)
        self._is_for_jobs = bool(config.get("jobs_only"))  # for a console that starts and reads jobs, and shows no more
        self.outbox = Outbox(config.get("buffer_bytes", 64 << 20), keep=self.linger_s > 0)
        self.blobs = BinaryStore(place)
        self.ended = threading.Event()
        self.last_received = time.monotonic()  # when the console last sent a frame
        self.epoch = grid_origin(config.get("tick_offset_s", 0.0), time.time(), time.monotonic())
        self.digests: Order | None = None  # what comes as digests; None: every sample is sent
        self.missing: list[Fields] = []
        self.runs: list[SamplerRun] = []
        self.unreported = 0  # failures that could not be logged, without memory, since the last `agent_cost` record
        self.snapshot_period_ms = config.get("snapshot_period_ms", 0)  # between reads of the clocks; 0: none
        self.clocks: ProbeService | None = None  # created by the first request for probes
        self.farewell: Callable[[], None] | None = None  # called when the agent ends
        self._at_end: list[Callable[[], object]] = []
        self._presence: str | None = None  # the file that registers this agent as a user of the cache
        self._label = start.get("label", "")
        self._sink: Any = None
        self._sampling = False
        self._started: list[SamplerRun] = []
        self._traffic: SamplerRun | None = None  # None: nothing was ordered
        self._shared = SharedThread(self)  # ticks the samplers whose ticks are short
        self._lock = threading.Lock()
        self._importer = importer
        self._gpu_child = gpu_child
        self.waiting_supervisor = waiting_supervisor
        self.context = Context(
            interval_s=config.get("sample_interval_ms", 1000) / 1000.0,
            process_filter=tuple(config["process_filter"]) if config.get("process_filter") else None,
            simulate_gpus=config.get("simulate_gpus", 0),
        )
        self.context.import_nvml, self.context.prepare_nvml = call.import_binding, importer.wait_compiled
        self.followed: dict[str, Follower | None] = {}  # job: its output reader, None until it has read what there is
        self.left_off: dict[str, Follower] = {}  # job: reader of an output that is no longer followed
        self.starter = DetachedStarter()
        os.nice(10)  # before other threads start: niceness is per thread on Linux

    # -- a connection ------------------------------------------------------------------------------------------------

    def run(self, reader: "BinaryIO", sink: "Any") -> None:
        """Serve the only connection this agent will have, then end the process."""
        orphan_s = self.config.get("orphan_s", 15)
        Thread(target=self.watch, args=(orphan_s,), name="gconsole-watch").start()
        self.connect(sink, None, self.config.get("rows"))
        self.serve(reader)
        self.end()

    def connect(self, sink: "Any", after: "int | None", rows: "dict[str, list[str]] | None" = None) -> None:
        """Write to `sink` from now on: a hello, then every record held above seq `after` (None: all that are held).

        `rows`: the order of columns, if the console takes rows (see rows.py).
        """
        with self._lock:
            old, self._sink = self._sink, None
            turn = self.outbox.rewind(after if after is not None else 0, ColumnOrder(rows) if rows else None)
            self.outbox.control({"gconsole": self._hello(resumed=self._sampling)})
            self._sink = sink
        if old is not None:
            old.close()
        Thread(target=self._write, args=(sink, turn), name="gconsole-writer").start()
        self._begin_sampling()

    def serve(self, reader: "BinaryIO") -> None:
        """Act on the console's frames until the connection ends."""
        try:
            for line in wire.read_lines(reader):
                self.last_received = time.monotonic()
                if line:
                    self._act(wire.decode(line))
        except wire.BadFrame as error:
            self.log("error", "the console's connection was dropped: %s" % error)
        except (OSError, ValueError):
            return  # closed by the peer, or replaced by a newer connection

    def _act(self, frame: "Fields") -> None:
        try:
            requests.act(self, frame)
        except Exception:  # noqa: BLE001 - a malformed frame must not end the agent
            self.report_crash("malformed frame from the console")

    def disconnect(self, sink: "Any") -> None:
        """The connection of `sink` is over; a newer one stays."""
        with self._lock:
            if self._sink is sink:
                self._sink = None

    def end(self) -> "NoReturn":
        """End the process now, also with hung threads."""
        try:
            self.ended.set()
            self.blobs.close()
            cache_users.withdraw(self._presence)
            for action in self._at_end:
                action()
            if self.farewell:
                self.farewell()
        finally:
            os._exit(0)

    def end_on_signals(self) -> None:
        """End in order on SIGTERM, SIGHUP and SIGINT, so that no file is left behind."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self.end())

    def on_end(self, action: "Callable[[], object]") -> None:
        """Call `action` when the agent ends; the same one once."""
        if action not in self._at_end:
            self._at_end.append(action)

    def read_clocks_every(self, period_ms: int) -> None:
        """Set the interval between two clock snapshots, ms; 0 stops them. Raises ValueError."""
        if not isinstance(period_ms, int) or (period_ms and not 10 <= period_ms <= 1000):
            raise ValueError("clock snapshot interval must be 0 or 10 to 1000 ms, not %r" % (period_ms,))
        self.snapshot_period_ms = period_ms

    def follow_watch(self, settings: "Fields") -> None:
        """Use newer settings of `[watch]`: those of the start frame, by the same names."""
        self.config.update({name: value for name, value in settings.items() if name.startswith("watch_")})

    def follow_traffic(self, ranks: "list[list[int]]") -> None:
        """Send the traffic of these ranks from now on, which are [pid, start_ticks]. Raises ValueError, TypeError."""
        self.context.shared["traffic"] = [(int(pid), int(start_ticks)) for pid, start_ticks in ranks]
        if ranks and self._sampling and self._traffic is None:
            from ..samplers.traffic import TrafficSampler  # most agents are sent no such order

            self._traffic = SamplerRun(TrafficSampler(self.context), self)
            with self._lock:
                self.runs = self.runs + [self._traffic]
            SamplerThread(self._traffic, self.share).start()
            self._started.append(self._traffic)

    def describe(self) -> "Fields":
        """Identity of a lingering agent, sent on its socket."""
        return {
            "agent": self.id,
            "bundle": self.bundle,
            "console": self.console,
            "system": cache_users.system_id(),
            "pid": os.getpid(),
            "linger_s": self.linger_s,
            "silent_s": round(self._silent_s(), 1),
        }

    def _write(self, sink: "Any", turn: int) -> None:
        """Send what the outbox has for this connection, until it ends or a newer one has its turn."""
        while self._sink is sink:
            try:
                self._relieve()
                data = self.outbox.next_bytes(turn, 1.0, GATHER_S)
            except Exception:  # noqa: BLE001 - without memory; nothing was taken
                time.sleep(PAUSE_S)
                continue
            if data is None:
                return
            try:
                while data:
                    data = data[sink.write(data) :]
            except (OSError, ValueError):
                self.disconnect(sink)
                return
            except Exception:  # noqa: BLE001 - without memory, after a part that was sent: the next line would be damaged
                self._break(sink)
                return

    def _break(self, sink: "Any") -> None:
        """End a connection on which nothing can be sent any more, so that the console connects again."""
        self.disconnect(sink)
        if self.linger_s > 0:
            sink.close()
        else:
            self.end()

    def _hello(self, resumed: bool) -> "Fields":
        return {
            "protocol": list(wire.PROTOCOL),
            "agent": self.id,
            "bundle": self.bundle,
            "pid": os.getpid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "arch": os.uname().machine,
            "uid": os.geteuid(),
            "lzma": importlib.util.find_spec("_lzma") is not None,
            "resumed": resumed,
            "last_seq": self.outbox.last_seq,
            "wanted": self.blobs.wanted(),
            "cache": self.place.root,
            "cache_refused": self.place.refused,
            "t": stamps.realtime_ns(),
            "mono": stamps.mono_ns(),
        }

    # -- samplers ----------------------------------------------------------------------------------------------------

    def _begin_sampling(self) -> None:
        if self._sampling:
            return
        self._sampling = True
        try:
            samplers = self._make_samplers()
            Thread(target=self._prepare, args=(samplers,), name="gconsole-prepare").start()
        except Exception:  # noqa: BLE001 - an agent without samplers looks healthy
            self._fail("the samplers could not be made")

    def _make_samplers(self) -> "list[Sampler]":
        try:
            self._presence = cache_users.register(self.place, self, self._label)
        except OSError as error:  # a full disk must not prevent sampling
            try_ = "free some disk space, or set [agent] cache_dir"
            self.miss("cache", "the cache folder cannot be written: %s" % error, try_)
        nvml = self._simulated_nvml()
        samplers: list[Sampler] = [HostSampler(self.context)]
        others = sysfs_gpus(self.context.sys) if nvml is None else ([], [])
        if others != ([], []):  # of another vendor; NVIDIA's library is not even looked for
            samplers += self._accelerator_samplers(*others)
            if self._gpu_child is not None:
                self._gpu_child.end()
        elif nvml is None:
            samplers += [GpuProcess(self.context, self, self._gpu_child), TopologySampler(self.context, of=("nic",))]
        else:
            from ..samplers.gpu import GpuSampler  # without simulation only its own process needs it

            samplers += [GpuSampler(self.context, nvml), TopologySampler(self.context, nvml)]
        samplers += [NicSampler(self.context), JobSampler(self.context, self), KernelLogSampler(self.context)]
        samplers += [CapacitySampler(self.context), ServiceSampler(self.context, self)]
        return samplers if self._is_for_jobs else self._watching_samplers(nvml) + samplers

    def _watching_samplers(self, nvml: "Any") -> "list[Sampler]":
        """Samplers of processes, clocks and history, first that of processes: no job needs them to start.

        Their modules are half of what an agent imports.
        """
        from ..samplers.clock import GpuTimerSampler, SnapshotSampler
        from ..samplers.history import HistorySampler
        from ..samplers.locals import WatchedSampler
        from ..samplers.outputs import OutputSampler
        from ..samplers.past_jobs import PastJobSampler
        from ..samplers.processes import ProcessSampler
        from ..samplers.settings import SettingSampler
        from ..samplers.spawned_ranks import SpawnedRankSampler

        samplers: list[Sampler] = [ProcessSampler(self.context), SpawnedRankSampler(self.context, self)]
        samplers += [HistorySampler(self.context, self), OutputSampler(self.context), PastJobSampler(self.context)]
        samplers += [SettingSampler(self.context), SnapshotSampler(self.context, self)]
        samplers += [WatchedSampler(self.context, self)]
        if self.config.get("gpu_clock"):
            samplers.append(GpuTimerSampler(self.context, nvml))
        return samplers

    def _accelerator_samplers(self, gpus: "list[SysfsGpu]", unbound: "list[SysfsGpu]") -> "list[Sampler]":
        """Samplers of accelerators of other vendors, whose modules are loaded only where there are some."""
        from ..samplers.sysfs_gpus import SysfsGpuSampler
        from ..samplers.vendor_tools import tool_samplers

        samplers: "list[Sampler]" = [SysfsGpuSampler(self.context, gpus, unbound)]
        samplers.append(TopologySampler(self.context, of=("nic",), accelerators=gpus))
        samplers += tool_samplers(self.context, gpus, self.place.folder("run"))
        return samplers

    def _simulated_nvml(self) -> "Any":
        """The simulated NVML, or None."""
        if not self.context.simulate_gpus:
            return None
        from ..nvml import simulate

        # nodes on one machine (demo) share a host name and differ in their filter
        host = "%s %s" % (os.uname().nodename, self.context.process_filter)
        return simulate.SimulatedNvml(self.context.simulate_gpus, host)

    def _prepare(self, samplers: "list[Sampler]") -> None:
        try:
            self._start_samplers(samplers)
        except Exception:  # noqa: BLE001 - an agent without some of its samplers looks healthy
            self._fail("the samplers could not be started")

    def _start_samplers(self, samplers: "list[Sampler]") -> None:
        """Send the `node` record and start the samplers."""
        fields = node_fields(self)
        self.context.boot_id = fields["boot_id"]
        self.outbox.post([("node", fields)])
        runs = [SamplerRun(sampler, self) for sampler in samplers]
        with self._lock:
            self.runs = runs + self.runs  # that of traffic may have been ordered before
        self._shared.start()
        cost = SamplerRun(CostSampler(self.context, self), self)
        for run in runs + [cost]:
            SamplerThread(run, self.share).start()
            if run is runs[0] and not self._is_for_jobs:
                run.ready.wait(1.0)  # the first `host` record has the count of unreadable processes
            self._started.append(run)

    def share(self, run: "SamplerRun") -> None:
        """Tick this sampler on the thread that several share."""
        with self._lock:
            self._shared.take_over(run)

    def _relieve(self) -> None:
        """Let no sampler wait long for another one: checked by threads that run anyway, as each costs a wake-up."""
        now = time.monotonic()
        if self._shared.is_late(now):
            try:
                with self._lock:
                    self._shared = self._shared.relieved(now)
            except (RuntimeError, MemoryError):
                pass  # no thread can be created now; tried again at the next check

    def wake_sampler(self, name: str) -> None:
        """Have the samplers of that name, one or none, tick now."""
        for run in self.runs:
            if run.sampler.name == name:
                run.wake()

    def miss(self, name: str, text: str, try_: str) -> None:
        """Add or replace a missing capability; the `node` record is sent again if it was already sent."""
        missing = {"name": name, "text": text, "try": try_}
        if missing not in self.missing:
            self._set_missing([other for other in self.missing if other["name"] != name] + [missing])

    def unmiss(self, name: str) -> None:
        """Remove a missing capability that is there now."""
        self.log("info", "%s: available now" % name)
        self._set_missing([other for other in self.missing if other["name"] != name])

    def _set_missing(self, missing: "list[Fields]") -> None:
        self.missing = missing
        if self.runs:
            self.outbox.post([("node", node_fields(self))])

    def log(self, severity: str, text: str, try_: str = "") -> None:
        """Queue a `log` record of the agent itself."""
        self.outbox.post([("log", {"source": "agent", "severity": severity, "text": text, "try_": try_})])

    def report_crash(self, what: str) -> None:
        """Log that `what` failed, with the innermost frames of the exception being handled. Raises nothing."""
        import traceback  # only after a failure: 0.2 MB

        try:
            self.log("error", "%s: %s" % (what, traceback.format_exc(limit=-4)[-2000:]))
        except MemoryError:
            self.unreported += 1  # logged with a later `agent_cost` record

    def _fail(self, what: str) -> "NoReturn":
        """Report that `what` failed, and end the agent: the console starts another one."""
        try:
            self.report_crash(what)
            time.sleep(PAUSE_S)  # the writer sends the report
        finally:
            self.end()

    # -- self-check -------------------------------------------------------------------------------------------------

    def watch(self, limit_s: float) -> None:
        """End the agent when no frame arrived for `limit_s` (a half-open connection gives no end of file).

        The same when one of its threads has died: a part of the agent would be missing without a sign of it.
        """
        while True:
            try:
                if self.ended.wait(max(1.0, min(CHECK_S, limit_s - self._silent_s()))):
                    return
                if self._silent_s() > limit_s:
                    self.end()
                sink = self._sink
                if sink is not None and self._silent_s() > self.config.get("orphan_s", 15):
                    self._break(sink)  # its reader hangs, or has died: the console would get no answers
                self._relieve()
                dead = [run for run in self._started if run.is_dead()]
                if dead:
                    self._fail("the thread of sampler %s has died" % dead[0].sampler.name)
            except Exception:  # noqa: BLE001 - without memory, even a wait fails
                time.sleep(PAUSE_S)

    def _silent_s(self) -> float:
        """Seconds since the console's last frame."""
        return time.monotonic() - self.last_received
