"""What a sampler is: a generator of facts about one source. It survives its absence and does not know who listens."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    #: A JSON object: the fields of a record, a frame, or the arguments of a request.
    Fields = dict[str, Any]
    #: (kind, fields) of one record.
    Fact = tuple[str, Fields]
    #: (pid, start time in clock ticks after boot): the identity of a process.
    ProcessKey = tuple[int, int]


class Unavailable(Exception):
    """The source does not exist on this node, or may not be read; `try_` says what a person could do.

    `name` is the stable name of that state; "" where the name of the sampler says enough.
    """

    def __init__(self, text: str, try_: str = "", name: str = "") -> None:
        super(Unavailable, self).__init__(text)
        self.text = text
        self.try_ = try_
        self.name = name


class Context(object):
    """What a sampler may know about where it runs; one a run of the agent, shared by all samplers.

    `proc` is the root of the proc file system, `sys` of sysfs, `kmsg` the kernel's log (tests point them at fixtures).
    `psutil` is the module or None.
    `process_filter` is None, or (name, value) of the environment variable that a process of interest carries.
    """

    sys, kmsg = "/sys", "/dev/kmsg"

    def __init__(
        self,
        interval_s: float = 1.0,
        proc: str = "/proc",
        psutil: "Any" = None,
        process_filter: "tuple[str, str] | None" = None,
        simulate_gpus: int = 0,
        boot_id: str = "",
    ) -> None:
        self.interval_s = interval_s
        self.proc = proc
        self.psutil = psutil
        self.process_filter = process_filter
        self.simulate_gpus = simulate_gpus
        self.boot_id = boot_id
        self.import_nvml: Callable[[], Any] = None  # type: ignore[assignment]  # pynvml, or Unavailable; set by the agent
        self.shared: Fields = {}  # what one sampler publishes for the others, by the sampler's name


class Sampler(object):
    """One source. `start` may raise Unavailable; `tick` yields (kind, fields) of the records of this instant.

    Both run on the sampler's own thread; a tick that hangs stops nobody else. `now` is time.monotonic() in seconds.
    """

    name = ""
    finest_s = 1.0  # it is not ticked more often, whatever the sampling interval: what it says would not gain by that

    def __init__(self, context: "Context") -> None:
        self.context = context

    @property
    def interval_s(self) -> float:
        """Between two ticks."""
        return max(self.finest_s, self.context.interval_s)

    def start(self) -> None:
        """Find the source; raise Unavailable where it is absent."""

    def tick(self, now: float) -> "Iterable[Fact]":
        """Yield (kind, fields) for each fact of this instant."""
        return iter(())

    def stop(self) -> None:
        """Let go of whatever `start` took."""
