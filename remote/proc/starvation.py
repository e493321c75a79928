"""Time in which a thread got no CPU: on a busy node, a call that seems to hang may be a thread that waits to run."""

#: Seconds by which a periodic check may be late without a reason.
_TOLERANCE_S = 0.5
#: Seconds for which a task may be silent before its waiting is counted.
SHORT_S = 1.5

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable


def run_delay_s(task: "str | None") -> float:
    """Seconds that a task, a folder of /proc, has waited for a CPU so far; 0.0 where the kernel does not count them."""
    if task is None:
        return 0.0
    try:
        with open(task + "/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class StarvedTime(object):
    """Part of the time since `began` in which a task waited for a CPU, or the machine as a whole stood still.

    Waiting counts from the creation on, which may be when the task is first late: most never are.
    """

    def __init__(self, task: "str | None", began: float) -> None:
        self.began = began
        self._task = task
        self._before_s = run_delay_s(task)
        self._late_s = 0.0

    def seconds(self, now: float, late_s: float) -> float:
        """Seconds so far. `late_s`: by how much this check, of another thread, is late itself."""
        self._late_s += min(late_s, now - self.began)
        return max(self._late_s, run_delay_s(self._task) - self._before_s)


class Lateness(object):
    """By how much a check that is due every `every_s` seconds is late."""

    def __init__(self) -> None:
        self._last: "float | None" = None

    def check(self, now: float, every_s: float) -> float:
        """Seconds; 0.0 for the first check, and within a tolerance."""
        last, self._last = self._last, now
        late_s = now - last - every_s if last is not None else 0.0
        return late_s if late_s > _TOLERANCE_S else 0.0


class HungCalls(object):
    """Which samplers hang, checked periodically; time in which they got no CPU does not count."""

    def __init__(self) -> None:
        self._lateness = Lateness()
        self._starved: "dict[Any, StarvedTime]" = {}

    def check(self, runs: "Iterable[Any]", now: float, every_s: float) -> "list[tuple[Any, float]]":
        """(run, seconds since its tick began, without those) of each that hangs. `every_s`: between two checks.

        Runs have `began`, `task` and `hung_limit_s`, as SamplerRun.
        """
        late_s = self._lateness.check(now, every_s)
        hung = []
        for run in runs:
            began = run.began
            if began is None or now - began < SHORT_S:
                self._starved.pop(run, None)
                continue
            starved = self._starved.get(run)
            if starved is None or starved.began != began:
                starved = self._starved[run] = StarvedTime(run.task, began)
            seconds = now - began - starved.seconds(now, late_s)
            if seconds > run.hung_limit_s:
                hung.append((run, seconds))
        return hung
