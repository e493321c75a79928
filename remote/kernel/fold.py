"""Messages of the kernel log as faults in order: what ended, which cgroup a killed process had, links that flap."""

from .faults import Fault, fault_of, oom_cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

OOM_KILLS = ("oom_kill", "oom_kill_in_cgroup")
#: What follows the text of a message that another program than the kernel wrote.
FOREIGN = " (written to the kernel log by a program)"
#: Messages of one class that are kept of the past, and cgroups that await the message about their process.
MOST_EARLIER, MOST_CGROUPS = 100, 100
#: Seconds without a change that end a run.
RUN_S = 300.0
#: Seconds without a change after which a run under way is reported, and the longest until it is.
SETTLED_S, LONGEST_S = 5.0, 60.0
#: A link that was never up and goes down within this time after boot, s, is being configured.
BOOT_S = 120.0
#: A link that went down this many times in one run flaps.
FLAPS = 3
MOST_LINKS = 256


class Message(object):
    """One fault: its text, time in s since boot, and whether the kernel itself wrote it."""

    __slots__ = ("at_s", "fault", "is_kernel", "text")

    def __init__(self, fault: "Fault", text: str, at_s: float, is_kernel: bool) -> None:
        self.fault, self.text, self.at_s, self.is_kernel = fault, text, at_s, is_kernel


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


class FaultFold(object):
    """Folds the messages of one boot, in order."""

    def __init__(self) -> None:
        self._open: "set[tuple[str, str]]" = set()  # faults whose end would be news
        self._cgroups: "dict[int, str]" = {}  # memory cgroups of processes about to be reported as killed
        self._links = LinkFlaps()

    def fold(self, messages: "Iterable[tuple[float, str, bool]]") -> "Iterator[Message]":
        """New faults; changes of links are collected, and an end is left out if its fault was never reported."""
        for at_s, text, is_kernel in messages:
            fault = fault_of(text)
            if fault is None:
                cgroup = oom_cgroup(text)
                if cgroup is not None and len(self._cgroups) < MOST_CGROUPS:
                    self._cgroups[cgroup[0]] = cgroup[1]
                continue
            if not is_kernel:
                yield Message(fault, text + FOREIGN, at_s, False)
            elif fault.name == "link":
                ended = self._links.change(fault.subject, fault.is_over, at_s, (fault, text))
                if ended is not None and not ended.is_configured:
                    yield _link_message(ended)
            elif not fault.is_over:
                self._open.add((fault.name, fault.subject))
                cgroup_path = self._cgroups.pop(fault.pid, None) if fault.pid and fault.name in OOM_KILLS else None
                yield Message(fault, text + (" in %s" % cgroup_path if cgroup_path else ""), at_s, True)
            elif (fault.name, fault.subject) in self._open:
                self._open.discard((fault.name, fault.subject))
                yield Message(fault, text, at_s, True)
        if len(self._open) > 1024:
            self._open.clear()

    def links(self, since_boot_s: "float | None") -> "Iterator[Message]":
        """Changes of links to report now; all that are not reported yet if `since_boot_s` is None."""
        return map(_link_message, self._links.due(since_boot_s))


def _link_message(run: "Run") -> Message:
    """A run of changes as one fault: of class `link_flap` from the third time on."""
    fault, text = run.payload
    name = "link_flap" if run.is_flap else "link"
    severity = "info" if run.at_boot and not run.is_flap else fault.severity
    renamed = Fault(name, severity, fault.try_, fault.subject, is_over=run.is_up and not run.is_flap)
    return Message(renamed, text + run.suffix(), run.last_s if run.downs > 1 or run.is_up else run.first_s, True)


def newest(messages: "list[Message]") -> "list[Message]":
    """The newest `MOST_EARLIER` of each class, in order."""
    counts: "dict[str, int]" = {}
    chosen = []
    for message in reversed(messages):
        name = message.fault.name
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= MOST_EARLIER:
            chosen.append(message)
    return chosen[::-1]
