"""Errors that the driver reports of a GPU: XIDs, ECC, row remapping, and a lost GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...config.sections import HealthConfig
from ...records import Gpu, GpuInfo, Severity
from ...text.format import plural
from ..finding import FindingDraft
from .entities import GpuHealth, Xid, about_gpu, at, figure, times
from .state import HealthState


def gpu_lost(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs that the driver lost, or could not open."""
    for gpu in facts.all_gpus():
        if gpu.info is not None and gpu.info.lost is not None and gpu.info.parent is None:
            text = f"lost by the driver: {gpu.info.lost}; drain the node and reboot it"
            yield about_gpu(gpu, "gpu_lost", "error", text, [at(gpu, "gpu_info.lost", gpu.info.lost)])
    for node in facts.nodes.values():
        for index, event in node.unopened.items():
            name = f"{node.name}:gpu{index}"
            evidence = (f"gpu_event.lost {name} {event.text}",)
            yield FindingDraft("gpu_lost", "error", "certain", (name,), f"{name}: {event.text}", evidence)


def gpu_xid(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """XIDs and recovery actions; one finding per GPU.

    An XID that requires a reset or a repair is an error until the GPU is reset, the driver reports that it requires no
    recovery action any more (XID 154), or the node rebooted; any other is a warning for `xid_s`. One that requires
    nothing, or accompanies others (45), is not a finding.
    """
    for gpu in facts.all_gpus():
        parts = [(xid.event.severity, _words(xid), _of(xid, gpu.name, number))
                for number, xid in sorted(gpu.xids.items()) if _is_active(facts, xid, limits.xid_s)]  # fmt: skip
        action = gpu.gpu.recovery_action if gpu.gpu else None
        if action not in (None, "none") and not (gpu.info and gpu.info.lost):
            words = f"the driver requests a recovery action: {action.replace('_', ' ')}; drain the node first"
            parts.append(("error", words, at(gpu, "gpu.recovery_action", action)))
        if parts:
            severity, text = _worst(parts), "; ".join(words for _, words, _ in parts)
            yield about_gpu(gpu, "gpu_xid", severity, text, [evidence for _, _, evidence in parts])
    for node in facts.nodes.values():
        elsewhere = ((place, *item) for place, xids in node.xids_elsewhere.items() for item in xids.items())
        for place, number, xid in elsewhere:
            if _is_active(facts, xid, limits.xid_s):
                name = f"{node.name}:{place}"
                text = f"{name} (not a GPU known to NVML): {_words(xid)}"
                evidence = (_of(xid, name, number),)
                yield FindingDraft("gpu_xid", xid.event.severity, "certain", (name, f"XID {number}"), text, evidence)


def _worst(parts: Sequence[tuple[Severity, str, str]]) -> Severity:
    return "error" if any(severity == "error" for severity, _, _ in parts) else "warning"


def _words(xid: Xid) -> str:
    """Meaning, count, and what to do."""
    return f"{xid.event.text}{times(xid.count)}" + (f" ({xid.event.try_})" if xid.event.try_ else "")


def _is_active(facts: HealthState, xid: Xid, xid_s: float) -> bool:
    if xid.event.severity == "error":
        return True
    return xid.event.severity == "warning" and facts.newest - xid.event.rx <= xid_s * 1e9


def _of(xid: Xid, name: str, number: int) -> str:
    word = "".join(f" {part}" for part in (xid.event.sub_code, xid.event.action) if part)
    return f"gpu_event.xid {name} {number}{word} (seq {xid.event.seq}, {xid.event.source})"


def gpu_ecc(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Memory errors: an error for uncorrected ones since the driver was loaded, for a failed row remap, or for too
    many SRAM errors.

    A warning for a high rate of corrected ones. Lifetime counts alone are not a finding: a reset dealt with them.
    """
    for gpu in facts.gpus():
        if gpu.gpu is None:
            continue
        parts = list(_uncorrected(gpu.gpu, gpu.info))
        if parts:
            # the last action is the one that ends the fault: a reset does not help a GPU that has to be replaced
            text = "; ".join([words for words, _, _, _ in parts] + [parts[-1][1]])
            evidence = [at(gpu, field, value) for _, _, field, value in parts]
            yield about_gpu(gpu, "gpu_ecc", "error", text, evidence)
        else:
            yield from _corrected(gpu, limits)


def _uncorrected(gpu: Gpu, info: GpuInfo | None) -> Iterator[tuple[str, str, str, object]]:
    """(words, action, field, value) of each fault of the memory; the most lasting one last."""
    if gpu.ecc_uncorrected_volatile:
        words = f"{plural(gpu.ecc_uncorrected_volatile, 'uncorrected memory error')}; results may be wrong"
        yield words, "reset the GPU", "gpu.ecc_uncorrected_volatile", gpu.ecc_uncorrected_volatile
    if info is not None and info.sram_threshold_exceeded:
        yield "SRAM errors exceed the vendor's threshold", "RMA the GPU", "gpu_info.sram_threshold_exceeded", True
    if gpu.remap_failed:
        yield "row remapping failed", "RMA the GPU", "gpu.remap_failed", True


def _corrected(gpu: GpuHealth, limits: HealthConfig) -> Iterator[FindingDraft]:
    gained = max(gpu.window.total(f"grown.ecc_corrected_{kind}") for kind in ("volatile", "aggregate"))
    most = limits.ecc_corrected_per_min * limits.window_s / 60
    if gained > most:
        text = f"{plural(gained, 'corrected memory error')} in {figure(limits.window_s)} s; the limit is {figure(most)}"
        yield about_gpu(gpu, "gpu_ecc", "warning", text, [at(gpu, "gpu.grown.ecc_corrected_volatile", gained)])


def gpu_remap_pending(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Row remaps (Ampere and newer) or page retirements (before) that are pending until a reset."""
    for gpu in facts.gpus():
        fields = [field for field in _PENDING if gpu.gpu is not None and getattr(gpu.gpu, field)]
        if fields:
            text = f"{_PENDING[fields[0]]}; reset the GPU"
            evidence = [at(gpu, f"gpu.{field}", True) for field in fields]
            yield about_gpu(gpu, "gpu_remap_pending", "warning", text, evidence)


_PENDING = {"remap_pending": "pending row remaps", "retire_pending": "pending page retirements"}
