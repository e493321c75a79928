"""GPUs, as their driver reports them (names follow nvml.h). `simulated` is true for figures that no GPU produced."""

from __future__ import annotations

from .base import Count, Record


class GpuInfo(Record, tag="gpu_info", kw_only=True):
    """Who a GPU is and what its limits are, at the start and on change."""

    index: Count
    uuid: str
    name: str | None = None
    pci_bus_id: str | None = None
    mem_total_bytes: Count | None = None
    power_limit_w: float | None = None
    simulated: bool = False


class Gpu(Record, tag="gpu", kw_only=True):
    """One GPU at one tick. A figure the driver does not support is None."""

    index: Count
    uuid: str
    util_pct: float | None = None  # share of the driver's last sample period with a kernel running
    mem_util_pct: float | None = None
    mem_used_bytes: Count | None = None
    power_w: float | None = None
    temp_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    pcie_rx_bytes_s: float | None = None
    pcie_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None
    nvlink_tx_bytes_s: float | None = None
    clocks_event_reasons: tuple[str, ...] = ()
    simulated: bool = False
