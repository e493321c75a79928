"""Drivers that cannot be used, and GPUs that the kernel lists and the driver lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...config.sections import HealthConfig
from ...records import Confidence, Severity
from ...text.format import plural
from ..finding import FindingDraft
from .entities import about_gpu, at
from .state import HealthState

#: Faults that may end by themselves: a driver without persistence mode needs seconds per GPU to start.
_PASSING: Final = ("gpu_starting",)
#: Faults that the user has asked for: `gconsole release`.
_ON_PURPOSE: Final = ("gpu_released",)


def driver_broken(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose driver cannot be used: no call returns data of any GPU."""
    for node in facts.nodes.values():
        gpus = node.inventory.get("gpu")
        if gpus is None or gpus.fault in (None, *_ON_PURPOSE):
            continue
        severity: Severity = "warning" if gpus.fault in _PASSING else "error"
        confidence: Confidence = "possible" if gpus.fault in _PASSING else "certain"
        text = f"{node.name}: {gpus.text}"
        if gpus.installed:
            text += f"; the kernel lists {plural(gpus.installed, 'GPU')}"
        evidence = (f"inventory.fault {node.name} {gpus.fault}",)
        yield FindingDraft("driver_broken", severity, confidence, (node.name,), text, evidence)


def gpu_missing(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs that the kernel lists and the driver lacks, without those that it lists and cannot open (`gpu_lost`)."""
    for node in facts.nodes.values():
        gpus = node.inventory.get("gpu")
        if gpus is None or gpus.count is None or len(gpus.missing) <= len(node.unopened):
            continue
        where = ", ".join(gpus.missing)
        has = f"{gpus.count} of {gpus.count + len(gpus.missing)} GPUs"
        text = f"{node.name}: the driver has {has}; the kernel also lists {where}"
        evidence = (f"inventory.missing {node.name} {where}",)
        yield FindingDraft("gpu_missing", "error", "certain", (node.name,), text, evidence, parts=gpus.missing)


def gpu_unusable(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs that the driver lists, and of which no call returns a value."""
    for gpu in facts.gpus():
        if gpu.info is not None and gpu.info.unusable is not None:
            text = f"{gpu.info.unusable}; drain the node, then reset the GPU or reboot"
            yield about_gpu(gpu, "gpu_unusable", "error", text, [at(gpu, "gpu_info.unusable", gpu.info.unusable)])
