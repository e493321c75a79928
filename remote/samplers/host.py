"""The `node` record (identity and capabilities of the machine) and the `host` records (CPU, memory, disk, network)."""

import os
import sys

from ..proc.procfs import ProcFs, read_number, read_text
from .base import Sampler

#: Bytes of a sector in /proc/diskstats, whatever the disk has.
_SECTOR = 512

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields


def node_fields(agent: "Agent") -> "Fields":
    """The fields of the `node` record; None for values that cannot be read."""
    uname = os.uname()
    context = agent.context
    return {
        "hostname": uname.nodename,
        "boot_id": read_text("/proc/sys/kernel/random/boot_id") or "",
        "init_start_ticks": _start_of_init(),
        "kernel": uname.release,
        "arch": uname.machine,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "os": _pretty_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "mem_total_bytes": _meminfo("/proc").get("MemTotal"),
        "uid": os.geteuid(),
        "user": user_name(os.geteuid()),
        "pid": os.getpid(),
        "sample_interval_ms": int(context.interval_s * 1000),
        "ptrace_scope": read_number("/proc/sys/kernel/yama/ptrace_scope"),
        "capabilities": _capabilities(agent),
        "missing": list(agent.missing),
        "simulated": bool(context.simulate_gpus),
    }


def _start_of_init() -> "int | None":
    try:
        return ProcFs().stat(1).start_ticks
    except (OSError, ValueError, IndexError):
        return None


def user_name(uid: int) -> "str | None":
    """The login name of a uid, or None."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _capabilities(agent: "Agent") -> "list[str]":
    capabilities = []
    if os.path.isdir("/proc/pressure"):
        capabilities.append("psi")
    if agent.context.simulate_gpus:
        capabilities.append("simulate")
    if agent.place.root:
        capabilities.append("cache")
    return capabilities


def _pretty_name() -> "str | None":
    for line in (read_text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip("\"'")
    return None


def _meminfo(proc: str) -> "dict[str, int]":
    """{name: bytes} of total and available memory and swap."""
    sizes = {}
    for line in (read_text(proc + "/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
            sizes[name] = int(value.split()[0]) * 1024
    return sizes


class HostSampler(Sampler):
    """One `host` record per tick: memory, load, uptime, pressure, CPU, disk and network from /proc.

    Rates are since the previous tick, None at the first.
    """

    name = "host"

    def __init__(self, context: "Context") -> None:
        super(HostSampler, self).__init__(context)
        self._rates = Rates()
        self._is_physical: dict[str, dict[str, bool]] = {}  # by the path in /sys: whether a name is a physical device
        self._cpu_ticks: "list[int] | None" = None  # of all CPUs at the previous tick, by what they were spent on

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `host` record."""
        fields = self._memory()
        fields.update(self._pressure())
        fields["load_1m"] = self._first_number("loadavg")
        fields["uptime_s"] = self._first_number("uptime")
        fields["cpu_pct"] = self._busy_pct()
        fields.update(self._throughput(now))
        snapshot = self.context.shared.get("processes")
        fields["processes"] = snapshot.total if snapshot is not None else None
        fields["unreadable"] = snapshot.unreadable if snapshot is not None else None
        yield "host", fields

    # -- from /proc --------------------------------------------------------------------------------------------------

    def _memory(self) -> "Fields":
        sizes = _meminfo(self.context.proc)
        return {
            "mem_used_bytes": _difference(sizes, "MemTotal", "MemAvailable"),
            "mem_available_bytes": sizes.get("MemAvailable"),
            "swap_used_bytes": _difference(sizes, "SwapTotal", "SwapFree"),
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
        return read_text("%s/%s" % (self.context.proc, name)) or ""  # PSI: EOPNOTSUPP if it is built in but off

    # -- counters ----------------------------------------------------------------------------------------------------

    def _busy_pct(self) -> "float | None":
        """Share of all CPUs' time since the previous tick in which they were not idle."""
        words = self._read("stat").partition("\n")[0].split()
        if words[:1] != ["cpu"] or len(words) < 6:
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in user and nice, too
        spent = [int(word) for word in words[1:9]]
        before, self._cpu_ticks = self._cpu_ticks, spent
        if before is None:
            return None
        # a processor that comes or goes, and iowait, let a counter go back (proc_stat(5))
        elapsed = [max(0, now - then) for now, then in zip(spent, before)]  # noqa: B905 - Python 3.6
        total = sum(elapsed)
        return round(100.0 * (total - elapsed[3] - elapsed[4]) / total, 1) if total else None

    def _throughput(self, now: float) -> "dict[str, float | None]":
        counters = {}
        for name, words in self._physical(_disks(self._read("diskstats")), "/sys/block/%s/device"):
            counters[("disk_read_bytes_s", name)] = int(words[2]) * _SECTOR
            counters[("disk_write_bytes_s", name)] = int(words[6]) * _SECTOR
        for name, words in self._physical(_interfaces(self._read("net/dev")), "/sys/class/net/%s/device"):
            counters[("net_rx_bytes_s", name)] = int(words[0])
            counters[("net_tx_bytes_s", name)] = int(words[8])
        return self._rates.since_last(now, counters)

    def _physical(self, counters: "dict[str, list[str]]", device: str) -> "list[tuple[str, list[str]]]":
        """(name, counter) of the physical devices; of all but loopback if there are none (in virtual machines).

        Bonds, bridges, partitions and device mappers count the bytes of the devices below them again.
        """
        items = [item for item in counters.items() if item[0] != "lo"]
        before = self._is_physical.get(device, {})
        # those that exist now: the names of interfaces of containers are new each time
        now = {name: before[name] if name in before else os.path.exists(device % name) for name, _ in items}
        self._is_physical[device] = now
        return [item for item in items if now[item[0]]] or items


class Rates(object):
    """Rates of monotonic counters: {(metric, source): count} to {metric: sum of rates per second}."""

    def __init__(self) -> None:
        self._previous_s: float | None = None
        self._counters: dict[tuple[str, str], int] = {}

    def since_last(self, now: float, counters: "dict[tuple[str, str], int]") -> "dict[str, float | None]":
        """Rates since the last call, without sources that are new or were reset; None if none is left."""
        elapsed = now - self._previous_s if self._previous_s is not None else 0.0
        rates: dict[str, float | None] = {metric: None for metric, _ in counters}
        for key, count in counters.items():
            before = self._counters.get(key)
            if elapsed > 0 and before is not None and count >= before:
                rates[key[0]] = (rates[key[0]] or 0.0) + (count - before) / elapsed
        self._previous_s, self._counters = now, counters
        return rates


def _disks(text: str) -> "dict[str, list[str]]":
    """By name, the counters of /proc/diskstats: the third is of sectors read, the seventh of sectors written."""
    lines = [line.split() for line in text.splitlines()]
    return {words[2]: words[3:] for words in lines if len(words) >= 14}


def _interfaces(text: str) -> "dict[str, list[str]]":
    """By name, the counters of /proc/net/dev: the first is of bytes received, the ninth of bytes sent."""
    lines = [line.rpartition(":") for line in text.splitlines()[2:]]  # the name of an alias has a colon, too
    return {name.strip(): words.split() for name, _, words in lines if len(words.split()) >= 16}


def _difference(sizes: "dict[str, int]", total: str, free: str) -> "int | None":
    return max(0, sizes[total] - sizes[free]) if total in sizes and free in sizes else None
