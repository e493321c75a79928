"""The GPU of each rank and its newest figures, for ranks that use exactly one."""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis.hang.gpu_activity import GpuFigures
from ..core.store import GpuNow, Store

#: (job, attempt, rank).
RankKey = tuple[str, int, int]


def rank_gpus(store: Store) -> Iterator[tuple[RankKey, str, GpuNow]]:
    """(rank, name of its GPU, newest records) of each rank that uses exactly one GPU."""
    uses_by_rank: dict[RankKey, list[tuple[str, str]]] = {}
    for process in store.gpu_processes.values():
        if process.job is not None and process.rank is not None:
            key = (process.job, process.attempt or 0, process.rank)
            uses_by_rank.setdefault(key, []).append((process.node, process.uuid))
    for key, uses in uses_by_rank.items():
        now = store.gpus.get(uses[0]) if len(set(uses)) == 1 else None
        if now is not None and now.gpu is not None:
            index = now.info.index if now.info else now.gpu.index
            yield key, f"{uses[0][0]}:gpu{index}", now


def gpu_figures(store: Store, job: str, attempt: int) -> dict[int, GpuFigures]:
    """What the hang analysis needs of the GPU of each rank of a job, by rank."""
    rdma = _rdma_rates(store)
    figures = {}
    for (of_job, of_attempt, rank), name, now in rank_gpus(store):
        if (of_job, of_attempt) == (job, attempt) and now.gpu is not None:
            gpu = now.gpu
            figures[rank] = GpuFigures(
                name, gpu.util_pct, gpu.power_w, gpu.sm_pct, gpu.dram_pct,
                _sum(gpu.nvlink_rx_bytes_s, gpu.nvlink_tx_bytes_s), rdma.get(gpu.node),
            )  # fmt: skip
    return figures


def _rdma_rates(store: Store) -> dict[str, float]:
    """Bytes per second through the RDMA ports of each node that reports any."""
    rates: dict[str, float] = {}
    for port in store.nics.values():
        moved = _sum(port.rx_bytes_s, port.tx_bytes_s) if port.rdma else None
        if moved is not None:
            rates[port.node] = rates.get(port.node, 0.0) + moved
    return rates


def _sum(received: float | None, sent: float | None) -> float | None:
    return None if received is None or sent is None else received + sent
