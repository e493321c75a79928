"""Texts of GPU findings: values with units, SIM prefix for simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import FindingDraft
from .state import GpuHealth

if TYPE_CHECKING:
    from ...records import Confidence, Severity


def about_gpu(
    gpu: GpuHealth, id: str, severity: Severity, text: str, evidence: list[str], *,
    confidence: Confidence = "certain", rank: str = "", parts: tuple[str, ...] = (),
) -> FindingDraft:  # fmt: skip
    """A finding on one GPU; `evidence` lines are "record.field value". `rank` becomes a culprit, too."""
    sim = "SIM " if gpu.is_simulated else ""
    return FindingDraft(
        id, severity, confidence, (rank, gpu.name) if rank else (gpu.name,), f"{sim}{gpu.name}: {text}",
        tuple(f"{sim}{line}" for line in evidence), parts=parts,
    )  # fmt: skip


def at(gpu: GpuHealth, field: str, value: object) -> str:
    """Evidence line: `gpu.temp_c node019:gpu4 91`."""
    return f"{field} {gpu.name} {figure(value)}"


def figure(value: object) -> str:
    """A number with thousands separators and at most one decimal."""
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def times(count: int) -> str:
    """ ", 3 times"; nothing for once."""
    return f", {count} times" if count > 1 else ""
