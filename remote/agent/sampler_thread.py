"""One thread per sampler: it starts its sampler, ticks it, and tries again while the source does not exist."""

import os
import threading
import time

from ..proc.threads import Thread
from ..samplers.base import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fact, Sampler
    from .digests import Digester

#: A tick that takes longer than this many intervals, and at least this many seconds, is hung.
HUNG_INTERVALS, HUNG_S = 3, 5.0
#: Seconds before another attempt to start a sampler; doubled each time up to the sampler's `retry_most_s`.
RETRY_S = 2.0
#: Seconds of work after which a failure is a new one.
WORKED_S = 60.0


class SamplerThread(Thread):
    """Runs one sampler on a fixed grid and posts its records. A missed slot is skipped.

    A sampler whose source does not exist, or is gone, is started again with back-off for as long as the agent lives.
    The thread survives every failure, also a MemoryError while a failure is reported or a record is queued.
    `agent` has `ended`, `epoch`, `outbox`, `digests`, `miss`, `unmiss` and `report_crash`.
    """

    def __init__(self, sampler: "Sampler", agent: "Any") -> None:
        super(SamplerThread, self).__init__(name="gconsole-" + sampler.name)
        self.sampler = sampler
        self.agent = agent
        self.ready = threading.Event()  # set after the first tick or failure
        self.began: "float | None" = None  # time.monotonic() of the start or tick under way
        self._woken = threading.Event()
        self.task: "str | None" = None  # this thread's folder of /proc, once it runs
        self._is_started = False  # the sampler, until its source is gone
        self._missing = ""  # name under which the source is reported as missing
        self._absence: "list[Fact]" = []  # its last records of that
        self._has_crashed = False
        self._digester: "Digester | None" = None  # by the last order of the console

    def run(self) -> None:
        """Start the sampler and tick it until the agent ends."""
        while True:
            try:
                self._run()
                return
            except Exception:  # noqa: BLE001 - a call outside the sampler failed: without memory, even a wait does
                time.sleep(RETRY_S)  # allocates nothing

    def _run(self) -> None:
        failures = 0
        self.task = _own_task()
        while not self.agent.ended.is_set():
            began = time.monotonic()
            if self._is_started or self._start():
                self._loop()
            self.ready.set()
            if time.monotonic() - began > WORKED_S:
                failures = 0
            self.agent.ended.wait(min(self.sampler.retry_most_s, RETRY_S * 2 ** min(failures, 8)))
            failures += 1

    def _start(self) -> bool:
        """Whether the sampler could start."""
        self.began = time.monotonic()
        try:
            self.sampler.start()
        except Unavailable as error:
            self._report(error)
            return False
        except Exception:  # noqa: BLE001 - a failed sampler is reported and stops no other
            if not self._has_crashed:
                self.agent.report_crash("sampler %s could not start" % self.sampler.name)
            self._has_crashed = True
            return False
        finally:
            self.began = None
        if self._missing:
            self.agent.unmiss(self._missing)
        self._missing, self._absence, self._has_crashed = "", [], False
        self._is_started = True
        return True

    def _report(self, error: "Unavailable") -> None:
        name = error.name or self.sampler.name
        if self._missing and self._missing != name:
            self.agent.unmiss(self._missing)
        self._missing = name
        self.agent.miss(name, error.text, error.try_)
        absence = self.sampler.absence(error)
        if absence != self._absence:
            self._absence = absence
            self.agent.outbox.post(absence)

    def _loop(self) -> None:
        """Tick until the agent ends, or the source is gone."""
        failures, least_s = 0, self.sampler.interval_s / 2  # after a first tick, so that rates are of some time
        while not self.agent.ended.is_set():
            self.began = time.monotonic()
            try:
                facts = list(self.sampler.tick(self.began))
                self.began = None
                self._post(facts)
                failures = 0
            except Unavailable as error:
                self.began = None
                self._is_started = False
                self.sampler.stop()
                self._post_begun()
                self._report(error)
                return
            except Exception:  # noqa: BLE001 - as above
                failures += 1
                if failures in (1, 60):  # at first, and once more if it persists
                    self.agent.report_crash("sampler %s failed" % self.sampler.name)
            self.began = None
            self.ready.set()
            self._woken.wait(self._until_next_slot(least_s))
            self._woken.clear()
            least_s = 0.0

    def _post(self, facts: "list[Fact]") -> None:
        """Post the records of one tick, or digests in place of them where the console ordered these."""
        order = self.agent.digests
        if self._digester is not None and self._digester.order is not order:
            self._post_begun()
        if order is not None:
            if self._digester is None:
                self._digester = order.digester()
            facts = self._digester.digest(facts, self.sampler.interval_s)
        if facts:
            self.agent.outbox.post(facts)

    def _post_begun(self) -> None:
        """Post the digests that were begun, after which the next tick begins anew."""
        facts = self._digester.flush() if self._digester is not None else []
        self._digester = None
        if facts:
            self.agent.outbox.post(facts)

    def wake(self) -> None:
        """Tick now: something has changed here that is not to wait for the next slot."""
        self.sampler.expedite()
        self._woken.set()

    def _until_next_slot(self, least_s: float) -> float:
        """Seconds to the next slot of the grid that all samplers share; to the one after it if it is sooner."""
        interval, epoch = self.sampler.interval_s, float(self.agent.epoch)
        wait_s = interval - (time.monotonic() - epoch) % interval
        return wait_s + interval if wait_s < least_s else wait_s

    @property
    def hung_limit_s(self) -> float:
        """Seconds after which a start or tick hangs."""
        return max(HUNG_S, HUNG_INTERVALS * self.sampler.interval_s)


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
