"""Links: NVLink and PCIe of GPUs, link state and errors of network ports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ...config.sections import HealthConfig
from ...records import Confidence, GpuInfo
from ...text.format import plural
from ...text.nodeset_fold import fold_numbers
from ..finding import FindingDraft
from .entities import GpuHealth, NicHealth, NodeHealth, about_gpu, at, figure
from .state import DOWN, HealthState

#: Seconds. The agent reads the PCIe generation every 2 s, and an idle GPU lowers it: after three readings under load,
#: of which two confirmed the first, the generation is final.
_BUSY_FOR_PCIE_S, _PCIE_LASTS_S = 6.5, 3.9
_ERRORS = {"recovery_errors": "recovery error", "replay_errors": "replay", "crc_errors": "CRC error"}
#: Counters of links of Blackwell and newer: of these any gain is a fault, as of recoveries and replays …
_FATAL: Final = {
    "failed_recoveries": "recovery failure", "integrity_errors": "link integrity error",
    "malformed_packets": "malformed packet", "buffer_overruns": "buffer overrun",
}  # fmt: skip
#: … and of these a rate: a healthy link has a bit error rate after correction of up to 1e-14, tens of errors an hour.
#: Symbol errors, which are corrected, are none.
_RATED: Final = {
    "rx_errors": "receive error", "effective_errors": "uncorrected error", "tx_discards": "discarded packet",
}  # fmt: skip
#: Counters of the `nic` record that mean corruption or loss. Congestion marks and pauses (CNP, ECN, discards) do not.
ERRORS: Final = {
    "symbol_errors": "symbol error", "link_recoveries": "recovered link error", "rx_errors": "receive error",
    "tx_errors": "send error", "out_of_sequence": "out-of-sequence packet",
    "packet_seq_errors": "packet sequence error", "ack_timeouts": "acknowledgement timeout",
}  # fmt: skip


def nvlink_down(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """NVLinks that went down, or that are up on most GPUs of the same model in the node.

    A link that was never up is a fault only if most of the node's GPUs have it, counted against all GPUs that the
    node should have, so that the order of arrival is irrelevant. A GPU is judged once all of its links,
    `gpu_info.nvlinks`, are reported. One without any link is judged only behind NVSwitches: bridges are optional.
    """
    for node in facts.nodes.values():
        alike: dict[str, list[GpuHealth]] = defaultdict(list)
        named = [gpu.info.name for gpu in node.gpus.values() if gpu.info is not None and gpu.info.parent is None]
        for gpu in node.gpus.values():
            fell = []
            if gpu.links_now_up < len(gpu.links_up):
                fell = sorted(number for number in gpu.links_up if gpu.links[number].up is False)
            if fell and gpu.info is not None and gpu.info.lost is None:
                total = max(len(gpu.links), gpu.info.nvlinks or 0)
                yield _down(gpu, fell, f"NVLink {fold_numbers(fell)} went down; {gpu.links_now_up} of {total} up")
            elif gpu.info is not None and gpu.info.name is not None and _has_all_links(gpu, gpu.info):
                alike[gpu.info.name].append(gpu)
        for name, gpus in alike.items():
            others = sum(other is not None and other != name for other in named)
            usual = _usual_links(gpus, (node.gpu_total or 0) - others)
            for gpu in gpus:
                up = gpu.links_now_up
                if usual is not None and up < usual and (up or _are_switched(gpus, node)):
                    down = [number for number, link in gpu.links.items() if link.up is False]
                    yield _down(gpu, sorted(down), f"{plural(up, 'NVLink')} up, peers have {usual}")


def _has_all_links(gpu: GpuHealth, info: GpuInfo) -> bool:
    """Whether the state of every link is known."""
    if info.nvlinks is None or info.lost is not None:
        return False
    return len(gpu.links) >= info.nvlinks > 0 and not gpu.links_unknown


def _are_switched(gpus: Sequence[GpuHealth], node: NodeHealth) -> bool:
    return any(gpu.uuid in node.switched for gpu in gpus)


def _usual_links(gpus: Sequence[GpuHealth], total: int) -> int | None:
    """How many links are up on most of `total` GPUs, of which these are complete; None without such a majority."""
    counts = Counter(gpu.links_now_up for gpu in gpus)
    (up, often), *_ = counts.most_common(1)
    return up if 2 * often > total > 2 else None


def _down(gpu: GpuHealth, links: Sequence[int], words: str) -> FindingDraft:
    evidence = [at(gpu, f"gpu_link.up link {link}", False) for link in links]
    return about_gpu(gpu, "nvlink_down", "error", f"{words}; check dmesg and nvidia-smi nvlink -s", evidence,
                     parts=tuple(map(str, links)))  # fmt: skip


def nvlink_errors(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Growing NVLink errors: any recovery or replay, and others at a rate that costs bandwidth."""
    for gpu in facts.gpus():
        if not gpu.window.is_notable:
            continue  # no counter has grown
        gained = {name: gpu.window.total(f"grown.nvlink_{name}") for name in _ERRORS}
        gained.update((name, _of_links(gpu, name)) for name in (*_FATAL, *_RATED))
        most = dict.fromkeys(_RATED, limits.nvlink_errors_per_min * limits.window_s / 60)
        most["crc_errors"] = limits.nvlink_crc_per_s * limits.window_s
        names = {name: word for name, word in (_ERRORS | _FATAL | _RATED).items() if gained[name] > most.get(name, 0)}
        if names:
            counts = ", ".join(plural(gained[name], word) for name, word in names.items())
            where = sorted(number for number in gpu.links if any(
                gpu.window.total(f"grown.{name}.{number}") for name in names))  # fmt: skip
            which = f" on NVLink {fold_numbers(where)}" if where else " on its NVLinks"
            text = f"{counts}{which} in {figure(limits.window_s)} s"
            evidence = [at(gpu, f"gpu.grown.nvlink_{name}" if name in _ERRORS else f"gpu_link.grown.{name}",
                           gained[name]) for name in names]  # fmt: skip
            yield about_gpu(gpu, "nvlink_errors", "warning", text, evidence)


