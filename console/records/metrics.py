"""The metric catalogue: each measured figure of a GPU, node, network port, rank and clock, declared once.

Lists, filters, the heat map, plots, statistics, exports and Prometheus read these tables. The order is that of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, Literal

import msgspec

from ..text import format
from . import AgentCost, ClockNode, Gpu, GpuClock, GpuInfo, Host, Nic, Node, RankStat, Record

Value = float | int | None
#: Where a metric appears beside lists: `history` (kept over time), `trace` (Perfetto counters), `diff` (compared
#: between sessions), `stat` (summary table), `plot` (its pictures), `page` (HTML report).
Use = Literal["history", "trace", "diff", "stat", "plot", "page"]
#: Colours of a heat map: the more the brighter, or cold to hot.
HeatScale = Literal["load", "temperature"]
_CURVE: Final[tuple[Use, ...]] = ("history", "trace", "diff")


class Noise(msgspec.Struct, frozen=True):
    """How far a figure moves without meaning anything: in its own unit, or as a share of itself, whichever is more."""

    absolute: float = 0.0
    share: float = 0.0

    def covers(self, before: Any, now: Any) -> bool:
        """True where the difference of two known figures is noise; texts are never."""
        if before == now:
            return True
        if not isinstance(before, int | float) or not isinstance(now, int | float):
            return False
        return abs(now - before) <= max(self.absolute, self.share * abs(before))


NO_NOISE: Final = Noise()


class MetricFilter(msgspec.Struct, frozen=True):
    """How a filter names the metric: `size` takes K, M, G; `number` does not."""

    help: str
    name: str = ""  # where it differs from the metric's
    aliases: tuple[str, ...] = ()
    kind: Literal["number", "size"] = "number"


class PrometheusName(msgspec.Struct, frozen=True):
    """Name without prefix and unit suffixes, help text, unit, factor to the base unit, kind and own label."""

    name: str
    help: str
    unit: str = ""  # last part of the name; "" for a number of things
    scale: float | None = None
    kind: Literal["gauge", "counter"] = "gauge"
    label: str = ""  # `type="crc"`: distinguishes metrics of one name


class MetricPlot(msgspec.Struct, frozen=True):
    """A curve in `unit`, one of which is `scale` of the record's own; the axis ends at `high` or at the GPU's limit."""

    title: str
    unit: str
    scale: float = 1.0
    high: float | None = None
    limit: str = ""  # field of `gpu_info` that bounds it


class HeatRange(msgspec.Struct, frozen=True):
    """A heat map: from `low` (level 0) to `high` (level 1), in `unit`.

    `apart` is the smallest distance from the peers, in that unit, that is worth a mark.
    """

    name: str
    title: str
    unit: str
    apart: float
    high: float | Callable[[GpuInfo | None], float] = 100.0
    low: float = 0.0
    scale: HeatScale = "load"
    format: Callable[[float], str] = format.whole


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: a field of a record, or `derive`d from a record and the one that describes its entity."""

    name: str  # key of its column
    field: str = ""
    derive: Callable[[Any, Any], Value] | None = None  # (record, `gpu_info` or `node`)
    title: str = ""  # of its column; "": it has none
    format: Callable[[Any], str] = format.percent
    noise: Noise = NO_NOISE
    is_fault: bool = False  # counts faults: above 0 it is drawn as a warning
    filter: MetricFilter | None = None
    prometheus: PrometheusName | None = None
    plot: MetricPlot | None = None
    heat: HeatRange | None = None
    uses: tuple[Use, ...] = ()

    def read(self, record: Any, about: Any = None) -> Any:
        """The value in a record, with `about` for what it is a share of; None where it is not known."""
        if record is None:
            return None
        return getattr(record, self.field) if self.derive is None else self.derive(record, about)


# -- constructors of repeated forms ------------------------------------------------------------------------------------


def _share(name: str, help_: str) -> PrometheusName:
    """Percent become a ratio."""
    return PrometheusName(f"{name}_ratio", help_, "ratio", 0.01)


