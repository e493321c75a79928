"""Network links that go down and up: each run of changes within minutes is one event with a count."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: Seconds without a change that end a run.
RUN_S = 300.0
#: Seconds without a change after which a run under way is reported, and the longest until it is.
SETTLED_S, LONGEST_S = 5.0, 60.0
#: A link that was never up and goes down within this time after boot, s, is being configured.
BOOT_S = 120.0
#: A link that went down this many times in one run flaps.
FLAPS = 3
MOST_LINKS = 256


class Run(object):
    """Changes of one link, none further than `RUN_S` from the one before; times in seconds since boot."""

    __slots__ = ("at_boot", "downs", "first_s", "is_up", "last_s", "payload", "reported", "reported_s")

    def __init__(self, at_s: float, is_up: bool, at_boot: bool) -> None:
        self.first_s = self.last_s = self.reported_s = at_s
        self.is_up, self.at_boot = is_up, at_boot
        self.downs = self.reported = 0
        self.payload: Any = None  # that of its last message that the link is down

    @property
    def is_flap(self) -> bool:
        """Whether the link went down several times."""
        return self.downs >= FLAPS

    @property
    def is_configured(self) -> bool:
        """Whether the link came up after boot, and never went down after it was up."""
        return self.at_boot and self.downs == 1 and self.is_up

    def suffix(self) -> str:
        """What followed its last message, in words."""
        state = "up again" if self.is_up else "down"
        if self.downs > 1:
            return " (link down %d times within %d s, now %s)" % (self.downs, max(1, self.last_s - self.first_s), state)
        return " (%s after %.0f s)" % (state, self.last_s - self.first_s) if self.is_up else ""


class LinkFlaps(object):
    """The current run of each link."""

    def __init__(self) -> None:
        self._runs: "dict[str, Run]" = {}
        self._was_up: "set[str]" = set()

    def change(self, link: str, is_up: bool, at_s: float, payload: "Any") -> "Run | None":
        """Add a message; returns the run that it ends, if that was not reported as it is."""
        run, ended = self._runs.get(link), None
        if run is not None and at_s - run.last_s > RUN_S:
            ended = run if run.reported != self._stamp(run) else None
            before, run = run, None
            if is_up and not before.is_up:  # it was down for long: the message ends that
                run = self._runs[link] = Run(before.last_s, False, before.at_boot)
                run.downs, run.payload, ended = 1, before.payload, ended if before.downs > 1 else None
        if run is None:
            if len(self._runs) >= MOST_LINKS:
                self._runs.clear()
            if is_up:  # came up: no fault
                self._runs.pop(link, None)
                self._was_up.add(link)
                return ended
            run = self._runs[link] = Run(at_s, True, at_s < BOOT_S and link not in self._was_up)
        if not is_up:
            run.downs += run.is_up
            run.payload = payload
        else:
            self._was_up.add(link)
        run.is_up, run.last_s = is_up, at_s
        return ended

    def due(self, now_s: "float | None") -> "Iterator[Run]":
        """Runs to report now: changed ones that settled, or that are new; all changed ones if `now_s` is None."""
        for run in self._runs.values():
            stamp = self._stamp(run)
            is_first = run.reported == 0
            is_settled = now_s is None or now_s - run.last_s >= SETTLED_S or now_s - run.reported_s >= LONGEST_S
            if stamp != run.reported and (is_first or is_settled or run.downs == 1):
                run.reported, run.reported_s = stamp, run.last_s if now_s is None else now_s
                if not run.is_configured:
                    yield run

    @staticmethod
    def _stamp(run: Run) -> int:
        return run.downs * 2 + run.is_up
