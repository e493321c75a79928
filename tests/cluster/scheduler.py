"""Fake Slurm and Kubernetes commands over the nodes of a rig: squeue, scontrol, srun, kubectl.

They accept the options that gconsole uses and reject others, print the messages of the real ones (Slurm 22.05, kubectl
1.30), and run a command in a node's namespaces with the environment that the real ones set.
As a program: `scheduler.py STATE COMMAND …`; STATE is a JSON file that `Scheduler` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

COMMANDS = ("squeue", "scontrol", "srun", "kubectl")


class Scheduler:
    """A folder with the commands, and the jobs and pods they report."""

    def __init__(self, folder: Path, pids: Mapping[str, int]) -> None:
        """`pids`: process 1 of each node, by name."""
        self._state = folder / "state.json"
        self._known: dict[str, Any] = {"pids": dict(pids), "jobs": {}, "pods": [], "forbidden": False}
        self._save()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for command in COMMANDS:
            path = self.bin / command
            command_line = shlex.join([sys.executable, str(Path(__file__)), str(self._state), command])
            path.write_text(f'#!/bin/sh\nexec {command_line} "$@"\n')
            path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which these commands are first in PATH."""
        return {**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "SECRET_OF_THE_LOGIN_NODE": "x"}

    def job(self, number: str, nodes: str, state: str = "RUNNING", down: Sequence[str] = ()) -> None:
        """Add a Slurm job; `nodes` as a Slurm host list, of which those that are `down` take no step."""
        self._known["jobs"][number] = {"state": state, "nodes": nodes, "down": list(down)}
        self._save()

    def pod(self, name: str, node: str, labels: Mapping[str, str], phase: str = "Running") -> None:
        """Add a pod in the namespace `training`, whose container is a node of the rig."""
        self._known["pods"].append({"name": name, "node": node, "labels": dict(labels), "phase": phase})
        self._save()

    def event(self, pod: str, reason: str, message: str, at: str, count: int = 1) -> None:
        """Add a warning of the cluster about a pod."""
        self._known.setdefault("events", []).append({
            "metadata": {"uid": f"{pod}.{reason}"}, "involvedObject": {"kind": "Pod", "name": pod}, "type": "Warning",
            "reason": reason, "message": message, "count": count, "firstTimestamp": at, "lastTimestamp": at,
            "eventTime": None, "source": {"component": "kubelet"},
        })  # fmt: skip
        self._save()

    def restarts(self, pod: str, count: int, **terminated: object) -> None:
        """A container of the pod was restarted after it ended so."""
        self._known.setdefault("restarts", {})[pod] = {"count": count, "terminated": terminated}
        self._save()

    def forbid(self) -> None:
        """Reject all further commands in pods."""
        self._known["forbidden"] = True
        self._save()

    def _save(self) -> None:
        self._state.write_text(json.dumps(self._known))


def main() -> None:
    state, command, *args = sys.argv[1:]
    {"squeue": squeue, "scontrol": scontrol, "srun": srun, "kubectl": kubectl}[command](
        json.loads(Path(state).read_text()), args
    )


def squeue(state: dict[str, Any], args: list[str]) -> None:
    parser = argparse.ArgumentParser("squeue", allow_abbrev=False)
    parser.add_argument("--noheader", action="store_true", required=True)
    parser.add_argument("--jobs", required=True)
    parser.add_argument("--format", choices=["%T %N"], required=True)
    job = state["jobs"].get(parser.parse_args(args).jobs)
    if job is None:
        fail("slurm_load_jobs error: Invalid job id specified")
    print(job["state"], job["nodes"])


def scontrol(state: dict[str, Any], args: list[str]) -> None:
    verb, noun, folded = args
    assert (verb, noun) == ("show", "hostnames"), args
    head, _, numbers_text = folded.rstrip("]").partition("[")
    first, _, last = numbers_text.partition("-")
    numbers = range(int(first), int(last) + 1) if numbers_text else ()
    print("\n".join(f"{head}{number}" for number in numbers) or folded)


def srun(state: dict[str, Any], args: list[str]) -> None:
    parser = argparse.ArgumentParser("srun", allow_abbrev=False)
    for name in ("jobid", "nodelist", "nodes", "ntasks", "ntasks-per-node", "cpu-bind", "export", "wait",
                 "kill-on-bad-exit"):  # fmt: skip
        parser.add_argument(f"--{name}", required=True)
    for name in ("overlap", "label", "no-kill", "quiet"):
        parser.add_argument(f"--{name}", action="store_true", required=True)
    split = args.index("--")
    options, command = parser.parse_args(args[:split]), args[split + 1 :]
    job = state["jobs"].get(options.jobid)
    if job is None or job["state"] != "RUNNING":
        fail("srun: error: Unable to confirm allocation for job: Invalid job id specified")
    nodes = options.nodelist.split(",")
    count = str(len(nodes))
    assert (options.nodes, options.ntasks, options.ntasks_per_node) == (count, count, "1")
    if set(nodes) & set(job.get("down", ())):
        fail("srun: error: Unable to create step for job: Requested node configuration is not available")
    own = {name: os.environ[name] for name in options.export.split(",") if name in os.environ}
    run_step(state, nodes, command, own)