def _bytes(name: str, help_: str) -> PrometheusName:
    return PrometheusName(f"{name}_bytes", help_, "bytes")


def _bytes_s(name: str, help_: str) -> PrometheusName:
    return PrometheusName(f"{name}_bytes_per_second", help_, "bytes_per_second")


def _counter(name: str, help_: str, label: str = "") -> PrometheusName:
    return PrometheusName(name, help_, kind="counter", label=label)


def _traffic(name: str, title: str, help_: str, prometheus: PrometheusName, *uses: Use) -> Metric:
    """Traffic of a link: in GB/s, as its bandwidth is stated."""
    return Metric(
        name=name, field=f"{name}_bytes_s", title=title, format=format.link_rate, noise=_RATE, prometheus=prometheus,
        uses=(*_CURVE, *uses), filter=MetricFilter(help_), plot=MetricPlot(title, "GB/s", _GB),
    )  # fmt: skip


# -- GPUs --------------------------------------------------------------------------------------------------------------

_LOAD, _RATE, _FEW = Noise(absolute=2.0), Noise(absolute=1e6, share=0.1), Noise(absolute=15.0)
#: Limits of an H100, where the driver reports none.
_POWER_FALLBACK_W, _CLOCK_FALLBACK_MHZ = 700.0, 1980.0
#: One lane, one direction, bytes/s, per generation: transfers/s × encoding (8b/10b, 128b/130b, 242/256 flit) / 8 bits.
#: Packet headers take another few percent.
PCIE_LANE_BYTES_S: Final[dict[int, float]] = {
    1: 2.5e9 * 8 / 10 / 8, 2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8,
}  # fmt: skip
#: Bytes a second of one NVLink in one direction (generations 2 to 4; the fifth has twice as much).
_NVLINK_BYTES_S, _NVLINK_FALLBACK = 25e9, 18
_GIB, _GB = 1 << 30, 1e9
#: Clock event reasons that slow down a GPU with work to do; an idle GPU or a configured limit are none.
THROTTLE_REASONS: Final = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")


def memory_pct(gpu: Gpu | None, info: GpuInfo | None) -> float | None:
    """GPU memory in use, of what the GPU has."""
    total = info.mem_total_bytes if info else None
    used = gpu.mem_used_bytes if gpu else None
    return None if not total or used is None else 100 * used / total


def throttle_pct(gpu: Gpu | None, info: GpuInfo | None = None) -> float | None:
    """Share of the last tick in which heat or the hardware held the clocks down, in percent.

    Where the driver counts no time, 100 while such a reason is given and 0 while none is.
    """
    if gpu is None or (gpu.sm_clock_mhz is None and not gpu.clocks_event_reasons and not gpu.clocks_event_share_pct):
        return None
    shares = [gpu.clocks_event_share_pct[reason] for reason in THROTTLE_REASONS if reason in gpu.clocks_event_share_pct]
    is_given = any(reason in THROTTLE_REASONS for reason in gpu.clocks_event_reasons)
    return max(shares) if shares else 100.0 * is_given


def _sum_of(*fields: str, scale: float | None = None) -> Callable[[Any, Any], Value]:
    """The sum of those fields that are known, in units of `scale`."""

    def add(record: Any, about: Any) -> Value:
        values = [value for field in fields if (value := getattr(record, field)) is not None]
        if not values:
            return None
        total: Value = sum(values) if scale is None else sum(values) / scale
        return total

    return add


def _max_pcie_gb_s(info: GpuInfo | None) -> float:
    if info is None or not info.pcie_width_max or info.pcie_gen_max not in PCIE_LANE_BYTES_S:
        return 2 * 16 * PCIE_LANE_BYTES_S[5] / _GB
    return 2 * info.pcie_width_max * PCIE_LANE_BYTES_S[info.pcie_gen_max] / _GB


