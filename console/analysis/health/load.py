"""GPUs under load: throttled clocks, stragglers among peers, memory imbalance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from ...config.sections import HealthConfig
from ...records import Confidence
from ...text.format import size
from ..finding import FindingDraft
from .conditions import HELD_BY
from .entities import GpuHealth, about_gpu, at, figure
from .state import HealthState

#: Share of the window in which a GPU must have worked for its load to count.
_LEAST_WORK: Final = 1 / 3
#: Seconds of work throttled all the time after which it does not count how long the GPU has worked.
_HOLD_S: Final = 5.0
#: Share of outliers above which peers are not comparable (pipeline stages).
_MOST_OUTLIERS: Final = 1 / 4
#: Outlier threshold: four standard deviations, estimated by the median absolute deviation (factor 1.4826).
_SPREADS: Final = 4 * 1.4826
_WORDS: Final = {
    "sw_thermal_slowdown": "temperature", "hw_thermal_slowdown": "temperature",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "hardware slowdown (temperature, power brake or power supply)",
}  # fmt: skip


def gpu_throttle(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Clocks throttled by temperature or hardware for a share of the busy time.

    Power caps do not count. The GPU must have been busy for a third of the window, or throttled all the time for 5 s.
    """
    for gpu in facts.gpus():
        busy_s = gpu.window.total("busy")
        least_s = _LEAST_WORK * limits.window_s
        if busy_s < (least_s if gpu.held_s("throttled") < _HOLD_S else min(_HOLD_S, least_s)):
            continue
        shares = {reason: 100 * gpu.window.total(f"held.{reason}") / busy_s for reason in HELD_BY}
        reason = max(shares, key=lambda name: shares[name])
        if shares[reason] >= limits.throttle_share_pct:
            yield _throttled(gpu, shares, reason, limits)


def _throttled(gpu: GpuHealth, shares: Mapping[str, float], reason: str, limits: HealthConfig) -> FindingDraft:
    text = (f"clocks throttled: {_WORDS[reason]} ({reason}) for {min(100.0, shares[reason]):.0f} % of its busy time"
            f" in the last {figure(limits.window_s)} s")  # fmt: skip
    evidence = [at(gpu, f"gpu.clocks_event_share_pct.{name}", round(min(100.0, share)))
                for name, share in shares.items() if share >= limits.throttle_share_pct]  # fmt: skip
    now, info = gpu.gpu, gpu.info
    if now is not None and now.temp_c is not None:
        text += f"; {figure(now.temp_c)} °C"
        evidence.append(at(gpu, "gpu.temp_c", now.temp_c))
    if now is not None and now.sm_clock_mhz is not None and info is not None and info.max_sm_clock_mhz is not None:
        text += f"; SM clock {figure(now.sm_clock_mhz)} of {figure(info.max_sm_clock_mhz)} MHz"
        evidence.append(at(gpu, "gpu.sm_clock_mhz", now.sm_clock_mhz))
    return about_gpu(gpu, "gpu_throttle", "warning", text, evidence)


