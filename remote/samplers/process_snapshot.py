"""What the sampler of processes has seen, as the other samplers and captures need it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .base import Fields, ProcessKey


class RankRef(object):
    """One live rank of this node, as other samplers need it."""

    __slots__ = ("attempt", "gpu", "job", "local_rank", "ns_pid", "pid", "rank", "start_ticks")
    attempt: int
    gpu: "str | None"
    job: str
    local_rank: "int | None"
    ns_pid: "int | None"
    pid: int
    rank: "int | None"
    start_ticks: int

    def __init__(self, fields: "Fields") -> None:
        for name in self.__slots__:
            setattr(self, name, fields[name])


class ChildRef(object):
    """One process below a rank: a DataLoader worker, a compiler, another. `job`, `attempt`, `rank` are its rank's."""

    __slots__ = ("attempt", "job", "pid", "rank", "role", "start_ticks")
    job: str
    pid: int
    rank: "int | None"
    role: str
    start_ticks: int

    def __init__(self, fields: "Fields", attempt: int) -> None:
        self.attempt = attempt
        for name in ("job", "pid", "rank", "role", "start_ticks"):
            setattr(self, name, fields[name])


class WriterRef(object):
    """One process whose last output matters: a live rank, or a launcher above one, with `rank` None."""

    __slots__ = (
        "attempt", "error_file", "job", "local_world_size", "pid", "rank", "start_ticks", "uid", "world_size",
    )  # fmt: skip
    attempt: int
    error_file: "str | None"
    job: str
    local_world_size: "int | None"
    pid: int
    rank: "int | None"
    start_ticks: int
    uid: "int | None"
    world_size: "int | None"

    def __init__(self, fields: "Fields", error_file: "str | None" = None) -> None:
        for name in self.__slots__:
            setattr(self, name, fields.get(name))
        self.error_file = error_file


class ProcessSnapshot(object):
    """The value of `context.shared["processes"]`, replaced each tick.

    `ranks`: RankRef of every live rank. `children`: ChildRef of every process below one. `total`: processes that /proc
    lists. `unreadable`: Python processes whose environment was denied. `waits`: by rank, time.monotonic() of its sample
    and how often its main thread had waited by then, which other samplers need not read again.
    """

    __slots__ = ("children", "ranks", "total", "unreadable", "waits")

    def __init__(
        self,
        ranks: "tuple[RankRef, ...]",
        children: "tuple[ChildRef, ...]",
        total: int,
        unreadable: int,
        waits: "dict[ProcessKey, tuple[float, int]]",
    ) -> None:
        self.ranks, self.children, self.total, self.unreadable = ranks, children, total, unreadable
        self.waits = waits
