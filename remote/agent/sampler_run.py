"""A sampler in an agent: its start, its ticks on the grid, and its state while its source does not exist."""

import threading
import time

from ..samplers.base import HUNG_INTERVALS, HUNG_S, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fact, Sampler
    from .digests import Digester
    from .sampler_thread import Runner


class SamplerRun(object):
    """Starts and ticks one sampler, and posts its records; which thread does so is the matter of sampler_thread.py.

    `agent` has `ended`, `epoch`, `outbox`, `digests`, `miss`, `unmiss` and `report_crash`.
    """

    def __init__(self, sampler: "Sampler", agent: "Any") -> None:
        self.sampler = sampler
        self.agent = agent
        self.ready = threading.Event()  # set after the first tick or failure
        self.began: "float | None" = None  # time.monotonic() of the start or tick under way
        self.due = 0.0  # time.monotonic() of the next tick
        self.is_woken = False  # the next tick is to come at once
        self.is_started = False  # the sampler, until its source is gone
        self.runner: "Runner | None" = None  # the thread that runs it now
        self._missing = ""  # name under which the source is reported as missing
        self._absence: "list[Fact]" = []  # its last records of that
        self._has_crashed = False
        self._failures = 0  # ticks that failed in succession
        self._digester: "Digester | None" = None  # by the last order of the console

    def start(self) -> bool:
        """Start the sampler; whether it could."""
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
        self._missing, self._absence, self._has_crashed, self._failures = "", [], False, 0
        self.is_started = True
        return True

    def tick(self, least_s: float = 0.0) -> bool:
        """Tick once; False once the source is gone. `least_s`: see `set_due`."""
        self.is_woken = False
        self.began = time.monotonic()
        try:
            facts = list(self.sampler.tick(self.began))
            self.began = None
            self._post(facts)
            self._failures = 0
        except Unavailable as error:
            self.began = None
            self.is_started = False
            self.sampler.stop()
            self._post_begun()
            self._report(error)
            return False
        except Exception:  # noqa: BLE001 - as above
            self._failures += 1
            if self._failures in (1, 60):  # at first, and once more if it persists
                self.agent.report_crash("sampler %s failed" % self.sampler.name)
        finally:
            self.began = None
        self.ready.set()
        self.set_due(least_s)
        return True

    def set_due(self, least_s: float) -> None:
        """Tick in the next slot of the grid that all samplers share; in the one after it if it is within `least_s`."""
        now, interval, epoch = time.monotonic(), self.sampler.interval_s, self.agent.epoch + self.sampler.offset_s
        self.due = epoch + ((now - epoch) // interval + 1.0) * interval
        if self.due - now < least_s:
            self.due += interval

    def wake(self) -> None:
        """Tick now: something has changed here that is not to wait for the next slot."""
        self.sampler.expedite()
        self.is_woken = True
        runner = self.runner
        if runner is not None:
            runner.wake()

    def is_dead(self) -> bool:
        """Whether the thread that runs it has ended."""
        return self.runner is not None and self.runner.has_ended()

    @property
    def task(self) -> "str | None":
        """The folder of /proc of the thread that runs it."""
        return self.runner.task if self.runner is not None else None

    @property
    def hung_limit_s(self) -> float:
        """Seconds after which a start or tick hangs."""
        return self.sampler.hung_s or max(HUNG_S, HUNG_INTERVALS * self.sampler.interval_s)

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