def _max_nvlink_gb_s(info: GpuInfo | None) -> float:
    capability = (info.compute_capability if info else None) or ""
    faster = 2 if capability.partition(".")[0] in ("10", "11", "12") else 1
    return 2 * faster * ((info.nvlinks if info else None) or _NVLINK_FALLBACK) * _NVLINK_BYTES_S / _GB


def _gb_s(value: float) -> str:
    """GB/s in three characters: "0.4", "12", "450"."""
    return format.percent(value) if value < 999.5 else "999"


def _ghz(value: float) -> str:
    """MHz as GHz in three characters, "1.9": four would not fit a cell."""
    return f"{value / 1000:.1f}"


def _of_gpu(name: str, field: str, title: str = "", **traits: Any) -> Metric:
    return Metric(name=name, field=field, title=title, **traits)


GPU: Final = (
    _of_gpu("util", "util_pct", "util %", noise=_LOAD, uses=(*_CURVE, "stat", "plot", "page"),
            filter=MetricFilter("GPU utilisation in %, e.g. <10", aliases=("gpu_util",)),
            prometheus=_share("gpu_utilization", "Share of the driver's last sample period with a kernel running."),
            plot=MetricPlot("GPU util", "%", high=100), heat=HeatRange("util", "util", "%", 25)),
    Metric(name="mem", derive=memory_pct, title="mem %", noise=_LOAD,
           filter=MetricFilter("memory in use in %, e.g. >90"), heat=HeatRange("memory", "memory", "%", 15)),
    _of_gpu("used", "mem_used_bytes", "used", format=format.size_compact, noise=Noise(share=0.02),
            uses=(*_CURVE, "stat", "plot", "page"),
            filter=MetricFilter("memory in use, e.g. >40G", aliases=("gpu_mem",), kind="size"),
            prometheus=_bytes("gpu_memory_used", "Memory in use."),
            plot=MetricPlot("memory", "GiB", _GIB, limit="mem_total_bytes")),
    _of_gpu("bus", "mem_util_pct", "mem util %", noise=_LOAD,
            prometheus=_share("gpu_memory_busy", "Share of that period in which memory was read or written.")),
    _of_gpu("power", "power_w", "W", format=format.whole, noise=_FEW, uses=(*_CURVE, "stat", "plot", "page"),
            filter=MetricFilter("W, e.g. >650"), plot=MetricPlot("power", "W", limit="power_limit_w"),
            prometheus=PrometheusName("gpu_power_watts", "Board power, averaged by the driver.", "watts"),
            heat=HeatRange("power", "power", "W", 100,
                           lambda info: (info.power_limit_w if info else None) or _POWER_FALLBACK_W)),
    _of_gpu("energy", "energy_j",
            prometheus=PrometheusName("gpu_energy_joules", "Since the driver was loaded.", "joules", kind="counter")),
    _of_gpu("temp", "temp_c", "°C", format=format.whole, noise=_LOAD, uses=(*_CURVE, "stat", "page"),
            filter=MetricFilter("°C, e.g. >80"), plot=MetricPlot("temperature", "°C"),
            prometheus=PrometheusName("gpu_temperature_celsius", "Temperature of the die.", "celsius"),
            heat=HeatRange("temperature", "temperature", "°C", 10, 90.0, 30.0, "temperature")),
    _of_gpu("mem_temp", "mem_temp_c", "mem °C", format=format.whole, noise=_LOAD,
            filter=MetricFilter("memory temperature in °C"),
            prometheus=PrometheusName("gpu_memory_temperature_celsius", "Temperature of the memory.", "celsius")),
    _of_gpu("fan", "fan_pct", "fan %", format=format.whole, noise=_LOAD,
            prometheus=_share("gpu_fan", "Speed of the fan, of its maximum.")),
    _of_gpu("sm_clock", "sm_clock_mhz", "SM MHz", format=format.whole, noise=_FEW, uses=_CURVE,
            filter=MetricFilter("SM clock in MHz, e.g. <1500", "clock", ("sm_clock",)),
            prometheus=PrometheusName("gpu_sm_clock_hertz", "SM clock.", "hertz", 1e6),
            plot=MetricPlot("SM clock", "MHz", limit="max_sm_clock_mhz"),
            heat=HeatRange("clock", "SM clock", "GHz", 150,
                           lambda info: (info.max_sm_clock_mhz if info else None) or _CLOCK_FALLBACK_MHZ,
                           format=_ghz)),
    _of_gpu("mem_clock", "mem_clock_mhz", "mem MHz", format=format.whole, noise=_FEW,
            prometheus=PrometheusName("gpu_memory_clock_hertz", "Memory clock.", "hertz", 1e6)),
    _of_gpu("pstate", "pstate", "P", format=format.integer),
    Metric(name="held", derive=throttle_pct, title="throttle %", noise=_LOAD, is_fault=True,
           filter=MetricFilter("time throttled in %", "throttle", ("held",)),
           heat=HeatRange("throttle", "throttling", "% of time", 5, scale="temperature")),
    _of_gpu("sm", "sm_pct", "SM %", noise=_LOAD, uses=_CURVE, filter=MetricFilter("SM activity in %"),
            prometheus=_share("gpu_sm_active", "Share of busy SMs (GPM)."),
            plot=MetricPlot("SM activity", "%", high=100)),
    _of_gpu("occupancy", "sm_occupancy_pct", "occupancy %", noise=_LOAD,
            prometheus=_share("gpu_sm_occupancy", "Warps on the multiprocessors, of those that fit (GPM).")),
    _of_gpu("tensor", "tensor_pct", "tensor %", noise=_LOAD, uses=_CURVE,
            filter=MetricFilter("tensor core activity in %"),
            prometheus=_share("gpu_tensor_active", "Share of the time in which tensor cores worked (GPM)."),
            plot=MetricPlot("tensor cores", "%", high=100)),
    _of_gpu("dram", "dram_pct", "DRAM %", noise=_LOAD, filter=MetricFilter("DRAM bandwidth in %"),
            prometheus=_share("gpu_dram_active", "Memory bandwidth, of what the memory can do (GPM).")),
    _of_gpu("encoder", "encoder_pct", "enc %", noise=_LOAD),
    _of_gpu("decoder", "decoder_pct", "dec %", noise=_LOAD),
    Metric(name="nvlink", derive=_sum_of("nvlink_rx_bytes_s", "nvlink_tx_bytes_s", scale=_GB),
           heat=HeatRange("nvlink", "NVLink RX + TX", "GB/s", 20, _max_nvlink_gb_s, format=_gb_s)),
    _traffic("nvlink_rx", "NVLink RX", "NVLink RX in bytes/s, e.g. >10G for 10 GB/s",
             _bytes_s("gpu_nvlink_receive", "NVLink payload to the GPU, all links."), "page"),
    _traffic("nvlink_tx", "NVLink TX", "NVLink TX in bytes/s",
             _bytes_s("gpu_nvlink_transmit", "NVLink payload from the GPU, all links.")),
    Metric(name="pcie", derive=_sum_of("pcie_rx_bytes_s", "pcie_tx_bytes_s", scale=_GB),
           heat=HeatRange("pcie", "PCIe RX + TX", "GB/s", 4, _max_pcie_gb_s, format=_gb_s)),
    _traffic("pcie_rx", "PCIe RX", "PCIe RX in bytes/s",
             _bytes_s("gpu_pcie_receive", "PCIe traffic to the GPU.")),
    _traffic("pcie_tx", "PCIe TX", "PCIe TX in bytes/s",
             _bytes_s("gpu_pcie_transmit", "PCIe traffic from the GPU.")),
    _of_gpu("ecc", "ecc_uncorrected_volatile", "ECC", format=format.integer, is_fault=True,
            filter=MetricFilter("uncorrected ECC errors, e.g. >0")),
    _of_gpu("ecc_corrected", "ecc_corrected_volatile", "ECC corr", format=format.integer),
    *(_of_gpu(f"ecc_life_{kind}", f"ecc_{kind}_aggregate",
              prometheus=_counter("gpu_ecc_errors", "Memory errors, lifetime.", f'type="{kind}"'))
      for kind in ("corrected", "uncorrected")),
    Metric(name="rows", derive=_sum_of("remapped_rows_uncorrected", "retired_pages_uncorrected"),
           title="remapped rows", format=format.integer, is_fault=True),
    *(_of_gpu(f"rows_{kind}", f"remapped_rows_{kind}",
              prometheus=_counter("gpu_remapped_rows", "Remapped memory rows, by cause.", f'type="{kind}"'))
      for kind in ("corrected", "uncorrected")),
    _of_gpu("replays", "pcie_replays", "replays", format=format.integer,
            filter=MetricFilter("PCIe replays"),
            prometheus=_counter("gpu_pcie_replays", "PCIe replays: retransmitted packets.")),
    Metric(name="nvlink_errors", title="NVLink errs", format=format.integer, is_fault=True,
           derive=_sum_of("nvlink_crc_errors", "nvlink_replay_errors", "nvlink_recovery_errors")),
    *(_of_gpu(f"nvlink_{kind}", f"nvlink_{kind}_errors",
              prometheus=_counter("gpu_nvlink_errors", "Errors of all NVLinks of the GPU.", f'type="{kind}"'))
      for kind in ("crc", "replay", "recovery")),
)  # fmt: skip
#: Limits in `gpu_info`.
GPU_LIMITS: Final = (
    _of_gpu("mem_total", "mem_total_bytes", prometheus=_bytes("gpu_memory", "Total GPU memory.")),
    _of_gpu("power_limit", "power_limit_w",
            prometheus=PrometheusName("gpu_power_limit_watts", "Enforced power limit.", "watts")),
    _of_gpu("sm_clock_max", "max_sm_clock_mhz",
            prometheus=PrometheusName("gpu_sm_clock_max_hertz", "Maximum SM clock.", "hertz", 1e6)),
)  # fmt: skip
#: Names of metrics in the order in which the heat map offers them.
_HEAT: Final = ("util", "mem", "power", "temp", "sm_clock", "nvlink", "pcie", "held")
HEAT: Final = tuple(metric for name in _HEAT for metric in GPU if metric.name == name)