def _of_links(gpu: GpuHealth, name: str) -> float:
    """The gain of a counter on all links."""
    return sum(gpu.window.total(f"grown.{name}.{number}") for number in gpu.links)


def pcie_degraded(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """PCIe links with fewer lanes than possible, a lower generation under load, or a high replay rate.

    The generation of an idle GPU is ignored: it is lowered to save power.
    """
    for gpu in facts.gpus():
        info = gpu.info
        if info is None:
            continue
        problems, evidence = [], []
        is_narrow = bool(info.pcie_width and info.pcie_width_max and info.pcie_width < info.pcie_width_max)
        if is_narrow:
            problems.append(f"PCIe x{info.pcie_width}, GPU and slot support x{info.pcie_width_max}")
            evidence.append(at(gpu, "gpu_info.pcie_width", info.pcie_width))
        if info.pcie_gen and info.pcie_gen_max and info.pcie_gen < info.pcie_gen_max and _has_long_worked(gpu):
            problems.append(f"PCIe gen {info.pcie_gen} under load, GPU and slot support gen {info.pcie_gen_max}")
            evidence.append(at(gpu, "gpu_info.pcie_gen", info.pcie_gen))
        replays = gpu.window.total("grown.pcie_replays")
        if replays > limits.pcie_replays_per_min * limits.window_s / 60:
            problems.append(f"{plural(replays, 'PCIe replay')} in {figure(limits.window_s)} s")
            evidence.append(at(gpu, "gpu.grown.pcie_replays", replays))
        if problems:
            yield about_gpu(
                gpu, "pcie_degraded", "warning", "; ".join(problems), evidence, parts=("width",) * is_narrow
            )


def _has_long_worked(gpu: GpuHealth) -> bool:
    at_s = gpu.at_s or 0.0
    is_busy = gpu.busy_since_s is not None and at_s - gpu.busy_since_s >= _BUSY_FOR_PCIE_S
    return is_busy and at_s - gpu.pcie_since_s >= _PCIE_LASTS_S


def nic_down(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Ports that were up and are down or gone.

    A port that was never up counts as unused, except an RDMA port that has lost its link before and is polling.
    """
    for port in _ports(facts):
        nic = port.nic
        if nic.state not in DOWN:
            continue
        polled = nic.rdma and nic.physical_state == "polling" and bool(nic.link_downed)
        if port.was_up or polled:
            word = "is gone" if nic.state == "gone" else f"is {nic.state}"
            physical = f" ({nic.physical_state})" if nic.physical_state else ""
            before = "it was up" if port.was_up else f"link lost {plural(nic.link_downed or 0, 'time')}"
            text = f"{port.name}: the port {word}{physical}; {before}; check the cable, the switch port and dmesg"
            evidence = [f"nic.state {port.name} {nic.state}"]
            evidence += [] if port.was_up else [f"nic.link_downed {port.name} {nic.link_downed}"]
            confidence: Confidence = "certain" if port.was_up else "likely"
            yield FindingDraft("nic_down", "error", confidence, (port.name,), text, tuple(evidence))


def nic_errors(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Ports with a high error rate, or whose link flapped."""
    most = limits.nic_errors_per_min * limits.window_s / 60
    for port in _ports(facts):
        if port.nic.state == "gone":
            continue
        gained = {name: port.window.total(f"grown.{name}") for name in ERRORS}
        errors = [plural(count, ERRORS[name]) for name, count in gained.items() if count > most]
        evidence = [f"nic.grown.{name} {port.name} {figure(count)}" for name, count in gained.items() if count > most]
        flaps = port.window.total("grown.link_downed")
        if flaps and port.nic.state not in DOWN:
            errors.append(f"link flapped {plural(flaps, 'time')}")
            evidence.append(f"nic.grown.link_downed {port.name} {figure(flaps)}")
        if errors:
            text = f"{port.name}: {', '.join(errors)} in {figure(limits.window_s)} s"
            yield FindingDraft("nic_errors", "warning", "certain", (port.name,), text, tuple(evidence))


def _ports(facts: HealthState) -> Iterator[NicHealth]:
    for node in facts.nodes.values():
        yield from node.nics.values()
