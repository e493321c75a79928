"""A fleet whose nodes each have a fake NVML library with a different fault; one node has network ports.

Faults that appear as changes (a counter that increases, a lost GPU, a port that loses its link) are simulated by
`play`, which a test calls repeatedly.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from rig import Node, Rig

sys.path.insert(0, str(Path(__file__).parents[1] / "gpus"))

from nvml import library, scenarios

#: Initial scenario of each node.
FAULTS: dict[str, dict[str, object]] = {
    "xid": {"event.0": "5 8 79"},
    "ecc": {"gpu2.field.4": 3},
    "remap": {"gpu1.field.144": "u32:1"},
    "hot": {"gpu4.reasons": 0x40, "gpu4.temp": 91, "gpu4.clock.1": 990},
    "lost": {},
    "narrow": {"gpu0.pcie_width": 8},
    "nvlink": {"gpu3.field.165@7": "u32:0"},
    "replays": {"gpu6.field.52": 10},
    "driver": {"driver": "550.90.07"},
    "port": {},
    "ranks": {"gpu5.memory": f"{80 * scenarios.GIB} {75 * scenarios.GIB}", "gpu6.clock.1": 900},
}
#: NVML initialisation errors: (return value of nvmlInit, name of the capability that is then missing).
BROKEN = {"mismatch": (18, "gpu_driver_mismatch"), "denied": (4, "gpu_no_permission")}
#: Expected findings of the report: (id, severity, text fragments), by node.
EXPECTED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "xid": ("gpu_xid", "error", ("xid:gpu5", "XID 79", "fallen off the bus", "drain the node")),
    "ecc": ("gpu_ecc", "error", ("ecc:gpu2", "3 uncorrected memory errors")),
    "remap": ("gpu_remap_pending", "warning", ("remap:gpu1", "pending row remaps", "reset")),
    "hot": (
        "gpu_throttle", "warning",
        ("hot:gpu4", "temperature (hw_thermal_slowdown)", "% of its busy time", "91 °C", "990 of 1,980"),
    ),
    "lost": ("gpu_lost", "error", ("lost:gpu3", "lost by the driver", "GPU is lost")),
    "narrow": ("pcie_degraded", "warning", ("narrow:gpu0", "PCIe x8", "x16")),
    "nvlink": ("nvlink_down", "error", ("nvlink:gpu3", "17 NVLinks up, peers have 18")),
    "replays": ("nvlink_errors", "warning", ("replays:gpu6", "replays")),
    "driver": ("version_skew", "warning", ("driver", "driver 550.90.07", "580.126.09")),
}  # fmt: skip
#: Two faults on one node, and nodes with faults of a job or a port.
MORE: list[tuple[str, str, tuple[str, ...]]] = [
    ("driver_broken", "error", ("mismatch: ",)),
    ("driver_broken", "error", ("denied: ",)),
    ("nic_down", "error", ("port:mlx5_0", "is down (polling)", "it was up")),
    ("nic_errors", "warning", ("port:mlx5_1", "symbol errors")),
    ("gpu_memory_imbalance", "warning", ("rank 5", "75.0 GiB at peak", "40.0 GiB")),
    ("gpu_straggler", "warning", ("ranks:gpu6", "SM clock 900 MHz, its 7 peers 1,755 MHz")),
    ("gpu_slow_clock", "warning", ("ranks:gpu6", "SM clock 900", "under load, and the driver names no reason")),
]
#: Not a fault, but only one node has network ports: (id, severity, text).
OF_SHAPE = ("topology_differs", "warning", "port: has 2 NICs, class A has 0")
#: A short window to keep the test short; a late tick of a loaded machine does not clear a finding.
HEALTH = {"window_s": 6, "clear_s": 3}

_RANK = "import time; time.sleep(600)"


class FaultyFleet:
    """The nodes and their scenarios. The rig needs namespaces: each node gets its own /sys."""

    def __init__(self, rig: Rig, scratch: Path) -> None:
        self.rig, self._scratch = rig, scratch
        self._scenarios: dict[str, library.Scenario] = {}
        self._beats = 0
        for node in rig.nodes:
            self._arm(node)

    def hosts(self, name: str = "hosts.toml") -> Path:
        nodes = {node.name: {"python": f"{node.inside}/gpu-python"} for node in self.rig.nodes}
        return self.rig.write_hosts_toml(self._scratch / name, nodes=nodes, health=HEALTH)

    def play(self) -> None:
        """One step: counters increase; from the tenth step on, initially healthy parts fail."""
        self._beats += 1
        self._scenarios["replays"].change({"gpu6.field.52": 10 + 5 * self._beats})
        self._scenarios["hot"].change({"gpu4.field.270": 450_000_000 * self._beats})
        ports = self.rig.node("port").folder / "sys/class/infiniband"
        (ports / "mlx5_1/ports/1/counters/symbol_error").write_text(f"{50 * self._beats}\n")

    def break_down(self) -> None:
        """Lose a GPU and the link of a port while the fleet is watched."""
        self._scenarios["lost"].change({"gpu3.lost": 15})
        port = self.rig.node("port").folder / "sys/class/infiniband/mlx5_0/ports/1"
        (port / "state").write_text("1: DOWN\n")
        (port / "phys_state").write_text("2: Polling\n")

    def mend(self) -> None:
        """Restore the healthy state for the next test."""
        self._scenarios["lost"].change(drop=("gpu3.lost",))
        self._plug(self.rig.node("port"))

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Call `play` twice per second in the background."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(0.5):
                self.play()

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _arm(self, node: Node) -> None:
        """Install the library, scenario and ports of a node; the agent's Python finds them by environment variables."""
        shutil.copytree(library.folder(), node.folder / "lib")
        lines = scenarios.hgx_h100() | FAULTS.get(node.name, {})
        if node.name in BROKEN:
            lines["fail.nvmlInitWithFlags"] = BROKEN[node.name][0]
        if node.name == "ranks":
            lines |= self._start_ranks(node)
        self._scenarios[node.name] = library.Scenario(node.folder / "scenario", lines)
        python = node.folder / "gpu-python"
        python.write_text(f'#!/bin/sh\nexport NVML_SCENARIO={node.inside}/scenario LD_LIBRARY_PATH={node.inside}/lib\n'
                          'exec python3 "$@"\n')  # fmt: skip
        python.chmod(0o755)
        if node.name == "port":
            self._plug(node)
            node.output(["mount", "--bind", f"{node.inside}/sys", "/sys"])

    @staticmethod
    def _start_ranks(node: Node) -> dict[str, object]:
        """Eight ranks of one job, one per GPU."""
        lines: dict[str, object] = {}
        for rank in range(8):
            env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": "29500"}  # fmt: skip
            process = node.run(["python3", "-c", _RANK], env=env, stdin=subprocess.DEVNULL)
            inside = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                          if line.startswith("NSpid:")).split()[-1]  # fmt: skip
            lines[f"gpu{rank}.compute.0"] = f"{inside} {scenarios.GIB}"
        return lines

    @staticmethod
    def _plug(node: Node) -> None:
        for device in ("mlx5_0", "mlx5_1"):
            port = node.folder / f"sys/class/infiniband/{device}/ports/1"
            (port / "counters").mkdir(parents=True, exist_ok=True)
            for name, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "400 Gb/sec (4X NDR)"),
                               ("link_layer", "InfiniBand"), ("counters/symbol_error", "0"),
                               ("counters/port_rcv_data", "1"), ("counters/port_xmit_data", "1")):  # fmt: skip
                (port / name).write_text(f"{text}\n")


def names() -> list[str]:
    return [*FAULTS, *BROKEN]


def records(path: Path) -> list[dict]:
    """The complete lines of a records file that is still being written."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def sampled(path: Path) -> set[str]:
    """The nodes with GPU records so far."""
    return {record["node"] for record in records(path) if record["kind"] == "gpu"}
