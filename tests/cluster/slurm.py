"""A real Slurm on nodes of a rig: the first is login node and controller, all run slurmd. Stopped on exit."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from rig import Node

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol")
DEADLINE_S = 60.0

_CONF = """\
ClusterName=gct
SlurmctldHost={controller}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={inside}/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
StateSaveLocation={inside}/state
SlurmdSpoolDir={inside}/spool
SlurmctldPidFile={inside}/slurmctld.pid
SlurmdPidFile={inside}/slurmd.pid
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{settings}
"""


def missing() -> str:
    """Why Slurm cannot run here; empty if it can."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
    lacking = [program for program in PROGRAMS if not shutil.which(program, path=path)]
    return f"no {', '.join(lacking)} (Debian: slurmctld slurmd slurm-client munge)" if lacking else ""


class Slurm:
    """`with Slurm(nodes, folder) as slurm:`; in `slurm.environment` its commands are first in PATH.

    `settings`: further lines of slurm.conf.
    """

    def __init__(self, nodes: Sequence[Node], folder: Path, settings: str = "") -> None:
        self._settings = settings
        self.nodes = self._nodes = nodes
        self._daemons = list[subprocess.Popen[bytes]]()
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        self._env = {"SLURM_CONF": f"{nodes[0].inside}/slurm.conf", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        for command in ("squeue", "scontrol", "srun"):
            path = self._bin / command
            target = nodes[0].outer_pid(1)
            argv = ["nsenter", f"--target={target}", "--mount", "--uts", "--net", "--pid", "--", "env",
                     f"SLURM_CONF={self._env['SLURM_CONF']}", f"/usr/bin/{command}"]  # fmt: skip
            path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
            path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a login node."""
        return {**os.environ, "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}"}

    def __enter__(self) -> Slurm:
        key = secrets.token_bytes(128)
        first = self._nodes[0]
        lines = [f"NodeName={node.name} NodeAddr={node.address} CPUs=1 State=UNKNOWN" for node in self._nodes]
        conf = _CONF.format(controller=first.name, address=first.address, inside=first.inside, nodes="\n".join(lines),
                            settings=self._settings)  # fmt: skip
        try:
            for node in self._nodes:
                (node.folder / "slurm.conf").write_text(conf)
                (node.folder / "munge.key").write_bytes(key)
                (node.folder / "munge.key").chmod(0o400)
                for name in ("state", "spool"):
                    (node.folder / name).mkdir()
                self._start(node, "munged", "--foreground", "--force", *(
                    f"--{option}={node.inside}/munge.{suffix}"
                    for option, suffix in (("key-file", "key"), ("socket", "sock"), ("pid-file", "pid"),
                                      ("log-file", "log"), ("seed-file", "seed"))
                ))  # fmt: skip
            self._start(first, "slurmctld", "-D")
            for node in self._nodes:
                self._start(node, "slurmd", "-D", "-N", node.name)
            self._wait("sinfo", "--noheader", "--format=%t %D", until=f"idle {len(self._nodes)}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def submit(self, script: str, nodes: int) -> str:
        """Submit a job with one task per node and wait until it runs; its id."""
        path = self._nodes[0].folder / "job.sh"
        path.write_text(script)
        inside = f"{self._nodes[0].inside}/job.sh"
        job = self.ask("sbatch", "--parsable", f"--nodes={nodes}", "--output=/dev/null", "--chdir=/", inside).strip()
        self._wait("squeue", "--noheader", f"--jobs={job}", "--format=%T", until="RUNNING")
        return job

    def ask(self, *argv: str) -> str:
        """The output of a command on the login node."""
        return self._nodes[0].output(argv, env=self._env)

    def _start(self, node: Node, *argv: str) -> None:
        log = (node.folder / f"{argv[0]}.out").open("wb")
        self._daemons.append(node.run(argv, env=self._env, stdout=log, stderr=log))

    def _wait(self, *argv: str, until: str) -> None:
        deadline, answer = time.monotonic() + DEADLINE_S, ""
        while answer.strip() != until:
            assert time.monotonic() < deadline, f"{argv[0]} returned {answer!r}, expected {until!r}: {self._logs()}"
            time.sleep(0.2)
            try:
                answer = self.ask(*argv)
            except subprocess.CalledProcessError as error:
                answer = str(error)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for node in self._nodes for path in node.folder.glob("*.out"))
