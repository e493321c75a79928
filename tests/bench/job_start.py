"""Time from `gconsole run start` to the first line of every rank on 8 nodes, compared with `clush`."""

from __future__ import annotations

import compileall
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rig import Rig
from rig.detect import tool

import gconsole as package

from .result import Outcome, Row, middle

NODES, PAIRS = 8, 9
#: Of the median of the ratios of pairs that ran one after the other.
GOAL = 1.2
WORD = "ready"


def measure(quick: bool) -> Outcome:
    tool("ssh")  # clush runs it
    pairs = 1 if quick else PAIRS
    # as pip does for both programs when they are installed: a checkout has no bytecode, where Python may not write it
    compileall.compile_dir(Path(package.__file__).parent, quiet=1)
    with Rig(nodes=NODES, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
        ssh_config = Path(scratch, "ssh_config")
        ssh_config.write_text(rig.ssh_config_text())
        names = ",".join(node.name for node in rig.nodes)
        programs = Path(sys.executable).parent
        gconsole = [
            str(programs / "gconsole"), "run", "start", str(target), "--yes", "--follow", "--nodes", str(NODES),
            "--gpus-per-node", "0", "--launcher", "env", "--", "echo", WORD,
        ]  # fmt: skip
        clush = [str(programs / "clush"), "-w", names, "-f", str(NODES), "-o", f"-F {ssh_config}", "echo", WORD]
        _run(gconsole)  # warm
        runs = [(_run(gconsole), _run(clush)) for _ in range(pairs)]
    ratio, ratio_of_ends = (statistics.median(getattr(own, part) / getattr(peer, part) for own, peer in runs)
                            for part in ("line_s", "end_s"))  # fmt: skip
    lines, peer_lines = [own.line_s for own, _ in runs], [peer.line_s for _, peer in runs]
    ends, peer_ends = [own.end_s for own, _ in runs], [peer.end_s for _, peer in runs]
    return Outcome(
        [
            Row(f"start of a job to the first line of all ranks on {NODES} nodes", middle(lines, "s"),
                f"≤ {GOAL} × clush", ratio <= GOAL, peer=f"clush {middle(peer_lines, 's')}", ratio=ratio),
            Row("the same, until the command has ended", middle(ends, "s"), peer=f"clush {middle(peer_ends, 's')}",
                ratio=ratio_of_ends),
        ],
        [
            "whole processes from exec to the line; ours connects, looks at every node once, plans, asks the nodes,"
            " prepares and begins on all, and reads the lines back from files; clush runs the command and passes its"
            " output on: no plan, nothing detached, no state",
            "in turns; the ratio is the median of those of the pairs",
        ],
        [
            "asyncssh no longer runs ldconfig, gcc and ld to search for liboqs: 17 ms of 250 ms of imports, more on a"
            " busy machine",
            "the supervisor is forked from the agent, before its threads, instead of a new Python that compiles its"
            " source: kept; the agents of `gconsole run` start 9 of 17 samplers, and load no psutil: kept; the CPU of"
            " 8 nodes, logins included, is 0.97 s instead of 1.55 s, that of both sides 1.61 s instead of 2.18 s, and"
            " that of clush 1.20 s (medians of 6 rounds in turns, by the accounting of cgroups, at a load of 20 on 2"
            " cores)",
            "no shutil in the preflight, no modules of the output of failed jobs before one failed: kept; within the"
            " above",
            "docstrings and remarks are stripped from the agent's sources by patterns that begin with a text: kept; 98"
            " instead of 142 ms of the CPU of the console, at that load; a payload in a file would save the rest; it is"
            " not done: that file would be code that runs on all nodes; since 2026-11-30 a file has its digest, and it"
            " is packed only for a node that requests it: 5 instead of 60 ms of CPU on a quiet EPYC",
            "bytecode beside the source of the supervisor: 38 instead of 49 ms of its CPU in one round, the same in"
            " another; not kept, now without object",
            "bytecode of gconsole itself: where PYTHONDONTWRITEBYTECODE is set, a checkout compiles its 250 modules at"
            " each start, which pip does once; compiled before now",
            "timeline before: of 0.96 s, 0.25 s imports, 0.13 s login, 0.30 s until the first sample of agents (each 60"
            " to 80 ms of CPU, half of it imports), 0.04 s plan, 0.22 s prepare and begin (supervisors: 8 × 45 ms of"
            " CPU)",
            "timeline on 2026-11-29, a quiet Xeon on which clush takes 0.64 s: 0.14 s until the program begins, 0.16 s"
            " further imports (asyncssh 0.085), 0.15 s login, 0.3 s agents, 0.07 s first sample and plan, 0.05 s begin,"
            " 0.04 s the line; CPU of both sides 1.52 s, of clush 1.20 s: during the imports the second core is idle",
            "names of environment variables listed only if one is set, and no importlib.metadata before a binary is"
            " sent: 1.31 before and after, left out at first; kept since 2026-11-30 together with the next",
            "2026-11-30, in turns with the commit before and with clush, a quiet EPYC, 12 rounds each: with the digest"
            " 1.29 instead of 1.39 × clush; the patterns of kernel faults and of secrets compiled for the first message"
            " with one of their words, a decoder for each kind of record when it comes, no ldconfig: 1.20 instead of"
            " 1.37; the state of a job sent without waiting 20 ms for other records: 1.195 instead of 1.376; only the"
            " sections of the configuration that a node may set listed, and no settings sent again that the start frame"
            " had: 1.10 and 1.14 instead of 1.35 and 1.36",
            "the ratio is worse where clush is faster: this bench gave 1.12 and 1.10, where clush took 0.52 and 0.60 s,"
            " and 1.21 three quarters of an hour later, where it took 0.48 s; records noticed as they arrive instead of"
            " by polling: 1.23 instead of 1.28 then, kept",
            "TCP connections begun while asyncssh is imported in a thread, so that sshd starts its processes meanwhile:"
            " 1.14 and 1.15 instead of 1.16 and 1.13, 37 rounds in turns, the machine being slower than before: not"
            " kept; the import takes as long as before, and the work of all processes stays the same",
            "the end: 1.0 instead of 3.8 s, because an agent reports the end of a job after its followed output, for"
            " which the console waited 2 s after the last line; kept",
        ],
    )  # fmt: skip


class Times(NamedTuple):
    """Seconds from the start of a program until it has printed the line of every node, and until it has ended."""

    line_s: float
    end_s: float


def _run(argv: list[str]) -> Times:
    began = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        count, took_s = 0, None
        for line in process.stdout:
            writer, _, text = line.strip().rpartition(" ")
            if text == WORD and writer.endswith(("]", ":")):
                count += _ranks(writer)
            if count == NODES and took_s is None:
                took_s = time.perf_counter() - began
        errors = process.communicate()[1]
    assert took_s is not None, f"{argv}: {errors}"
    return Times(took_s, time.perf_counter() - began)


def _ranks(writer: str) -> int:
    """How many nodes wrote a line: `[0-3,5]` of gconsole names their ranks, `node1:` of clush is one."""
    if not writer.startswith("["):
        return 1
    ends = [part.partition("-") for part in writer.strip("[]").split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)
