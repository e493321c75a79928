"""Threads that run samplers: one for each while it starts, and one in common for those whose ticks are short.

To wake a thread costs more than the tick of most samplers, and may take a processor from the job each time: twelve
threads that read a small file once in half a second took 2.5 times the CPU of one that read the same twelve times. So a
sampler whose ticks do not wait joins `SharedThread` after its first tick. Where one of those takes long all the same,
another thread takes over the others: a tick that hangs stops no other sampler.
"""

import os
import threading
import time

from ..proc.threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .sampler_run import SamplerRun

#: Seconds before another attempt to start a sampler; doubled each time up to the sampler's `retry_most_s`.
RETRY_S = 2.0
#: Seconds of work after which a failure is a new one.
WORKED_S = 60.0
#: Seconds after which other samplers no longer wait for the one whose tick is under way.
LONG_S = 0.3
#: Ticks without a long one after which a sampler that was left behind joins the others again: on a busy node any tick
#: may take long, and each sampler would have a thread of its own in the end.
QUICK_TICKS = 60
#: Seconds until a shared thread without samplers looks for new ones; one that joins it wakes it.
_IDLE_S = 60.0


class Runner(Thread):
    """A thread that runs samplers, until the agent ends."""

    def __init__(self, name: str) -> None:
        super(Runner, self).__init__(name="gconsole-" + name)
        self.task: "str | None" = None  # this thread's folder of /proc, once it runs
        self._woken = threading.Event()

    def wake(self) -> None:
        """Tick the samplers that are due or woken."""
        self._woken.set()

    def has_ended(self) -> bool:
        """Whether it ran, and does not any more."""
        return self.ident is not None and not self.is_alive()

    def _wait(self, until: float) -> None:
        self._woken.wait(max(0.0, until - time.monotonic()))


class SamplerThread(Runner):
    """Starts one sampler, with back-off while its source does not exist, and ticks it. A missed slot is skipped.

    The thread survives every failure, also a MemoryError while a failure is reported or a record is queued. `share`
    takes the sampler over after its first tick, or the first after which it no longer waits, which ends this thread.
    `is_retry`: the source was there before.
    """

    def __init__(
        self, run: "SamplerRun", share: "Callable[[SamplerRun], None] | None" = None, is_retry: bool = False
    ) -> None:
        super(SamplerThread, self).__init__(run.sampler.name)
        self._sampler_run = run
        self._share = share
        self._is_retry = is_retry
        run.runner = self

    def run(self) -> None:
        """Start the sampler and tick it until the agent ends, or the sampler is taken over."""
        while True:
            try:
                self._run(self._sampler_run)
                return
            except Exception:  # noqa: BLE001 - a call outside the sampler failed: without memory, even a wait does
                time.sleep(RETRY_S)  # allocates nothing

    def _run(self, run: "SamplerRun") -> None:
        failures, ended = 0, run.agent.ended
        self.task = _own_task()
        if self._is_retry:
            self._is_retry = False
            ended.wait(RETRY_S)
            failures = 1
        while not ended.is_set():
            began = time.monotonic()
            if (run.is_started or run.start()) and self._tick(run):
                return
            run.ready.set()
            if time.monotonic() - began > WORKED_S:
                failures = 0
            ended.wait(min(run.sampler.retry_most_s, RETRY_S * 2 ** min(failures, 8)))
            failures += 1

    def _tick(self, run: "SamplerRun") -> bool:
        """Tick until the source is gone, which returns False, or the agent ends, or the sampler is taken over."""
        least_s = run.sampler.interval_s / 2  # after a first tick, so that rates are of some time
        while not run.agent.ended.is_set():
            self._woken.clear()
            if not run.tick(least_s):
                return False
            least_s = 0.0
            if self._share is not None and not run.sampler.waits:
                self._share(run)
                return True
            self._wait(run.due)
        return True


