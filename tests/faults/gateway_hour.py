"""Real agents behind two gateways for an hour, one of which is killed and later gone: no record is lost or doubled.

    python -m tests.faults.gateway_hour                          one hour, 128 nodes in namespaces of this machine
    python -m tests.faults.gateway_hour --nodes 16 --for 300     a short one

After a quarter of the time the program of the first gateway is killed, and the second one takes its nodes over. After
half of it the second one dies with all its connections, and all nodes move to the first. After three quarters it is
back.

Exit status 1 if a record was lost or duplicated, an agent was replaced, a node failed, or not all were `ok` again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Makes `from rig import Rig` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

import psutil
from gateways import Site, site
from rig import Node

from . import node_faults
from .consoles import Recorder
from .measurements import Row, write
from .record_counts import Count

#: Seconds between two readings of the console's memory and of its session.
SAMPLE_S = 10.0
#: Seconds until all nodes must be sampled, at the start and after a fault: all agents share the cores of one machine.
DEADLINE_S = 300.0
SIMULATED_GPUS = 8


@dataclass(frozen=True)
class Recovery:
    """What one fault of a gateway did: `nodes` changed their state, and all were `ok` again after `after_s` seconds."""

    fault: str
    nodes: int
    after_s: float


class GatewayHour:
    """A recording console, its gateways, and the nodes behind them. `rss_mb`: the console's memory every `SAMPLE_S`."""

    def __init__(self, cluster: Site, folder: Path) -> None:
        self.names = [node.name for node in cluster.nodes]
        self._gateways = cluster.gateways
        hosts = cluster.hosts(folder / "hosts.toml", agent={"linger_s": 1800, "simulate_gpus": SIMULATED_GPUS})
        self.recorder = Recorder(hosts, folder, "hour")
        self.recoveries: list[Recovery] = []
        self.rss_mb: list[float] = []
        self.console = psutil.Process(self.recorder.process.pid)

    def run(self, for_s: float) -> None:
        """Start, wait for every node, and inject the faults at a quarter, half and three quarters of the time."""
        began = time.monotonic()
        self.recorder.wait_for_ticks(self.names, deadline_s=DEADLINE_S)
        print(f"all {len(self.names)} nodes sampled after {time.monotonic() - began:.1f} s", flush=True)
        first, second = self._gateways
        began = time.monotonic()
        self._rest_until(began + for_s / 4)
        self._fault("program killed", lambda: _kill_programs(first))
        self._rest_until(began + for_s / 2)
        self._fault("other gateway gone", lambda: second.stop_sshd(sessions=True))
        self._rest_until(began + for_s * 3 / 4)
        second.start_sshd()
        print("gateway is back", flush=True)
        self._rest_until(began + for_s)
        self.recorder.wait_for(self.names, deadline_s=DEADLINE_S)
        self.recorder.wait_for_ticks(self.names, deadline_s=DEADLINE_S)

    def _fault(self, name: str, inject: Callable[[], None]) -> None:
        since_ns, began = time.time_ns(), time.monotonic()
        inject()
        moved: set[str] = set()
        while not moved or any(self.recorder.tally.state(node) != "ok" for node in moved):
            assert time.monotonic() - began < DEADLINE_S, f"{name}: {len(moved)} nodes lost, not all ok again"
            time.sleep(0.2)
            moved = {state.node for state in self.recorder.read().states if state.rx >= since_ns}
        after_s = time.monotonic() - began
        self.recorder.wait_for(self.names, deadline_s=DEADLINE_S)
        self.recoveries.append(Recovery(name, len(moved), after_s))
        print(self.recoveries[-1], flush=True)

    def _rest_until(self, until_s: float) -> None:
        """Read the session and the console's memory until that time of the monotonic clock."""
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, SAMPLE_S))
            self.rss_mb.append(self.console.memory_info().rss / 1e6)
            self.recorder.read()


def _kill_programs(gateway: Node) -> None:
    programs = node_faults.every_agent(gateway)
    assert programs, gateway.ps()
    node_faults.signal_all(gateway, programs, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser("gateway_hour", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--for", dest="for_s", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--nodes", type=int, default=128)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, site(gateways=2, nodes=options.nodes) as cluster:
        print(f"{options.nodes} nodes are up", flush=True)
        hour = GatewayHour(cluster, Path(scratch))
        try:
            began = time.monotonic()
            hour.run(options.for_s)
            used = hour.console.cpu_times()
            cpu_pct = 100 * (used.user + used.system) / (time.monotonic() - began)
            tally = hour.recorder.stop()
        finally:
            hour.recorder.close()
    count = tally.count()
    failed = sorted({state.node for state in tally.states if state.state == "failed"})
    faults = "; ".join(f"{one.fault}: {one.nodes} nodes, all ok after {one.after_s:.1f} s" for one in hour.recoveries)
    write(
        Row(
            fault=f"two gateways for {options.for_s / 60:.0f} min, {options.nodes} real agents, one gateway killed",
            lost=count.lost, doubled=count.doubled, gap=count.gap,
            note=f"{faults}; {count.records:,} records of {count.agents} agents; the console, which records: "
            f"{cpu_pct:.1f} % of a core, RSS {hour.rss_mb[0]:.0f} MB at first, {hour.rss_mb[-1]:.0f} MB at the end"
            + (f"; failed: {failed}" if failed else ""),
        )
    )  # fmt: skip
    is_complete = count == Count(count.records, 0, 0, 0, options.nodes)
    return 0 if is_complete and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
