"""`gconsole check` as the prolog of a real Slurm: a node with a broken GPU is drained, a healthy one runs the job."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import GCONSOLE
from rig import Rig
from slurm import Slurm, missing

sys.path.insert(0, str(Path(__file__).parents[1] / "gpus"))
from nvml import library, scenarios

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_namespaces"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

#: That of docs/guide/health.md. Slurm starts it as root without HOME and PATH.
PROLOG = """#!/bin/sh
export LD_LIBRARY_PATH={inside} NVML_SCENARIO={inside}/scenario
{gconsole} check localhost --set ssh.transport=local >{inside}/prolog.out 2>&1
code=$?
echo $code >{inside}/prolog.code
case $code in
0 | 2) exit 0 ;;    # 2: a mistake in the configuration, not a fault of the node
*) exit 1 ;;        # 1: a failed check; 3, 4: the node or its GPUs were not judged
esac
"""
DEADLINE_S = 120.0


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """Two nodes with eight healthy GPUs, whose prolog is the check."""
    with Rig(nodes=2) as rig:
        inside = rig.nodes[0].inside
        for node in rig.nodes:
            prolog = node.folder / "prolog"
            prolog.write_text(PROLOG.format(inside=inside, gconsole=GCONSOLE))
            prolog.chmod(0o755)
            shutil.copy(library.folder() / library.NAME, node.folder)
            library.Scenario(node.folder / "scenario", scenarios.hgx_h100())
        with Slurm(rig.nodes, tmp_path / "slurm", f"Prolog={inside}/prolog") as slurm:
            yield slurm


#: A fault of the second node, the exit code of the check, and words of its output.
FAULTS = {
    "lost GPU": ({"gpu2.lost": 15}, 1, "gpu_reachable"),
    "GPU that requires a reset": ({"gpu2.fail.nvmlDeviceGetMemoryInfo_v2": 16}, 1, "the GPU requires a reset"),
    "driver mismatch": ({"fail.nvmlInitWithFlags": 18}, 1, "version mismatch"),
    "driver that hangs": ({"hang.nvmlInitWithFlags": 1}, 3, "gpu_reachable"),
}


@pytest.mark.parametrize("fault", [FAULT if index == 0 else pytest.param(FAULT, marks=pytest.mark.full)
                                   for index, FAULT in enumerate(FAULTS)])  # fmt: skip
def test_prolog_drains_a_node_with_a_broken_gpu_and_a_healthy_one_runs_the_job(slurm: Slurm, fault: str) -> None:
    good, bad = slurm.nodes
    lines, code, words = FAULTS[fault]
    library.Scenario(bad.folder / "scenario", scenarios.hgx_h100() | lines)
    (good.folder / "job.sh").write_text(f"#!/bin/sh\ntouch {good.inside}/started\nsleep 600\n")
    for node in slurm.nodes:
        slurm.ask("sbatch", f"--nodelist={node.name}", "--output=/dev/null", "--chdir=/", f"{good.inside}/job.sh")

    states: dict[str, str] = {}
    deadline = time.monotonic() + DEADLINE_S
    while not (states.get(bad.name, "").startswith("drain") and (good.folder / "started").exists()):
        outputs = [path.read_text() for node in slurm.nodes for path in sorted(node.folder.glob("prolog.*"))]
        assert time.monotonic() < deadline, (states, outputs)
        time.sleep(0.5)
        rows = slurm.ask("sinfo", "--Node", "--noheader", "--format=%N|%T|%E").split("\n")
        states = {name: f"{state}: {reason}" for name, state, reason in (row.split("|") for row in rows if row)}

    assert "Prolog error" in states[bad.name]
    assert not (bad.folder / "started").exists(), "the job has not started there"
    assert (good.folder / "prolog.code").read_text() == "0\n", (good.folder / "prolog.out").read_text()
    assert (bad.folder / "prolog.code").read_text() == f"{code}\n", (bad.folder / "prolog.out").read_text()
    assert words in (bad.folder / "prolog.out").read_text()