class SharedThread(Runner):
    """Ticks several samplers, one after the other."""

    def __init__(self, agent: "Any") -> None:
        super(SharedThread, self).__init__("samplers")
        self._agent = agent
        self._lock = threading.Lock()
        self._runs: "list[SamplerRun]" = []
        self._under_way: "tuple[SamplerRun, float] | None" = None  # whose tick is, and time.monotonic() of its begin
        self._is_relieved = False  # new samplers join another thread
        self._quick_ticks = 0  # in succession

    def take_over(self, run: "SamplerRun") -> None:
        """Tick this sampler, too, from its next slot on."""
        with self._lock:
            self._runs = self._runs + [run]
            run.runner = self
        self._woken.set()

    def is_late(self, now: float) -> bool:
        """Whether samplers wait for one whose tick takes long."""
        under_way = self._under_way
        return under_way is not None and now - under_way[1] > LONG_S and len(self._runs) > 1

    def relieved(self, now: float) -> "SharedThread":
        """The thread that has taken over what waits for a long tick; this one if nothing waits.

        RuntimeError if no thread can be created.
        """
        with self._lock:
            if self._under_way is None or not self.is_late(now):
                return self
            successor = SharedThread(self._agent)
            successor.start()
            kept = self._under_way[0]
            successor._runs, self._runs = [run for run in self._runs if run is not kept], [kept]
            for run in successor._runs:
                run.runner = successor
            self._is_relieved = True
        successor._woken.set()
        return successor

    def run(self) -> None:
        """Tick until the agent ends, or no sampler is left to a thread that was relieved."""
        while not self._agent.ended.is_set() and (self._runs or not self._is_relieved):
            try:
                self.task = self.task or _own_task()
                self._woken.clear()
                for run in self._runs:
                    self._tick_if_due(run)
                if self._is_relieved and self._quick_ticks >= QUICK_TICKS:
                    self._rejoin()
                    continue
                self._wait(min([run.due for run in self._runs] or [time.monotonic() + _IDLE_S]))
            except Exception:  # noqa: BLE001 - without memory, even a wait fails
                time.sleep(RETRY_S)

    def _tick_if_due(self, run: "SamplerRun") -> None:
        now = time.monotonic()
        if run.due > now and not run.is_woken:
            return
        with self._lock:
            if run not in self._runs:
                return  # taken over in the meantime
            self._under_way = (run, now)
        is_ours = run.is_started and not run.sampler.waits
        try:
            if is_ours:
                run.due = now + RETRY_S  # if it fails without having been set
                is_ours = run.tick()
        except Exception:  # noqa: BLE001, S110 - as in SamplerThread: without memory, nor can it be reported
            pass
        finally:
            with self._lock:
                self._under_way = None
        self._quick_ticks = self._quick_ticks + 1 if time.monotonic() - now <= LONG_S else 0
        if not is_ours:
            self._give_back(run)

    def _rejoin(self) -> None:
        """Let the thread that has relieved this one tick its sampler, too."""
        for run in self._runs:
            self._agent.share(run)
        with self._lock:
            self._runs = []

    def _give_back(self, run: "SamplerRun") -> None:
        """Run it on a thread of its own: its ticks wait, or it is started when its source is there again."""
        with self._lock:
            if run not in self._runs:
                return
            self._runs = [other for other in self._runs if other is not run]
        try:
            run.due = time.monotonic() + RETRY_S  # if no thread can be created now
            SamplerThread(run, self._agent.share, is_retry=not run.is_started).start()
        except Exception:
            self.take_over(run)
            raise


def grid_origin(offset_s: float, realtime: float, monotonic: float) -> float:
    """Origin of the tick grid, by the monotonic clock: `offset_s` after the last full second of the real-time clock.

    So nodes whose clocks agree sample at the same instant if their offsets are equal: see console/fleet/tick_offsets.
    """
    return monotonic - (realtime - offset_s) % 1.0


def _own_task() -> "str | None":
    """The folder of /proc of the calling thread; None where the kernel has none."""
    try:
        return "/proc/" + os.readlink("/proc/thread-self")
    except OSError:
        return None