# -- nodes -------------------------------------------------------------------------------------------------------------

_NODE_RATE: Final = Noise(absolute=4096.0, share=0.1)


def node_memory_pct(host: Host | None, node: Node | None) -> float | None:
    """Node memory in use, of what the node has."""
    if host is None or node is None or host.mem_used_bytes is None or not node.mem_total_bytes:
        return None
    return 100 * host.mem_used_bytes / node.mem_total_bytes


def _pressure(name: str, resource: str, title: str, what: str, *uses: Use) -> Metric:
    help_ = "Share of the last 10 s in which some task waited (PSI)."
    return Metric(
        name=name, field=f"{name}_pct", title=title, noise=_LOAD, uses=uses,
        filter=MetricFilter(f"{what} stall (PSI) in %"),
        prometheus=PrometheusName("node_pressure_ratio", help_, "ratio", 0.01, label=f'resource="{resource}"'),
    )  # fmt: skip


def _node_rate(name: str, field: str, title: str, help_: str, prometheus: PrometheusName, alias: str = "") -> Metric:
    aliases = (alias,) if alias else ()
    uses: tuple[Use, ...] = ("history", "trace") if alias else ()
    return Metric(
        name=name, field=field, title=title, format=format.size_compact, noise=_NODE_RATE, uses=uses,
        filter=MetricFilter(help_, aliases=aliases, kind="size"), prometheus=prometheus,
    )  # fmt: skip


