"""Runs the program as a user would, and reads what it left."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server
from fork_server import GCONSOLE

__all__ = ["GCONSOLE", "Run", "batch", "gconsole", "run_program"]


@dataclass(frozen=True)
class Run:
    """One finished run: its exit code, what it printed, and its report where one was asked for."""

    status: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    def node(self, name: str) -> dict[str, Any]:
        return next(line for line in self.report["nodes"] if line["node"] == name)


def gconsole(*args: object, deadline_s: float = 90.0, env: Mapping[str, str] | None = None, home: Any = None) -> Run:
    """Run `gconsole …`; `home` is a rig's SshHome whose ssh configuration the program shall see."""
    return run_program([GCONSOLE, *args], deadline_s=deadline_s, env=env, home=home)


def run_program(
    args: Sequence[object], deadline_s: float = 90.0, env: Mapping[str, str] | None = None, home: Any = None
) -> Run:
    """Run any program so."""
    argv = [str(argument) for argument in args]
    options: dict[str, Any] = {"env": env} if env else {}
    if home and os.geteuid() == 0:  # as SshHome.popen, for a forked command
        options = {"env": {**(env or os.environ), "HOME": str(home.path)}, "passwd": home.passwd}
    elif home:
        options = {"env": home.env(env)}
    process = fork_server.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired as error:  # a process that it started holds its output open
            out, err = str(error.stdout), str(error.stderr)
        raise AssertionError(f"{' '.join(argv)} did not end within {deadline_s:g} s:\n{out}\n{err}") from None
    return Run(process.returncode, out, err, {})


def batch(hosts: Path, *args: object, **options: Any) -> Run:
    """`gconsole batch HOSTS -o report.json …` beside the hosts file, with its report."""
    path = hosts.with_suffix(".report.json")
    path.unlink(missing_ok=True)
    run = gconsole("batch", hosts, "-o", path, *args, **options)
    report = json.loads(path.read_text()) if path.exists() else {}
    return Run(run.status, run.stdout, run.stderr, report)