def gpu_straggler(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs whose clock or power deviates from their peers: GPUs of the same model that work for the same job.

    The deviation exceeds the limit and four times the usual spread. No finding with too few peers or too many
    outliers. A low clock is likely the cause; power may also mean that the others wait for it.
    """
    for (job, _), gpus in _crews(facts, limits).items():
        if len(gpus) < limits.peers:
            continue
        deviations: dict[int, list[_Far]] = defaultdict(list)  # by position in `gpus`
        for name, over, unit, limit in (
            ("clock", "clocked", "MHz", limits.straggler_clock_pct),
            ("power", "powered", "W", limits.straggler_power_pct),
        ):
            means = {place: mean for place, gpu in enumerate(gpus) if (mean := gpu.window.mean(name, over)) is not None}
            for place, (value, usual) in _far(means, limit, limits.peers, only_below=name == "clock").items():
                words = f"{_WHAT[name]} {figure(value)} {unit}, its {len(means) - 1} peers {figure(usual)} {unit}"
                deviations[place].append(_Far(name, value, words))
        for place in sorted(deviations):
            yield _straggler(gpus[place], job, deviations[place], limits)


_WHAT: Final = {"clock": "SM clock", "power": "power"}
_FIELD: Final = {"clock": "gpu.sm_clock_mhz", "power": "gpu.power_w"}


class _Far(NamedTuple):
    """One value of a GPU that deviates from its peers."""

    name: str
    value: float
    words: str


def _straggler(gpu: GpuHealth, job: str, deviations: Sequence[_Far], limits: HealthConfig) -> FindingDraft:
    text = f"deviates from its peers under the same load ({job}): {'; '.join(far.words for far in deviations)}"
    evidence = [at(gpu, _FIELD[far.name], far.value) for far in deviations]
    slow = any(far.name == "clock" for far in deviations)
    text += f" (average while busy, last {figure(limits.window_s)} s)"
    confidence: Confidence = "likely" if slow else "possible"
    return about_gpu(gpu, "gpu_straggler", "warning", text, evidence, confidence=confidence)


def _crews(facts: HealthState, limits: HealthConfig) -> dict[tuple[str, str | None], list[GpuHealth]]:
    """Busy GPUs by the one job that uses them and by model."""
    crews: dict[tuple[str, str | None], list[GpuHealth]] = defaultdict(list)
    least_s = _LEAST_WORK * limits.window_s
    for gpu in facts.gpus():
        if not gpu.ranks or gpu.info is None or gpu.window.total("busy") < least_s:
            continue
        jobs = {job for job, _, _ in gpu.ranks}
        if len(jobs) == 1:
            crews[jobs.pop(), gpu.info.name].append(gpu)
    return crews


def _far(
    values: Mapping[int, float], limit_pct: float, peers: int, *, only_below: bool
) -> dict[int, tuple[float, float]]:
    """{key: (value, median)} of the outliers."""
    if len(values) < peers:
        return {}
    usual = median(values.values())
    spread = median(abs(value - usual) for value in values.values())
    most = max(limit_pct / 100 * usual, _SPREADS * spread)
    far = {
        key: (value, usual)
        for key, value in values.items()
        if (value < usual or not only_below) and abs(value - usual) > most
    }
    return far if len(far) <= max(1, _MOST_OUTLIERS * len(values)) else {}


def gpu_memory_imbalance(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Ranks whose peak GPU memory is far above that of the other ranks of their job.

    Only GPUs with a single rank count. No finding with too few such ranks, or where many differ (pipeline stages).
    """
    jobs: dict[tuple[str, int], dict[int, GpuHealth]] = defaultdict(dict)
    for gpu in facts.gpus():
        ranks = gpu.ranks
        if len(ranks) == 1 and gpu.window.peak("memory") is not None and gpu.info and gpu.info.mem_total_bytes:
            job, attempt, rank = next(iter(ranks))
            jobs[job, attempt][rank] = gpu
    for (job, _), gpus in jobs.items():
        if len(gpus) >= limits.peers:
            yield from _uneven(job, gpus, limits)


def _uneven(job: str, gpus: Mapping[int, GpuHealth], limits: HealthConfig) -> Iterator[FindingDraft]:
    peaks = {rank: gpu.window.peak("memory") or 0.0 for rank, gpu in gpus.items()}
    usual = median(peaks.values())
    totals = {rank: float(gpu.info.mem_total_bytes or 0) for rank, gpu in gpus.items() if gpu.info}
    far = [rank for rank in peaks if peaks[rank] - usual > limits.memory_imbalance_pct / 100 * totals[rank]]
    if len(far) > max(1, _MOST_OUTLIERS * len(gpus)):
        return
    means = {rank: gpu.window.mean("memory", "sized") for rank, gpu in gpus.items()}
    averages = [mean for mean in means.values() if mean is not None]
    for rank in sorted(far):
        gpu, mean = gpus[rank], means[rank]
        text = (f"rank {rank} of {job} uses {size(peaks[rank])} at peak, its {len(gpus) - 1} peers"
                f" {size(usual)}")  # fmt: skip
        if mean is not None:
            text += f"; average {size(mean)}, peers {size(median(averages))}"
        text += f"; GPU memory {size(totals[rank])}"
        evidence = [at(gpu, "gpu.mem_used_bytes", int(peaks[rank]))]
        yield about_gpu(gpu, "gpu_memory_imbalance", "warning", text, evidence, confidence="likely",
                        rank=f"rank {rank}")  # fmt: skip
