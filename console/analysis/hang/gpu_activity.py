"""What the GPU of each rank does, judged against those of the others: computing, spinning in a collective, idle.

Utilisation alone says nothing: a kernel that waits in a collective occupies the GPU at 100 %. But it draws a fraction
of the power of one that computes, and moves no memory. Nor does a collective that stands still move data between GPUs:
one whose NVLinks or whose node's RDMA ports carry traffic may be in a collective, but in one that progresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

GpuState = Literal["computing", "spinning", "idle", "unknown"]

#: Percent. A kernel is resident for the whole sample period; none is.
BUSY_PCT: Final = 90.0
IDLE_PCT: Final = 5.0
#: Power relative to that of the job's GPU that draws most, below which a resident kernel does not compute. A spinning
#: NCCL kernel occupies a few SMs; no GPU was at hand to measure it, so the range between the two is `unknown`.
SPINS_SHARE: Final = 0.4
COMPUTES_SHARE: Final = 0.75
#: Percent of memory bandwidth, and of busy SMs, of a kernel that only polls.
POLLS_DRAM_PCT: Final = 3.0
POLLS_SM_PCT: Final = 30.0
#: Bytes per second over NVLink or RDMA ports from which data moves: more than keepalives and subnet management.
MOVES_BYTES_S: Final = 1e6


class GpuFigures(msgspec.Struct, frozen=True):
    """Newest figures of one rank's GPU; None is unknown."""

    name: str  # node019:gpu4
    util_pct: float | None = None
    power_w: float | None = None
    sm_pct: float | None = None
    dram_pct: float | None = None
    nvlink_bytes_s: float | None = None  # received and sent
    rdma_bytes_s: float | None = None  # received and sent, all ports of its node

    @property
    def is_transferring(self) -> bool | None:
        """Whether data moves between it and others; None if neither its NVLinks nor RDMA ports are known."""
        rates = [rate for rate in (self.nvlink_bytes_s, self.rdma_bytes_s) if rate is not None]
        return any(rate >= MOVES_BYTES_S for rate in rates) if rates else None


def gpu_states(figures: Mapping[int, GpuFigures]) -> dict[int, GpuState]:
    """The state of each rank's GPU, by rank. All unknown where no two GPUs can be compared."""
    powers = [gpu.power_w for gpu in figures.values() if gpu.power_w is not None]
    if len(powers) < 2:
        return dict.fromkeys(figures, "unknown")
    lowest, highest = min(powers), max(powers)
    return {rank: _state(gpu, lowest, highest) for rank, gpu in figures.items()}


def _state(gpu: GpuFigures, lowest_w: float, highest_w: float) -> GpuState:
    if gpu.util_pct is None:
        return "unknown"
    if gpu.util_pct <= IDLE_PCT:
        return "idle"
    if gpu.util_pct < BUSY_PCT:
        return "unknown"
    if gpu.is_transferring:
        return "unknown"  # its collective, if it is in one, progresses
    if gpu.sm_pct is not None and gpu.dram_pct is not None:
        polls = gpu.sm_pct <= POLLS_SM_PCT and gpu.dram_pct <= POLLS_DRAM_PCT
        if polls:
            return "spinning"
        if gpu.dram_pct > 3 * POLLS_DRAM_PCT or gpu.sm_pct > 2 * POLLS_SM_PCT:
            return "computing"
    if gpu.power_w is None or highest_w <= 0 or lowest_w > COMPUTES_SHARE * highest_w:
        return "unknown"  # all alike: nothing to compare with
    if gpu.power_w >= COMPUTES_SHARE * highest_w:
        return "computing"
    return "spinning" if gpu.power_w <= SPINS_SHARE * highest_w else "unknown"
