"""GPUs that are hot, slow without a reason, outside of the NVLink fabric, or set unlike their peers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...config.sections import HealthConfig
from ...records import GpuInfo, Severity
from ...text.format import plural
from ...text.nodeset_fold import fold_numbers
from ..finding import FindingDraft
from .conditions import memory_limit_c
from .entities import GpuHealth, about_gpu, at, figure
from .nodes import has_settled
from .state import HealthState

#: Seconds for which a condition must hold; shorter for the fabric, which is read every 5 s.
_HOLD_S: Final = 5.0
_FABRIC_HOLD_S: Final = 3.0
#: Seconds after which a GPU that has not joined the fabric is an error: the fabric manager starts after the driver.
_FABRIC_S: Final = 120.0
#: Fabric faults that the driver is repairing, or that leave the fabric usable.
_PASSING: Final = ("degraded_bandwidth", "route_recovery", "access_timeout_recovery", "fabric_manager_disconnected")
#: Power caps that differ by less are equal.
_SAME_CAP: Final = 0.01


def gpu_hot(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs that reach the temperature at which clocks are lowered, and memory above its limit."""
    for gpu in facts.gpus():
        now, info = gpu.gpu, gpu.info
        if now is None:
            continue
        parts, evidence = [], []
        if gpu.held_s("hot") >= _HOLD_S:
            limit_c = info.temp_slowdown_c if info is not None else None
            words = f"{figure(now.temp_c)} °C"
            words += f", clocks are lowered at {figure(limit_c)} °C" if limit_c is not None else ""
            if now.temp_margin_c is not None:
                words += f", {_margin(now.temp_margin_c)} (T.Limit)"
                evidence.append(at(gpu, "gpu.temp_margin_c", now.temp_margin_c))
            parts.append(words)
            evidence.append(at(gpu, "gpu.temp_c", now.temp_c))
        if gpu.held_s("memory_hot") >= _HOLD_S:
            parts.append(f"memory {figure(now.mem_temp_c)} °C, the limit is {figure(memory_limit_c(info))} °C")
            evidence.append(at(gpu, "gpu.mem_temp_c", now.mem_temp_c))
        if parts:
            yield about_gpu(gpu, "gpu_hot", "warning", f"{'; '.join(parts)}; check cooling and airflow", evidence)


def _margin(margin_c: float) -> str:
    word = "below" if margin_c >= 0 else "above"
    return f"{figure(abs(margin_c))} °C {word} the point at which clocks are lowered"


