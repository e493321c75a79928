"""Errors that a GPU, its memory or its driver tells of itself: XIDs, ECC, remapping, and a GPU that is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...text.format import plural
from ..finding import FindingDraft
from .state import GpuHealth, HealthState, Xid
from .wording import about_gpu, at, figure, times

if TYPE_CHECKING:
    from ...config.sections import HealthConfig
    from ...records import Severity


def gpu_lost(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """A GPU that the driver cannot reach any more, or could not open from the beginning."""
    for gpu in facts.all_gpus():
        if gpu.info is not None and gpu.info.lost is not None and gpu.info.parent is None:
            text = f"the driver cannot reach it any more: {gpu.info.lost}; drain the node and reboot it"
            yield about_gpu(gpu, "gpu_lost", "error", text, [at(gpu, "gpu_info.lost", gpu.info.lost)])
    for node in facts.nodes.values():
        for index, event in node.unopened.items():
            name = f"{node.name}:gpu{index}"
            evidence = (f"gpu_event.lost {name} {event.text}",)
            yield FindingDraft("gpu_lost", "error", "certain", (name,), f"{name}: {event.text}", evidence)


def gpu_xid(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """XIDs, and what the driver wants done to recover a GPU; one finding a GPU.

    One after which the GPU wants a reset or a repair is an error, and stands until the GPU was reset or the node
    started again; any other is a warning for `xid_s`. One that only accompanies others (45) is none.
    """
    for gpu in facts.all_gpus():
        told = [(xid.event.severity, _words(xid), _of(xid, gpu.name, number))
                for number, xid in sorted(gpu.xids.items()) if _stands(facts, xid, limits.xid_s)]  # fmt: skip
        action = gpu.gpu.recovery_action if gpu.gpu else None
        if action not in (None, "none") and not (gpu.info and gpu.info.lost):
            words = f"the driver wants this to recover it: {action}; drain the node, then do so"
            told.append(("error", words, at(gpu, "gpu.recovery_action", action)))
        if told:
            severity, text = _worst(told), "; ".join(words for _, words, _ in told)
            yield about_gpu(gpu, "gpu_xid", severity, text, [evidence for _, _, evidence in told])
    for node in facts.nodes.values():
        for (place, number), xid in node.xids_elsewhere.items():
            if _stands(facts, xid, limits.xid_s):
                name = f"{node.name}:{place}"
                text = f"{name} (no GPU that NVML knows): {_words(xid)}"
                evidence = (_of(xid, name, number),)
                yield FindingDraft("gpu_xid", xid.event.severity, "certain", (name, f"XID {number}"), text, evidence)


def _worst(told: Sequence[tuple[Severity, str, str]]) -> Severity:
    return "error" if any(severity == "error" for severity, _, _ in told) else "warning"


def _words(xid: Xid) -> str:
    """What it means, how often it came, and what to do."""
    return f"{xid.event.text}{times(xid.count)}" + (f" ({xid.event.try_})" if xid.event.try_ else "")


def _stands(facts: HealthState, xid: Xid, xid_s: float) -> bool:
    if xid.event.severity == "error":
        return True
    return xid.event.severity == "warning" and facts.newest - xid.event.rx <= xid_s * 1e9


def _of(xid: Xid, name: str, number: int) -> str:
    word = f" {xid.event.sub_code}" if xid.event.sub_code else ""
    return f"gpu_event.xid {name} {number}{word} (seq {xid.event.seq}, {xid.event.source})"


def gpu_ecc(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Memory errors: an error where some could not be corrected since the driver was loaded, or a row not be remapped.

    A warning where corrected ones come fast. Uncorrected ones of the GPU's past life alone are no finding: they were
    dealt with at a reset.
    """
    for gpu in facts.gpus():
        if gpu.gpu is None:
            continue
        uncorrected = gpu.gpu.ecc_uncorrected_volatile
        if uncorrected:
            text = f"{plural(uncorrected, 'memory error')} could not be corrected; results may be wrong, reset the GPU"
            yield about_gpu(gpu, "gpu_ecc", "error", text, [at(gpu, "gpu.ecc_uncorrected_volatile", uncorrected)])
        elif gpu.gpu.remap_failed:
            text = "a faulty row of its memory could not be remapped; the GPU needs service"
            yield about_gpu(gpu, "gpu_ecc", "error", text, [at(gpu, "gpu.remap_failed", True)])
        else:
            yield from _corrected(gpu, limits)


def _corrected(gpu: GpuHealth, limits: HealthConfig) -> Iterator[FindingDraft]:
    gained = max(gpu.window.total(f"grown.ecc_corrected_{kind}") for kind in ("volatile", "aggregate"))
    most = limits.ecc_corrected_per_min * limits.window_s / 60
    if gained > most:
        text = f"{plural(gained, 'corrected memory error')} within {figure(limits.window_s)} s, {figure(most)} may be"
        yield about_gpu(gpu, "gpu_ecc", "warning", text, [at(gpu, "gpu.grown.ecc_corrected_volatile", gained)])


def gpu_remap_pending(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Faulty memory that will be taken out of use at the next reset: rows (Ampere and newer) or pages (before)."""
    for gpu in facts.gpus():
        fields = [field for field in _PENDING if gpu.gpu is not None and getattr(gpu.gpu, field)]
        if fields:
            text = f"{_PENDING[fields[0]]} of its memory waits for a reset to be taken out of use"
            evidence = [at(gpu, f"gpu.{field}", True) for field in fields]
            yield about_gpu(gpu, "gpu_remap_pending", "warning", text, evidence)


_PENDING = {"remap_pending": "a faulty row", "retire_pending": "a faulty page"}
