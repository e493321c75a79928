"""`run logs`: the order written, streams told apart, and the last lines of all ranks together."""

from pathlib import Path

import pytest
from jobs import find_torch_python
from rig import Rig
from run_command import TORCH_OPTIONS, run, start_job

#: Each rank writes to both streams in turn, after the rank before it, through files of the shared folder.
TURNS = """
import os, sys, time
rank, folder = int(os.environ["RANK"]), sys.argv[1]
for turn in range(6):
    number = turn * 2 + rank
    while number and not os.path.exists("%s/turn%d" % (folder, number - 1)):
        time.sleep(0.01)
    time.sleep(0.05)  # longer than the writes are apart in the kernel
    print("line %d" % number, file=sys.stderr if turn % 2 else sys.stdout, flush=True)
    open("%s/turn%d" % (folder, number), "w").close()
"""


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("launcher", ["torchrun", "env", pytest.param("accelerate", marks=pytest.mark.full)])
def test_logs_are_in_the_order_written_with_streams_and_instants(
    rig: Rig, tmp_path: Path, script, launcher: str
) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1"])
    folder = script("turns.py", TURNS)
    turns = f"{folder}/turns-{launcher}"
    (rig.nodes[0].folder / f"turns-{launcher}").mkdir()
    options = ["--nodes", 1, "--procs-per-node", 2, "--workdir", folder, "--launcher", launcher, *TORCH_OPTIONS]
    job = start_job(hosts, *options, "--", find_torch_python(), "turns.py", turns)
    assert run("wait", hosts, job, "--timeout", "120s").status == 0
    expected = [f"[{number % 2}{' stderr' if number // 2 % 2 else ''}] line {number}" for number in range(12)]
    assert run("logs", hosts, job, "--grep", "^line").stdout.splitlines() == expected
    assert run("logs", hosts, job, "--rank", "0-1", "--tail", 3).stdout.splitlines() == expected[-3:]
    timed = run("logs", hosts, job, "--rank", "0-1", "--times").stdout.splitlines()
    assert [line.partition(" ")[2] for line in timed] == expected
    instants = [line.partition(" ")[0] for line in timed]
    assert all(len(instant) == len("14:02:11.042") for instant in instants)
    one_stream = run("logs", hosts, job, "--grep", "line", "--tail", 1).stdout
    assert one_stream == f"{expected[-1]}\n"