HOST: Final = (
    Metric(name="cpu", field="cpu_pct", title="CPU %", noise=_LOAD, uses=_CURVE,
           filter=MetricFilter("CPU utilisation in %, e.g. >90"),
           prometheus=_share("node_cpu_utilization", "All CPUs together.")),
    Metric(name="load_1m", field="load_1m", prometheus=PrometheusName("node_load1", "Load average of one minute.")),
    Metric(name="mem", derive=node_memory_pct, title="mem %", noise=_LOAD,
           filter=MetricFilter("memory in use in %, e.g. >90")),
    Metric(name="mem_used", field="mem_used_bytes", uses=_CURVE,
           prometheus=_bytes("node_memory_used", "Total minus available.")),
    Metric(name="mem_available", field="mem_available_bytes",
           prometheus=_bytes("node_memory_available", "Available memory.")),
    Metric(name="swap", field="swap_used_bytes", prometheus=_bytes("node_swap_used", "Swap in use.")),
    _pressure("cpu_stall", "cpu", "CPU stall", "CPU", "history", "diff"),
    _pressure("mem_stall", "memory", "mem stall", "memory"),
    _pressure("io_stall", "io", "I/O stall", "I/O", *_CURVE),
    _node_rate("read", "disk_read_bytes_s", "read/s", "disk reads in bytes/s, e.g. >100M",
               _bytes_s("node_disk_read", "Whole physical disks.")),
    _node_rate("write", "disk_write_bytes_s", "write/s", "disk writes in bytes/s",
               _bytes_s("node_disk_write", "Whole physical disks.")),
    _node_rate("rx", "net_rx_bytes_s", "RX/s", "network RX in bytes/s",
               _bytes_s("node_network_receive", "Physical interfaces."), "in"),
    _node_rate("tx", "net_tx_bytes_s", "TX/s", "network TX in bytes/s",
               _bytes_s("node_network_transmit", "Physical interfaces."), "out"),
    Metric(name="uptime", field="uptime_s",
           prometheus=PrometheusName("node_uptime_seconds", "Since the node was started.", "seconds")),
    Metric(name="unreadable", field="unreadable",
           prometheus=PrometheusName("node_unreadable_processes",
                                     "Python processes of other users that the agent may not read.")),
)  # fmt: skip
AGENT: Final = (
    Metric(name="agent", field="cpu_pct", title="agent %", filter=MetricFilter("CPU use of the agent in % of a core"),
           prometheus=_share("agent_cpu", "CPU use of the agent, of one core.")),
    Metric(name="agent_rss", field="rss_bytes", title="agent RSS", format=format.size_compact,
           prometheus=_bytes("agent_resident_memory", "Resident memory of the agent.")),
    Metric(name="agent_tx", field="tx_bytes_s", format=format.size_compact,
           prometheus=_bytes_s("agent_transmit", "Data rate from the agent to its console.")),
)  # fmt: skip