def gpu_slow_clock(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs under full load far below their maximum clock, for which the driver names no reason.

    Info where all GPUs of that model which are under load are alike: the clocks are limited on purpose.
    """
    loaded: dict[str | None, list[GpuHealth]] = defaultdict(list)
    for gpu in facts.gpus():
        if gpu.held_s("loaded") >= _HOLD_S and gpu.info is not None:
            loaded[gpu.info.name].append(gpu)
    for gpus in loaded.values():
        slow = [gpu for gpu in gpus if gpu.held_s("slow_clock") >= _HOLD_S]
        is_policy = len(slow) == len(gpus) >= limits.peers
        for gpu in slow:
            assert gpu.gpu is not None and gpu.info is not None
            clock, most = gpu.gpu.sm_clock_mhz, gpu.info.max_sm_clock_mhz
            text = f"SM clock {figure(clock)} of {figure(most)} MHz under load, and the driver names no reason"
            text += "; its peers are alike" if is_policy else ""
            text += "; check locked clocks (nvidia-smi -q -d CLOCK,PERFORMANCE)"
            evidence = [at(gpu, "gpu.sm_clock_mhz", clock), at(gpu, "gpu.clocks_event_reasons", "none")]
            yield about_gpu(gpu, "gpu_slow_clock", "info" if is_policy else "warning", text, evidence)


def nvlink_fabric(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs that have not joined the NVLink fabric, or whose fabric has a fault."""
    for gpu in facts.gpus():
        info = gpu.info
        if info is None:
            continue
        pending_s = gpu.held_s("fabric_pending")
        if pending_s >= _FABRIC_HOLD_S:
            severity: Severity = "error" if pending_s >= _FABRIC_S else "warning"
            text = "has not joined the NVLink fabric (in progress): CUDA cannot start; check the fabric manager"
            yield about_gpu(gpu, "nvlink_fabric", severity, text, [at(gpu, "gpu_info.fabric_state", "in_progress")])
        elif info.fabric_state == "not_started" and (peers := _joined(facts, gpu)):
            text = f"has not joined the NVLink fabric (not started), {plural(peers, 'GPU')} of its node did"
            text += "; check the fabric manager"
            yield about_gpu(gpu, "nvlink_fabric", "warning", text, [at(gpu, "gpu_info.fabric_state", "not_started")])
        elif info.fabric_faults:
            words = ", ".join(fault.replace("_", " ") for fault in info.fabric_faults)
            severity = "warning" if set(info.fabric_faults) <= set(_PASSING) else "error"
            evidence = [at(gpu, "gpu_info.fabric_faults", words)]
            yield about_gpu(gpu, "nvlink_fabric", severity, f"NVLink fabric: {words}", evidence)


def _joined(facts: HealthState, gpu: GpuHealth) -> int:
    """Number of GPUs of the same node and model that have joined the fabric."""
    peers = facts.nodes[gpu.node].gpus.values()
    name = gpu.info.name if gpu.info else None
    return sum(peer.info is not None and peer.info.name == name and peer.info.fabric_state == "completed"
               for peer in peers)  # fmt: skip


def _on(value: bool) -> str:
    return "on" if value else "off"


def _settings(info: GpuInfo) -> Iterator[tuple[str, str]]:
    """(setting, value in words) that are equal on all GPUs of a model; unknown ones are left out."""
    if info.persistence is not None:
        yield "persistence mode", _on(info.persistence)
    if info.ecc_mode is not None:
        yield "ECC", _on(info.ecc_mode)


_FIELDS: Final = {
    "persistence mode": "gpu_info.persistence", "ECC": "gpu_info.ecc_mode", "power limit": "gpu_info.power_limit_w",
}  # fmt: skip


def gpu_settings(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """GPUs whose persistence mode, ECC mode or power cap differs from the majority of their model; one per node.

    Nothing is compared with fewer than `peers` GPUs, without a majority, or until every node has reported its GPUs.
    """
    if not has_settled(facts):
        return
    alike: dict[str, list[GpuHealth]] = defaultdict(list)
    for gpu in facts.gpus():
        if gpu.info is not None and gpu.info.name is not None:
            alike[gpu.info.name].append(gpu)
    for gpus in alike.values():
        if len(gpus) < limits.peers:
            continue
        differs: dict[str, dict[str, str]] = defaultdict(dict)  # name of the GPU: {setting: words}
        for setting, values in _values(gpus).items():
            (usual, often), *_ = Counter(values.values()).most_common(1)
            for name, value in values.items():
                if value != usual and 2 * often > len(gpus):
                    differs[name][setting] = f"{setting} {value}, {plural(often, 'GPU')} of its model {usual}"
        yield from _by_node([gpu for gpu in gpus if gpu.name in differs], differs)


def _values(gpus: Sequence[GpuHealth]) -> dict[str, dict[str, str]]:
    """{setting: {name of the GPU: value}}; power caps within one percent are equal."""
    values: dict[str, dict[str, str]] = defaultdict(dict)
    caps = Counter(gpu.info.power_limit_w for gpu in gpus if gpu.info and gpu.info.power_limit_w)
    usual = caps.most_common(1)[0][0] if caps else None
    for gpu in gpus:
        if gpu.info is None:
            continue
        for setting, value in _settings(gpu.info):
            values[setting][gpu.name] = value
        cap = gpu.info.power_limit_w
        if cap and usual:
            values["power limit"][gpu.name] = f"{figure(usual if abs(cap - usual) <= _SAME_CAP * usual else cap)} W"
    return values


def _by_node(gpus: Sequence[GpuHealth], differs: Mapping[str, Mapping[str, str]]) -> Iterator[FindingDraft]:
    together: dict[tuple[str, tuple[str, ...]], list[GpuHealth]] = defaultdict(list)
    for gpu in gpus:
        together[gpu.node, tuple(differs[gpu.name].values())].append(gpu)
    for (node, words), those in together.items():
        settings = tuple(differs[those[0].name])
        numbers = fold_numbers(sorted(gpu.info.index for gpu in those if gpu.info))
        sim = "SIM " if those[0].is_simulated else ""
        evidence = tuple(f"{sim}{at(gpu, _FIELDS[setting], dict(_shown(gpu))[setting])}"
                         for gpu in those[:4] for setting in settings)  # fmt: skip
        severity: Severity = "info" if settings == ("persistence mode",) else "warning"
        yield FindingDraft("gpu_settings", severity, "certain", tuple(gpu.name for gpu in those),
                           f"{sim}{node}:gpu{numbers}: {'; '.join(words)}", evidence, parts=settings)  # fmt: skip


def _shown(gpu: GpuHealth) -> Iterator[tuple[str, object]]:
    assert gpu.info is not None
    yield from _settings(gpu.info)
    yield "power limit", gpu.info.power_limit_w
