"""Probe plans of the console, validated: the agent accepts none that would harm its node."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKETS = 3
#: Microseconds between two triples: the lower limit is what one interpreter achieves, above the upper one a window
#: has too few.
_CADENCE_US = (500, 1000000)
_SPACING_US = (0, 10000)
_BIN_MS = (10, 1000)
_CPU_CAP_PCT = (1, 100)
#: Seconds. Longest duration of one request; the console renews it, so that probing ends when the console is gone.
MAX_DURATION_S = 120.0


class BadProbePlan(ValueError):
    """An invalid or harmful plan; the text is the reason."""


class ProbePlan(object):
    """Cadence, spacing and bins in ns, CPU cap in percent of a core; `session` identifies the plan."""

    def __init__(self, args: "dict[str, Any]") -> None:
        self.session = str(args.get("session", ""))
        self.cadence_ns = 1000 * _whole(args, "cadence_us", _CADENCE_US)
        self.spacing_ns = 1000 * _whole(args, "spacing_us", _SPACING_US)
        self.bin_ns = 1000000 * _whole(args, "bin_ms", _BIN_MS)
        self.cpu_cap_pct = _whole(args, "cpu_cap_pct", _CPU_CAP_PCT)
        if self.cadence_ns < (PACKETS + 1) * self.spacing_ns:
            raise BadProbePlan("a triple of %d us spacing does not fit a cadence of %d us"
                          % (self.spacing_ns // 1000, self.cadence_ns // 1000))  # fmt: skip

    def packets_per_s(self, edges: int) -> float:
        """Packets per second sent on this many probed or answered edges."""
        return edges * PACKETS * 1e9 / self.cadence_ns


def duration_s(args: "dict[str, Any]") -> float:
    """`for_s` of a request, seconds from now. Raises BadProbePlan."""
    for_s = args.get("for_s")
    if not isinstance(for_s, (int, float)) or not 0 < for_s <= MAX_DURATION_S:
        raise BadProbePlan("for_s must be above 0 and at most %g, is %r" % (MAX_DURATION_S, for_s))
    return float(for_s)


def _whole(args: "dict[str, Any]", name: str, limits: "tuple[int, int]") -> int:
    value: "int | None" = args.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not limits[0] <= value <= limits[1]:
        raise BadProbePlan("%s must be %d to %d, is %r" % (name, limits[0], limits[1], value))
    return value