# -- network ports -----------------------------------------------------------------------------------------------------

NIC: Final = (
    Metric(name="rx", field="rx_bytes_s", uses=("history", "diff"),
           prometheus=_bytes_s("nic_receive", "Traffic to the port.")),
    Metric(name="tx", field="tx_bytes_s", uses=("history", "diff"),
           prometheus=_bytes_s("nic_transmit", "Traffic from the port.")),
    Metric(name="rate", field="rate_bytes_s", prometheus=_bytes_s("nic_rate", "Speed of the port.")),
)  # fmt: skip

# -- ranks -------------------------------------------------------------------------------------------------------------

RANK: Final = (
    Metric(name="step", field="step", title="step", format=format.count,
           filter=MetricFilter("step, e.g. <18204"),
           prometheus=PrometheusName("rank_step", "The watched variable that counts steps.")),
    Metric(name="cpu", field="cpu_pct", title="CPU %", noise=_LOAD, uses=_CURVE,
           filter=MetricFilter("CPU use in % of a core, e.g. <5"),
           prometheus=_share("rank_cpu", "CPU of all threads of the rank, of one core.")),
    Metric(name="rss", field="rss_bytes", title="RSS", format=format.size_compact, noise=Noise(share=0.01),
           uses=_CURVE, filter=MetricFilter("resident memory, e.g. >2.5G", kind="size"),
           prometheus=_bytes("rank_resident_memory", "Memory of the rank's process.")),
    Metric(name="threads", field="threads", title="threads", format=format.integer,
           filter=MetricFilter("thread count", aliases=("thr",))),
    Metric(name="ctx", field="ctx_switches_s", title="ctxsw/s", format=format.rate, noise=Noise(share=0.1),
           filter=MetricFilter("context switches per second, e.g. <1k")),
)  # fmt: skip