def run_step(state: dict[str, Any], nodes: list[str], command: list[str], env: dict[str, str]) -> NoReturn:
    """One task on each node; all get the standard input, and their lines are labelled."""
    tasks = []
    for number, node in enumerate(nodes):
        own = {**env, "SLURM_PROCID": str(number), "SLURMD_NODENAME": node}
        tasks.append(subprocess.Popen(
            on_node(state, node, command), env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ))  # fmt: skip
    threading.Thread(target=broadcast, args=(tasks,), daemon=True).start()
    copying = []
    for number, task in enumerate(tasks):
        label = f"{number:>{len(str(len(nodes) - 1))}}: ".encode()
        for source, target in ((task.stdout, 1), (task.stderr, 2)):
            copying.append(threading.Thread(target=copy_lines, args=(label, source, target)))
    for thread in copying:
        thread.start()
    for number, task in enumerate(tasks):
        status = task.wait()
        if status:
            how = f"Exited with exit code {status}" if status > 0 else "Killed"
            os.write(2, f"srun: error: {nodes[number]}: task {number}: {how}\n".encode())
    for thread in copying:
        thread.join()
    os._exit(max(task.returncode for task in tasks) & 255)


def broadcast(tasks: list[subprocess.Popen[bytes]]) -> None:
    while data := os.read(0, 1024):
        for task in tasks:
            with suppress(OSError):
                task.stdin.write(data)
                task.stdin.flush()
    for task in tasks:
        with suppress(OSError):
            task.stdin.close()


def copy_lines(label: bytes, source: Any, target: int) -> None:
    for line in source:
        pieces = [line[start : start + 1024].rstrip(b"\n") for start in range(0, len(line), 1024)]
        data = b"".join(label + piece + b"\n" for piece in pieces)
        while data:  # a line in one write: those of other tasks come between lines
            data = data[os.write(target, data) :]


def kubectl(state: dict[str, Any], args: list[str]) -> None:
    if args[:2] == ["get", "events"]:
        assert args[2:] == [
            "--namespace=training",
            "--field-selector=involvedObject.kind=Pod,type!=Normal",
            "-o",
            "json",
        ]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": state.get("events", [])}))
        return
    if args[:6] == ["get", "pods", "--namespace=training", "-o", "json", "--ignore-not-found"]:
        found = [described(pod, state) for pod in state["pods"] if pod["name"] in args[6:]]
        many = {"apiVersion": "v1", "kind": "List", "items": found}
        print(json.dumps(many if len(args) > 7 else found[0]) if found else "")
        return
    if args[:2] == ["get", "pods"]:
        parser = argparse.ArgumentParser("kubectl", allow_abbrev=False)
        for name in ("--namespace", "--selector", "-o"):
            parser.add_argument(name, required=True)
        options = parser.parse_args(args[2:])
        wanted = dict(part.split("=") for part in options.selector.split(","))
        here = state["pods"] if options.namespace == "training" else []
        pods = [pod for pod in here if wanted.items() <= pod["labels"].items()]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": [described(pod) for pod in pods]}))
        return
    verb, stdin, namespace, name, container, dashes, *command = args
    assert (verb, stdin, dashes) == ("exec", "--stdin", "--"), args
    assert (namespace, container) == ("--namespace=training", "--container=trainer"), args
    pod = next((pod for pod in state["pods"] if pod["name"] == name), None)
    if state["forbidden"]:
        fail(f'Error from server (Forbidden): pods "{name}" is forbidden: User "me" cannot create resource "pods/exec"')
    if pod is None:
        fail(f'Error from server (NotFound): pods "{name}" not found')
    env = {"PATH": os.environ["PATH"], "HOME": "/root"}
    status = subprocess.run(on_node(state, pod["node"], command), env=env, check=False).returncode
    if status:
        print(f"command terminated with exit code {status}", file=sys.stderr)
    sys.exit(status)


def described(pod: dict[str, Any], state: dict[str, Any] | None = None) -> dict[str, Any]:
    restarts = (state or {}).get("restarts", {}).get(pod["name"])
    statuses = [{
        "name": "trainer", "restartCount": restarts["count"], "state": {"running": {}},
        "lastState": {"terminated": restarts["terminated"]},
    }] if restarts else []  # fmt: skip
    containers = [{"name": name, "image": "registry.example/x"} for name in ("proxy", "trainer")]
    return {
        "metadata": {"name": pod["name"], "annotations": {"kubectl.kubernetes.io/default-container": "trainer"}},
        "spec": {"containers": containers, "nodeName": pod["node"]},
        "status": {"phase": pod["phase"], "containerStatuses": statuses},
    }


def on_node(state: dict[str, Any], node: str, command: list[str]) -> list[str]:
    pid = state["pids"][node]
    return ["nsenter", f"--target={pid}", "--mount", "--uts", "--net", "--pid", "--", *command]


def fail(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
