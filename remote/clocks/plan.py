"""What the console wants of this node's probes, checked: an agent does not take its word for what harms a node."""

PACKETS = 3
#: Between two triples, us: below, one interpreter cannot; above, a window has too few of them.
_CADENCE_US = (500, 1000000)
_SPACING_US = (0, 10000)
_BIN_MS = (10, 1000)
_CPU_CAP_PCT = (1, 100)
#: Probing ends by itself after this, unless the console asks again: it may be gone.
MOST_S = 120.0


class BadPlan(ValueError):
    """A plan that makes no sense, or would harm; the text says why."""


class Plan(object):
    """Cadence and spacing in ns, bins in ns, the cap of CPU in percent of a core; `session` tells plans apart."""

    def __init__(self, args):
        self.session = str(args.get("session", ""))
        self.cadence_ns = 1000 * _whole(args, "cadence_us", _CADENCE_US)
        self.spacing_ns = 1000 * _whole(args, "spacing_us", _SPACING_US)
        self.bin_ns = 1000000 * _whole(args, "bin_ms", _BIN_MS)
        self.cpu_cap_pct = _whole(args, "cpu_cap_pct", _CPU_CAP_PCT)
        if self.cadence_ns < (PACKETS + 1) * self.spacing_ns:
            raise BadPlan("a triple of %d us spacing does not fit a cadence of %d us"
                          % (self.spacing_ns // 1000, self.cadence_ns // 1000))  # fmt: skip

    def needs_per_s(self, edges):
        """Packets a second that go out where so many edges are probed or answered."""
        return edges * PACKETS * 1e9 / self.cadence_ns


def seconds(args):
    """For how long, from now."""
    for_s = args.get("for_s")
    if not isinstance(for_s, (int, float)) or not 0 < for_s <= MOST_S:
        raise BadPlan("for_s must be above 0 and at most %g, is %r" % (MOST_S, for_s))
    return float(for_s)


def _whole(args, name, limits):
    value = args.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not limits[0] <= value <= limits[1]:
        raise BadPlan("%s must be %d to %d, is %r" % (name, limits[0], limits[1], value))
    return value
