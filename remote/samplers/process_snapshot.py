"""What the sampler of processes has seen, as the other samplers and captures need it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .base import Fields


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


class ProcessSnapshot(object):
    """What `context.shared["processes"]` holds, replaced as a whole each tick.

    `ranks`: RankRef of every live rank. `children`: ChildRef of every process below one. `total`: processes that /proc
    lists. `unreadable`: Python processes whose environment was denied. `live_denied`: those of which only the
    environment at exec may be read (ptrace_scope), so that ranks set at run time stay unseen. `hidden`: processes of
    which not even the name may be read (hidepid).
    """

    __slots__ = ("children", "hidden", "live_denied", "ranks", "total", "unreadable")

    def __init__(
        self,
        ranks: "tuple[RankRef, ...]",
        children: "tuple[ChildRef, ...]",
        total: int,
        unreadable: int,
        live_denied: int,
        hidden: int,
    ) -> None:
        self.ranks = ranks
        self.children = children
        self.total = total
        self.unreadable = unreadable
        self.live_denied = live_denied
        self.hidden = hidden
