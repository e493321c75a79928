"""Samplers: the interface, the context they share, and rates of counters."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Hashable, Iterable

    #: A JSON object: the fields of a record, a frame, or the arguments of a request.
    Fields = dict[str, Any]
    #: (kind, fields) of one record.
    Fact = tuple[str, Fields]
    #: (pid, start time in clock ticks after boot): the identity of a process.
    ProcessKey = tuple[int, int]

#: A tick that takes longer than this many intervals, and at least this many seconds, is hung.
HUNG_INTERVALS, HUNG_S = 3, 5.0


class Unavailable(Exception):
    """The source does not exist on this node, or may not be read; `try_` is the remedy.

    `name` is the stable name of that state; "" if the name of the sampler is enough.
    """

    def __init__(self, text: str, try_: str = "", name: str = "") -> None:
        super(Unavailable, self).__init__(text)
        self.text = text
        self.try_ = try_
        self.name = name


class Context(object):
    """Environment of the samplers; one per run of the agent, shared by all.

    `proc` is the root of the proc file system, `sys` of sysfs, `dev` of the device files, `kmsg` the kernel log.
    `process_filter` is None, or (name, value) of the environment variable of the processes to report.
    """

    sys, kmsg, dev = "/sys", "/dev/kmsg", "/dev"

    def __init__(
        self,
        interval_s: float = 1.0,
        proc: str = "/proc",
        process_filter: "tuple[str, str] | None" = None,
        simulate_gpus: int = 0,
        boot_id: str = "",
    ) -> None:
        self.interval_s = self.configured_s = interval_s  # longer than configured while the agent exceeds its budget
        self.proc = proc
        self.process_filter = process_filter
        self.simulate_gpus = simulate_gpus
        self.boot_id = boot_id
        self.import_nvml: Callable[[], Any] = None  # type: ignore[assignment]  # pynvml, or Unavailable; set by the agent
        self.prepare_nvml: Callable[[], None] = lambda: None  # called once, before a process that imports it is forked
        self.shared: Fields = {}  # values that samplers publish for other samplers, by key


class Sampler(object):
    """One source. `start` may raise Unavailable; `tick` yields (kind, fields) of the records of this instant.

    `start` and the first tick run on a thread of the sampler's own, later ticks on one that it shares with others
    unless it `waits`; one that hangs blocks no other sampler (see agent/sampler_thread.py). `now` is time.monotonic(),
    s.
    """

    name = ""
    waits = False  # its ticks wait, for another program or an instant, or are long
    offset_s = 0.0  # from the slot of the others to its own: ticks at one instant wait for the interpreter's lock
    finest_s = 1.0  # lower limit of the interval, whatever the configured one
    retry_most_s = 60.0  # longest pause before another attempt to start
    hung_s: "float | None" = None  # seconds after which a start or tick hangs, if not HUNG_INTERVALS

    def __init__(self, context: "Context") -> None:
        self.context = context

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return max(self.finest_s, self.context.interval_s)

    def start(self) -> None:
        """Open the source. Raises Unavailable."""

    def tick(self, now: float) -> "Iterable[Fact]":
        """Yield (kind, fields) for each fact of this instant."""
        return iter(())

    def expedite(self) -> None:
        """Read everything in the next tick, which comes at once: see `SamplerRun.wake`."""

    def absence(self, error: "Unavailable") -> "list[Fact]":
        """(kind, fields) that report a source that does not exist."""
        return []

    def stop(self) -> None:
        """Release the resources of `start`."""


class Counters(object):
    """The last value of each counter of one device, by name."""

    def __init__(self) -> None:
        self._last: "dict[Hashable, tuple[int, float]]" = {}
        self._totals: "dict[Hashable, int]" = {}  # counters without a rate

    def growth(self, name: "Hashable", value: int, bits: int) -> int:
        """Gain since the last reading, 0 if unknown. For error counters, which rarely change."""
        before = self._totals.get(name)
        if before == value:
            return 0
        self._totals[name] = value
        return _gain(before, value, bits) or 0 if before is not None else 0

    def gained(self, name: "Hashable", value: int, bits: int, now: float) -> "tuple[int, float] | None":
        """(gain, seconds) since the last reading; None at the first one and after a restart of the counter."""
        before = self._last.get(name)
        self._last[name] = (value, now)
        if before is None or now <= before[1]:
            return None
        gain = _gain(before[0], value, bits)
        return (gain, now - before[1]) if gain is not None else None

    def rate(self, name: "Hashable", value: int, bits: int, now: float, unit: float = 1) -> "float | None":
        """Rate in units of `unit` per second, or None."""
        gained = self.gained(name, value, bits, now)
        return None if gained is None else gained[0] * unit / gained[1]


def _gain(before: int, value: int, bits: int) -> "int | None":
    """Difference of two readings; None after a restart.

    A drop of a 16- or 32-bit counter from its upper half to its lower half is a wrap; any other drop is a restart from
    0 (driver reset), whose gain is unknown.
    """
    gain = value - before
    if gain < 0:
        half = 1 << bits - 1
        if bits == 64 or not value < half <= before:
            return None
        gain += 1 << bits
    return gain