# -- clocks ------------------------------------------------------------------------------------------------------------

_BOUND: Final = Noise(share=0.2)


def _signed_micro(value: int | None) -> str:
    return format.micro(value, signed=True)


def _ppm(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:+.2f}"


CLOCK: Final = (
    Metric(name="offset", field="offset_ns", title="offset µs", format=_signed_micro,
           noise=Noise(absolute=2000.0, share=0.1),
           filter=MetricFilter("offset from the reference in µs, e.g. >500"),
           prometheus=PrometheusName("clock_offset_seconds", "CLOCK_REALTIME of the node minus common time.", "seconds",
                                     1e-9)),
    Metric(name="bound", field="bound_ns", title="± µs", format=format.micro, noise=_BOUND,
           filter=MetricFilter("error bound in µs, e.g. >100"),
           prometheus=PrometheusName("clock_bound_seconds", "Error bound of common time.", "seconds",
                                     1e-9)),
    Metric(name="drift", field="drift_ppm", title="drift ppm", format=_ppm, noise=Noise(absolute=0.5),
           filter=MetricFilter("drift in ppm, e.g. >20"),
           prometheus=PrometheusName(
               "clock_drift_ratio", "Drift of the node's clock against common time.", "ratio", 1e-6)),
    Metric(name="rtt", field="min_rtt_ns", title="rtt µs", format=format.micro, noise=_BOUND,
           filter=MetricFilter("minimum round-trip time in µs")),
    Metric(name="edges", field="edges", title="edges", format=format.integer),
    Metric(name="repeat", field="repeat_ns", title="repeatability", format=format.micro, noise=_BOUND),
)  # fmt: skip
GPU_CLOCK: Final = tuple(
    Metric(name=field, field=field, uses=("trace",)) for field in ("ahead_ns", "bound_ns", "drift_ppm")
)

#: By kind of record.
CATALOGUE: Final[dict[type[Record], tuple[Metric, ...]]] = {
    Gpu: GPU, GpuInfo: GPU_LIMITS, Host: HOST, AgentCost: AGENT, Nic: NIC, RankStat: RANK, ClockNode: CLOCK,
    GpuClock: GPU_CLOCK,
}  # fmt: skip
#: Metrics that the store keeps over time, per kind: fields of the record of that name.
HISTORY: Final[dict[str, tuple[str, ...]]] = {
    str(struct.__struct_config__.tag): tuple(metric.field for metric in CATALOGUE[struct] if "history" in metric.uses)
    for struct in (Host, Gpu, Nic, RankStat)
}  # fmt: skip
#: Figures that the store keeps over time beside them and that are not fields: by kind, the family and its metrics.
HISTORY_DERIVED: Final[dict[str, tuple[str, tuple[Metric, ...]]]] = {
    "gpu": ("gpu_throttle", tuple(metric for metric in GPU if metric.name == "held")),
}


@cache
def fields_for(struct: type[Record], use: Use) -> tuple[str, ...]:
    """Fields of a kind of record that appear in such an output, in the catalogue's order."""
    return tuple(metric.field for metric in CATALOGUE.get(struct, ()) if use in metric.uses)


def by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Metrics by their names."""
    return {metric.name: metric for metric in metrics}
