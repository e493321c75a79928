"""Injects faults into GPU 2 of NVIDIA's NVML mock under a running console: each is found, and clears after its repair.

python -m tests.gpus.mock_faults LIBRARY                 all faults; the profiles run at the same time
python -m tests.gpus.mock_faults LIBRARY --only xid      those whose name contains this

LIBRARY is the folder with libnvidia-ml.so.1 and `configs`, as for `mock_profiles`. The mock reads its overrides again
once a second. What it cannot do (error codes, calls that hang or crash, links that are down) is tested with the library
of `tests/gpus/nvml`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gconsole
from gconsole.records import Finding

from .mock_profiles import HOSTS, OF_THE_MACHINE, profiles

GPU = "2"
#: Goal, and deadlines: until a finding is there, and until it has cleared (a window of 60 s, and 15 s more).
GOAL_S, SEEN_S, CLEARED_S = 10.0, 45.0, 150.0
#: Seconds until load counts as lasting: the rules on clocks and PCIe want it so.
BUSY_S = 8.0
#: Seconds for which a GPU is lost, as in a reset: that ends an XID.
RESET_S = 4.0

Change = Mapping[str, Any]


class Fault(NamedTuple):
    """A change of GPU 2, the finding that it is to give, and a word of its text."""

    name: str
    profile: str
    change: Change
    finding: str
    words: str = ""
    is_busy: bool = False
    is_xid: bool = False


class Result(NamedTuple):
    """What came of it. None: nothing within the deadline."""

    name: str
    profile: str
    finding: str
    severity: str
    seen_s: float | None
    cleared_s: float | None
    text: str
    others: list[str]  # further findings meanwhile


def busy(profile: Path) -> Change:
    """All GPUs at work, with the highest clock of their kind."""
    clock = int(re.findall(r"^ *sm_max: (\d+)", profile.read_text(), re.MULTILINE)[0])
    return {
        "utilization": {"gpu": 98, "memory": 40}, "clocks": {"sm_current": clock, "graphics_current": clock},
        "clocks_throttle_reasons": {"gpu_idle": False},
    }  # fmt: skip


def xid(code: int, profile: str) -> Fault:
    """An XID with uncorrectable ECC errors, as the mock gives it."""
    change = {"failure": {"mode": "ecc_uncorrectable", "xid": {"code": code}}}
    return Fault(f"XID {code}", profile, change, "gpu_xid", f"XID {code}", is_xid=True)


def fabric(condition: str, profile: str) -> Fault:
    """A condition of the NVLink fabric."""
    is_configuration = condition not in (
        "degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout_recovery"
    )  # fmt: skip
    health = {"incorrect_configuration": condition} if is_configuration else {condition: True}
    return Fault(f"fabric {condition}", profile, {"fabric": {"health": health}}, "nvlink_fabric")


def throttle(reason: str, profile: str) -> Fault:
    """A reason for which clocks are lower, under load."""
    change = {"clocks_throttle_reasons": {"gpu_idle": False, "hw_slowdown": reason.startswith("hw_"), reason: True}}
    return Fault(f"{reason} under load", profile, change, "gpu_throttle", is_busy=True)


_UNCORRECTED = {"ecc": {"errors": {"volatile": {"double_bit": {"device_memory": 3, "total": 3}}}}}
_EXCEEDED = {"ecc": {"sram": {"aggregate": {"uncorrectable_secded": 5}, "threshold_exceeded": True}}}
FAULTS = (
    Fault("85 °C, 2 °C below slowdown", "h100", {"thermal": {"temperature_gpu_c": 85}}, "gpu_hot", "85"),
    Fault("95 °C", "t4", {"thermal": {"temperature_gpu_c": 95}}, "gpu_hot", "95"),
    Fault("87 °C", "a100", {"thermal": {"temperature_gpu_c": 87}}, "gpu_hot", "87"),
    Fault("memory 110 °C", "h100", {"thermal": {"temperature_memory_c": 110}}, "gpu_hot", "110"),
    Fault("memory 110 °C", "b200", {"thermal": {"temperature_memory_c": 110}}, "gpu_hot", "110"),
    Fault("SRAM threshold exceeded", "h100", _EXCEEDED, "gpu_ecc", "SRAM"),
    Fault("SRAM threshold exceeded", "b200", _EXCEEDED, "gpu_ecc", "SRAM"),
    Fault("uncorrectable ECC errors", "a100", _UNCORRECTED, "gpu_ecc"),
    Fault("uncorrectable ECC errors", "b200", _UNCORRECTED, "gpu_ecc"),
    Fault("row remap pending", "h100", {"remapped_rows": {"pending": True}}, "gpu_remap_pending"),
    Fault("row remap pending", "b200", {"remapped_rows": {"pending": True}}, "gpu_remap_pending"),
    Fault("row remap failed", "h100", {"remapped_rows": {"failure_occurred": True}}, "gpu_ecc", "remap"),
    *(fabric(condition, "gb300") for condition in (
        "route_unhealthy", "no_partition", "insufficient_nvlinks", "incompatible_gpu_fw", "invalid_location",
        "incorrect_sysguid", "incorrect_chassis_sn", "gpu_state_invalid",
    )),
    *(fabric(condition, "gb200") for condition in ("degraded_bandwidth", "route_recovery", "access_timeout_recovery")),
    Fault("345 MHz under load", "h100", {"clocks": {"sm_current": 345, "graphics_current": 345}}, "gpu_slow_clock",
          "345", is_busy=True),
    Fault("345 MHz under load", "gb300", {"clocks": {"sm_current": 345, "graphics_current": 345}}, "gpu_slow_clock",
          "345", is_busy=True),
    throttle("hw_thermal_slowdown", "h100"), throttle("hw_thermal_slowdown", "gb200"),
    throttle("hw_power_brake_slowdown", "b200"), throttle("sw_thermal_slowdown", "a100"),
    Fault("persistence mode off", "h100", {"persistence_mode": "disabled"}, "gpu_settings", "persistence"),
    Fault("ECC mode off", "h100", {"ecc": {"mode_current": "disabled"}}, "gpu_settings", "ECC"),
    Fault("ECC mode off", "gb300", {"ecc": {"mode_current": "disabled"}}, "gpu_settings", "ECC"),
    Fault("power cap 400 W", "h100", {"power": {"enforced_limit_mw": 400_000}}, "gpu_settings", "400"),
    Fault("power cap 60 W", "t4", {"power": {"enforced_limit_mw": 60_000}}, "gpu_settings", "60"),
    Fault("PCIe x8", "h100", {"pcie": {"current_link_width": 8}}, "pcie_degraded", "x8"),
    Fault("PCIe generation 3 under load", "h100", {"pcie": {"current_link_gen": 3}}, "pcie_degraded", "3",
          is_busy=True),
    Fault("PCIe generation 1 under load", "l40s", {"pcie": {"current_link_gen": 1}}, "pcie_degraded", "1",
          is_busy=True),
    Fault("NVLink errors", "h100", {"nvlink_error": {"rate": 250}}, "nvlink_errors"),
    Fault("NVLink errors of link 4", "gb200", {"nvlink_error": {"rate": 250, "links": [4]}}, "nvlink_errors"),
    Fault("NVLink errors", "gb300", {"nvlink_error": {"rate": 250}}, "nvlink_errors"),
    Fault("GPU lost", "h100", {"failure": {"mode": "lost"}}, "gpu_lost"),
    Fault("GPU lost", "t4", {"failure": {"mode": "lost"}}, "gpu_lost"),
    Fault("GPU fell off the bus", "gb200", {"failure": {"mode": "fallen_off_bus"}}, "gpu_lost"),
    *(xid(code, "a100") for code in (31, 38, 48, 92)),
    *(xid(code, "h100") for code in (64, 74, 94, 95, 109, 119, 126)),
    *(xid(code, "b200") for code in (149, 155, 158)),
    xid(79, "t4"), xid(156, "gb300"),
)  # fmt: skip


class Injector:
    """A console on this machine with one profile of the mock, and its findings about GPUs."""

    def __init__(self, fleet: gconsole.ConnectedFleet, overrides: Path, busy: Change) -> None:
        self._overrides, self._busy = overrides, busy
        self._open: dict[tuple[str, str], Finding] = {}  # by id and first culprit
        self._changed = threading.Condition()
        self._stream = fleet.watch(self._add)

    def _add(self, finding: Finding) -> None:
        if finding.id in OF_THE_MACHINE:
            return
        key = finding.id, ",".join(finding.culprits)
        with self._changed:
            if finding.cleared_at is None:
                self._open[key] = finding
            else:
                self._open.pop(key, None)
            self._changed.notify_all()

    def _set(self, every: Change, of_gpu: Change) -> None:
        draft = self._overrides.with_suffix(".draft")
        draft.write_text(json.dumps({"version": 1, "all": every, "devices": {GPU: of_gpu} if of_gpu else {}}))
        draft.replace(self._overrides)

    def _found(self, fault: Fault) -> Finding | None:
        named = (finding for finding in self._open.values() if finding.id == fault.finding)
        return next((each for each in named if fault.words in each.text and f"gpu{GPU}" in each.text), None)

    def run(self, fault: Fault) -> Result:
        """Inject it, wait for its finding, repair it, and wait until all have cleared."""
        every = self._busy if fault.is_busy else {}
        self._set(every, {})
        time.sleep(BUSY_S if fault.is_busy else 1.0)
        began = time.monotonic()
        self._set(every, fault.change)
        with self._changed:
            self._changed.wait_for(lambda: self._found(fault) is not None, SEEN_S)
            finding = self._found(fault)
        seen_s = time.monotonic() - began if finding is not None else None
        if fault.is_xid:
            self._set(every, {"failure": {"mode": "lost"}})
            time.sleep(RESET_S)
        with self._changed:
            others = [f"{each.id}: {each.text}" for each in self._open.values() if each.id != fault.finding]
        began = time.monotonic()
        self._set(every, {})
        with self._changed:
            is_clear = self._changed.wait_for(lambda: not self._open, CLEARED_S)
        cleared_s = time.monotonic() - began if is_clear else None
        severity, text = (finding.severity, finding.text) if finding is not None else ("", "")
        return Result(fault.name, fault.profile, fault.finding, severity, seen_s, cleared_s, text, others)


def run_profile(name: str, faults: Sequence[Fault], overrides: Path, folder: Path) -> None:
    """Run the faults of one profile, one after the other, and print each result as JSON."""
    hosts = folder / f"{name}.toml"
    hosts.write_text(HOSTS.format(cache=folder / f"cache-{name}"))
    with gconsole.connect(str(hosts)) as fleet:
        injector = Injector(fleet, overrides, busy(Path(os.environ["MOCK_NVML_CONFIG"])))
        until = time.monotonic() + SEEN_S
        while not len(fleet.gpus) and time.monotonic() < until:
            time.sleep(0.2)
        for fault in faults:
            print(json.dumps(injector.run(fault)._asdict()), flush=True)


def started(library: Path, name: str, only: str, folder: Path) -> "subprocess.Popen[str]":
    """A process that runs the faults of one profile."""
    overrides = folder / f"overrides-{name}.yaml"
    overrides.write_text("{}")
    env = {
        **os.environ, "LD_LIBRARY_PATH": str(library), "MOCK_NVML_CONFIG": str(profiles(library)[name]),
        "MOCK_NVML_OVERRIDES": str(overrides),
    }  # fmt: skip
    argv = [sys.executable, "-m", "tests.gpus.mock_faults", str(library), "--profile", name, "--only", only,
            "--folder", str(folder)]  # fmt: skip
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)


def shown(result: Mapping[str, Any]) -> str:
    """A row of the table in RESULTS.md."""
    seen, cleared = (f"{result[key]:.1f}" if result[key] is not None else "**no**" for key in ("seen_s", "cleared_s"))
    return (
        f"| {result['name']} | {result['profile'].upper()} | {result['severity']} `{result['finding']}` | {seen} "
        f"| {cleared} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser("mock_faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only.lower() in fault.name.lower()]
    if options.profile:
        mine = [fault for fault in chosen if fault.profile == options.profile]
        run_profile(options.profile, mine, Path(os.environ["MOCK_NVML_OVERRIDES"]), options.folder)
        return 0
    results: list[Mapping[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        names = sorted({fault.profile for fault in chosen})
        processes = [started(options.library, name, options.only, Path(folder)) for name in names]
        for process in processes:
            assert process.stdout is not None
            for line in process.stdout:
                results.append(json.loads(line))
                print(shown(results[-1]), results[-1]["text"], *results[-1]["others"], flush=True)
            process.wait()
    seen = [result["seen_s"] for result in results if result["seen_s"] is not None]
    late = [result["seen_s"] for result in results if (result["seen_s"] or 0.0) > GOAL_S]
    missing = len(chosen) - sum(None not in (result["seen_s"], result["cleared_s"]) for result in results)
    print(
        f"{len(results)} of {len(chosen)} faults: {missing} not found or not cleared; median {median(seen):.1f} s, "
        f"{len(late)} later than {GOAL_S:g} s, {max(seen):.1f} s at most; load {os.getloadavg()[0]:.1f}"
    )
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
