"""Hung calls on a node, of the driver or of py-spy: reported by name, and everything else continues."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from rig import Node

from gconsole.records import AgentCost, Gpu, Record, Stack
from tests.gpus.nvml import library, scenarios

from .consoles import Recorder, Screen, any_instant, until
from .fault_cluster import RINGED, FaultCluster
from .measurements import Row, write

#: Status on the screen of a rank whose stack capture timed out.
TIMED_OUT = r"timed out: py-spy took longer than [\d.]+ s"


def test_hanging_nvml_call_stalls_only_the_gpu_sampler(cluster: FaultCluster, tmp_path: Path) -> None:
    node = cluster.rig.nodes[1]
    scenario = _install_library(node)
    python = {node.name: {"python": f"{node.inside}/gpu-python"}}
    hosts = cluster.rig.write_hosts_toml(
        tmp_path / "hosts.toml", only=[node.name], nodes=python, agent={"linger_s": 600}
    )
    recorder = Recorder(hosts, tmp_path)
    monitor = GpuMonitor()
    recorder.tally.add_callback(monitor.take)
    try:
        until(lambda: recorder.read() and monitor.gpus, "the GPUs are read")
        injected_ns = any_instant()
        _hang(scenario)
        until(lambda: recorder.read() and monitor.hung, "the sampler is reported as hung")
        shown_s = (monitor.hung_ns - injected_ns) / 1e9
        recorder.wait_for_ticks([node.name], 3)
        assert not recorder.tally.dropped(injected_ns), "the node itself is ok"
        _release(scenario)
        before = monitor.gpus
        until(lambda: recorder.read() and monitor.gpus > before and not monitor.hung, "the GPUs are read again")
        count = recorder.stop().count()
    finally:
        _release(scenario)
        recorder.close()
    write(
        Row(
            fault="NVML hangs in a call", lost=count.lost, doubled=count.doubled, gap=count.gap, shown_s=shown_s,
            screen="agent_cost.hung: gpu", note="reported after 5 s by design; the other samplers continued",
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)


class GpuMonitor:
    """GPU records received, and the calls that the agent reports as hung."""

    def __init__(self) -> None:
        self.gpus, self.hung, self.hung_ns = 0, False, 0

    def take(self, record: Record) -> None:
        if isinstance(record, Gpu):
            self.gpus += 1
        elif isinstance(record, AgentCost):
            self.hung = "gpu" in record.hung
            if self.hung and not self.hung_ns:
                self.hung_ns = record.rx


def _install_library(node: Node) -> library.Scenario:
    shutil.copytree(library.folder(), node.folder / "lib", dirs_exist_ok=True)
    scenario = library.Scenario(node.folder / "scenario", scenarios.hgx_h100())
    python = node.folder / "gpu-python"
    python.write_text(f'#!/bin/sh\nexport NVML_SCENARIO={node.inside}/scenario LD_LIBRARY_PATH={node.inside}/lib\n'
                      'exec python3 "$@"\n')  # fmt: skip
    python.chmod(0o755)
    return scenario


def _hang(scenario: library.Scenario) -> None:
    """The library rereads a replaced scenario, and opening a FIFO for reading blocks until a writer opens it."""
    pipe = scenario.path.with_name("pipe")
    os.mkfifo(pipe)
    pipe.rename(scenario.path)


def _release(scenario: library.Scenario) -> None:
    if scenario.path.is_fifo():
        pipe = scenario.path.with_name("opened")
        scenario.path.rename(pipe)
        scenario.change()
        text = scenario.path.read_bytes()
        with pipe.open("wb") as writer:  # the blocked reader gets the original content
            writer.write(text)
        pipe.unlink()


def test_hanging_py_spy_times_out_only_its_own_rank(cluster: FaultCluster, tmp_path: Path) -> None:
    node = cluster.rig.nodes[1]
    screen = Screen(cluster.hosts, tmp_path)
    try:
        everyone = f"{len(cluster.names)}/{len(cluster.names)} nodes"
        screen.terminal.until(everyone, f"{RINGED}/{RINGED} ranks", without="py-spy")  # uploaded first
        tally = screen.record("hanging").tally
        stacks: list[Stack] = []
        tally.add_callback(lambda record: stacks.append(record) if isinstance(record, Stack) else None)
        until(lambda: tally.read().count().agents == len(cluster.names), "all of them are recorded")
        began = tally.count()
        with stop_py_spy(node) as stopped:
            screen.watch()
            injected_ns = any_instant()
            screen.terminal.press("s")
            until(lambda: screen.first_match(TIMED_OUT, injected_ns), "the py-spy timeout on the screen")
        until(
            lambda: tally.read() and len({stack.node for stack in stacks}) == RINGED, "every rank's result is recorded"
        )
        statuses = {stack.node: stack.status for stack in stacks}
        count = tally.count().since(began)
        met = stopped.read_text().splitlines()
    finally:
        screen.close()
    content = screen.first_match(TIMED_OUT, injected_ns)
    match = re.search(TIMED_OUT, content.text) if content else None
    assert content and match
    write(
        Row(
            fault="py-spy hangs", lost=count.lost, doubled=count.doubled, gap=count.gap,
            shown_s=(content.at - injected_ns) / 1e9, screen=match.group(),
            note=f"{len(met)} stopped; the other ranks were read",
        )
    )  # fmt: skip
    assert met, "it was started and stopped"
    assert statuses.pop(node.name) == "timed_out"
    assert set(statuses.values()) == {"ok"}
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)


@contextlib.contextmanager
def stop_py_spy(node: Node) -> Iterator[Path]:
    """Stop (SIGSTOP) every py-spy that starts on the node; the path of a file with one line for each.

    The agent has already verified the cached file and starts it unchanged. A thread that polls for its processes and
    stops them would use a whole core, and on a busy machine miss a py-spy that ends within 20 ms.
    """
    met = node.folder / "stopped-py-spies"
    place, original = _py_spy(node), "/var/tmp/original-py-spy"
    script = f'#!/bin/sh\necho $$ >> {node.inside}/{met.name}\nkill -STOP $$\nexec {original} "$@"\n'
    node.output(["sh", "-c", f"mv {place} {original} && printf %s {shlex.quote(script)} > {place} && "
                             f"chmod 700 {place}"])  # fmt: skip
    try:
        yield met
    finally:
        node.output(["mv", original, place])


def _py_spy(node: Node) -> str:
    """Its path in the cache of the node's agents: the largest file there."""
    return node.output(["sh", "-c", "ls -S /var/tmp/gconsole-*/blob/* | head -1"]).strip()
