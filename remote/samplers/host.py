"""The figures of the whole machine: CPU, memory, pressure, disk and network."""

import os

from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from .base import Context, Fact, Fields


class HostSampler(Sampler):
    """One `host` record a tick: memory, load, uptime and pressure from /proc; CPU, disk and network from psutil, and
    None where the node has no psutil. Rates are over the time since the previous tick and None at the first.
    """

    name = "host"

    def __init__(self, context: "Context") -> None:
        super(HostSampler, self).__init__(context)
        self._rates = Rates()
        self._first = True

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `host` record."""
        fields = self._memory()
        fields.update(self._pressure())
        fields["load_1m"] = self._first_number("loadavg")
        fields["uptime_s"] = self._first_number("uptime")
        if self.context.psutil is not None:
            fields.update(self._figures(self.context.psutil, now))
        seen = self.context.shared.get("processes")
        fields["processes"] = seen.total if seen is not None else None
        fields["unreadable"] = seen.unreadable if seen is not None else None
        self._first = False
        yield "host", fields

    # -- from /proc --------------------------------------------------------------------------------------------------

    def _memory(self) -> "Fields":
        kib = {}
        for line in self._read("meminfo").splitlines():
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
                kib[name] = int(value.split()[0])
        return {
            "mem_used_bytes": _difference(kib, "MemTotal", "MemAvailable"),
            "mem_available_bytes": kib["MemAvailable"] * 1024 if "MemAvailable" in kib else None,
            "swap_used_bytes": _difference(kib, "SwapTotal", "SwapFree"),
        }

    def _pressure(self) -> "Fields":
        return {
            "cpu_stall_pct": self._some("cpu"),
            "mem_stall_pct": self._some("memory"),
            "io_stall_pct": self._some("io"),
        }

    def _some(self, resource: str) -> "float | None":
        """Share of the last 10 s in which some task waited for `resource`; None on kernels without PSI."""
        first = self._read("pressure/" + resource).partition("\n")[0].split()
        if first[:1] != ["some"]:
            return None
        return float(first[1].partition("=")[2])

    def _first_number(self, name: str) -> "float | None":
        fields = self._read(name).split()
        return float(fields[0]) if fields else None

    def _read(self, name: str) -> str:
        try:
            with open("%s/%s" % (self.context.proc, name)) as f:
                return f.read()
        except OSError:
            return ""  # PSI answers EOPNOTSUPP when it is built in and off

    # -- from psutil -------------------------------------------------------------------------------------------------

    def _figures(self, psutil: "Any", now: float) -> "Fields":
        busy = _asked(psutil.cpu_percent, None)  # since the previous call; the first answer means nothing
        counters = {}
        for name, counter in _physical(_asked(psutil.disk_io_counters, True, False), "/sys/block/%s/device"):
            counters[("disk_read_bytes_s", name)] = counter.read_bytes
            counters[("disk_write_bytes_s", name)] = counter.write_bytes
        for name, counter in _physical(_asked(psutil.net_io_counters, True, False), "/sys/class/net/%s/device"):
            counters[("net_rx_bytes_s", name)] = counter.bytes_recv
            counters[("net_tx_bytes_s", name)] = counter.bytes_sent
        return dict(self._rates.since_last(now, counters), cpu_pct=None if self._first else busy)


class Rates(object):
    """Counters that only grow, turned into rates: {(figure, source): count} into {figure: sum of rates, per second}."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._counters: dict[tuple[str, str], int] = {}

    def since_last(self, now: float, counters: "dict[tuple[str, str], int]") -> "dict[str, float | None]":
        """A source that is new, or whose count fell (it was reset), is left out of this interval; none left is None."""
        elapsed = now - self._at if self._at is not None else 0.0
        rates: dict[str, float | None] = {figure: None for figure, _ in counters}
        for key, count in counters.items():
            before = self._counters.get(key)
            if elapsed > 0 and before is not None and count >= before:
                rates[key[0]] = (rates[key[0]] or 0.0) + (count - before) / elapsed
        self._at, self._counters = now, counters
        return rates


def _asked(figure: "Callable[..., Any]", *arguments: "Any") -> "Any":
    """psutil's answer, or None: it raises where /proc lacks a file (containers) or has a line it does not know."""
    try:
        return figure(*arguments)
    except (OSError, RuntimeError, ValueError, IndexError):
        return None


def _physical(counters: "dict[str, Any] | None", device: str) -> "list[tuple[str, Any]]":
    """The (name, counter) of real devices, or of all but loopback where none is real (containers, virtual machines).

    A bond, a bridge, a partition or a device mapper counts the bytes of the devices below it a second time.
    """
    items = [item for item in (counters or {}).items() if item[0] != "lo"]
    return [item for item in items if os.path.exists(device % item[0])] or items


def _difference(kib: "dict[str, int]", total: str, free: str) -> "int | None":
    if total not in kib or free not in kib:
        return None
    return max(0, kib[total] - kib[free]) * 1024
