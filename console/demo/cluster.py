"""The demo's cluster: one process that runs the SSH servers of all nodes, launches the job, and removes both.

`demo_cluster` starts it as `python -m gconsole.demo.cluster NODES RANKS GPUS HANG`, keeps its standard input open, and
reads one line: the path of the hosts.toml. A line on the input makes the job hang. When the input ends, the cluster
kills all its processes and removes its folder. If it is killed itself, the kernel kills its ranks (PR_SET_PDEATHSIG),
and its agents exit because their input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .job import DemoJob

if TYPE_CHECKING:
    from .server import NodeServer

#: Environment variable that identifies the node of a process: all nodes of a demo share one process table.
MARK = "GCONSOLE_DEMO_NODE"
#: Variables of this environment that logins on nodes inherit; others, such as those of a Slurm job, are left out.
INHERITED = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
USER = "demo"
#: Classes of the calls in ring.py, as for any framework that gconsole has no model of.
MODELS = (
    r"p2p recv (^|/)ring\.py$",
    r"collective all_reduce|broadcast|send|receive|receive_exactly (^|/)ring\.py$",
    r"group_setup join|wait_for_neighbour (^|/)ring\.py$",
    r"dataloader next_batch (^|/)ring\.py$",
    r"python_lock save_metrics (^|/)ring\.py$",
)


#: Variables of ring.py's training loop.
WATCHED = ("step", "loss")


def node_names(nodes: int) -> list[str]:
    """Names of the demo nodes."""
    return [f"demo{number}" for number in range(1, nodes + 1)]


async def run(nodes: int, ranks: int, gpus: int, hang: str) -> None:
    """Serve until standard input ends."""
    demo = secrets.token_hex(4)  # nodes of two demos on one machine have the same names
    marks = [f"{name}-{demo}" for name in node_names(nodes)]
    login = {key: os.environ[key] for key in INHERITED if key in os.environ}
    environments = [{**login, MARK: mark} for mark in marks]
    folder = Path(tempfile.mkdtemp(prefix="gconsole-demo-"))  # 0700
    job = DemoJob(ranks, environments, hang, folder)
    end = _watch_input(job)
    servers: list[NodeServer] = []
    try:
        await job.start()
        import asyncssh  # takes 0.25 s, while the ranks start

        from .server import NodeServer

        key = asyncssh.generate_private_key("ssh-ed25519")
        servers += [NodeServer(key, environment) for environment in environments]
        for server in servers:
            await server.start()
        (folder / "id_ed25519").touch(0o600)
        (folder / "id_ed25519").write_bytes(key.export_private_key("openssh"))
        (folder / "known_hosts").write_text("".join(server.known_hosts_line for server in servers))
        hosts = folder / "hosts.toml"
        hosts.write_text(_hosts_toml(folder, gpus, marks, [server.port for server in servers]), encoding="utf-8")
        print(hosts, flush=True)
        await end.wait()
    finally:
        try:
            await asyncio.gather(job.stop(), *(server.stop() for server in servers))
        finally:
            shutil.rmtree(folder)


def _watch_input(job: DemoJob) -> asyncio.Event:
    """An event that is set when standard input ends or a signal arrives; input before makes the job hang."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end.set)

    def read() -> None:
        if os.read(0, 1024):
            job.trigger_hang()
            return
        loop.remove_reader(0)
        end.set()

    loop.add_reader(0, read)
    return end


def _hosts_toml(folder: Path, gpus: int, marks: list[str], ports: list[int]) -> str:
    """The hosts.toml of these nodes."""
    common = f"""\
[cluster]
name = "demo"

[ssh]
user = {_quoted(USER)}
identity_file = {_quoted(folder / "id_ed25519")}
known_hosts = {_quoted(folder / "known_hosts")}
jump = "none"

[agent]
python = {_quoted(sys.executable)}
ephemeral = true
simulate_gpus = {gpus}

[hang]
models = [{", ".join(map(_quoted, MODELS))}]

[watch]
locals = [{", ".join(map(_quoted, WATCHED))}]
"""
    entries = [
        f"""
[[nodes]]
hosts = {_quoted(name)}
address = "127.0.0.1"
port = {port}
process_filter = {_quoted(f"env:{MARK}={mark}")}
"""
        for name, mark, port in zip(node_names(len(marks)), marks, ports, strict=True)
    ]
    return common + "".join(entries)


def _quoted(text: object) -> str:
    """A TOML string: JSON's quoting without escaped surrogates is a subset of TOML's."""
    return json.dumps(str(text), ensure_ascii=False)


if __name__ == "__main__":
    nodes, ranks, gpus = map(int, sys.argv[1:4])
    asyncio.run(run(nodes, ranks, gpus, sys.argv[4]))
