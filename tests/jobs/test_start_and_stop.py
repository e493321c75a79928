"""Atomic start, a console that is killed and restarted, a node that is disconnected, two jobs at once."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import fork_server
from program import GCONSOLE, gconsole, run_program
from rig import Node, Rig
from run_command import PLAIN, list_jobs, processes_of, run, start_job, until

#: Occupies the port.
LISTEN = """
import socket, time
taken = socket.socket()
taken.bind(("0.0.0.0", 29777))
taken.listen()
print("up", flush=True)
time.sleep(600)
"""


def job_options(folder: str, *args: object, nodes: int = 2, procs: int = 1) -> list[object]:
    return ["--nodes", nodes, "--procs-per-node", procs, "--launcher", "env", "--workdir", folder, *args]


def hosts_of_two(rig: Rig, folder: Path, **changes: object) -> Path:
    """A hosts file with only two nodes: each command starts an agent on each node of its hosts file."""
    return rig.write_hosts_toml(folder / "hosts.toml", only=["node1", "node2"], **changes)


def state_of(hosts: Path, job: str) -> str:
    [matching] = [the_job for the_job in list_jobs(hosts) if the_job["job"] == job]
    return matching["state"]


def test_plan_starts_nothing_and_lists_the_nodes_of_the_job(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    folder = script("plain.py", PLAIN)
    result = run("plan", hosts, *job_options(folder, nodes=3), "--", "python3", "plain.py")
    assert result.status == 0, result.stdout + result.stderr
    assert f"rendezvous {rig.nodes[0].address}:" in result.stdout
    assert "– node4: not needed" in result.stdout
    assert processes_of(rig, "plain.py") == []
    json_result = run("plan", hosts, "--json", *job_options(folder, nodes=3), "--", "python3", "plain.py")
    assert list(json.loads(json_result.stdout)["plan"]["orders"]) == ["node1", "node2", "node3"]


def test_plan_fails_when_the_work_folder_is_missing_on_nodes(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    script("plain.py", PLAIN)
    result = run("plan", hosts, *job_options("/no/such/folder", nodes=4), "--", "python3", "plain.py")
    assert result.status == 1
    assert "node[1-4]: folder /no/such/folder does not exist" in result.stdout


def test_start_that_fails_on_one_node_leaves_no_processes_on_any(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    folder = script("program", "#!/bin/sh\nsleep 600\n")
    for node in rig.nodes:
        (node.folder / "program").chmod(0o755)
    (rig.nodes[2].folder / "program").write_text("#!/nonexistent/interpreter\n")  # it exists but cannot be executed
    before = len(list_jobs(hosts))
    result = run("start", hosts, "--yes", *job_options(folder, nodes=4), "--", "./program")
    assert result.status == 1, result.stdout + result.stderr
    assert "✖ node3" in result.stderr
    assert "No such file" in result.stderr
    assert "no processes left" in result.stderr
    assert processes_of(rig, "sleep 600") == []
    assert len(list_jobs(hosts)) == before


def test_a_port_taken_between_plan_and_start_starts_nothing(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("plain.py", PLAIN)
    options = job_options(folder, "--port", 29777)
    argv = [GCONSOLE, "run", "start", hosts, *options, "--", "python3", "plain.py", "x"]
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(list(map(str, argv)), stdin=terminal, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    os.close(terminal)
    try:
        plan = ""
        while "node2  rank" not in plan:  # the plan is printed, and the prompt waits
            line = process.stdout.readline()
            assert line, "it ended before the prompt"
            plan += line
        taker = rig.nodes[0].run(["python3", "-c", LISTEN], stdout=subprocess.PIPE, text=True)
        try:
            assert taker.stdout.readline() == "up\n"
            os.write(keyboard, b"y\n")
            _, errors = process.communicate(timeout=60)
        finally:
            taker.kill()
            taker.wait()
    finally:
        os.close(keyboard)
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "port 29777 was taken after the job was planned" in errors
    assert "start again" in errors
    assert processes_of(rig, "plain.py") == []


def test_concurrent_jobs_have_separate_ports_and_stop_independently(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("plain.py", PLAIN)
    first_job = start_job(hosts, *job_options(folder), "--", "python3", "plain.py", "go-one")
    second_job = start_job(hosts, *job_options(folder), "--", "python3", "plain.py", "go-two")
    ports = {job["ordered"]["master_port"] for job in list_jobs(hosts) if job["job"] in (first_job, second_job)}
    assert len(ports) == 2
    assert run("stop", hosts, first_job, "--yes").status == 0
    assert (state_of(hosts, first_job), state_of(hosts, second_job)) == ("stopped", "running")
    for node in rig.nodes[:2]:
        (node.folder / "go-two").touch()
    assert run("wait", hosts, second_job, "--timeout", "60s").status == 0
    assert "[0-1] bye" in run("logs", hosts, second_job).stdout
    assert processes_of(rig, "plain.py") == []


def test_job_survives_its_killed_console_and_is_found_by_the_next(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("plain.py", PLAIN)
    argv = [GCONSOLE, "run", "start", hosts, "--yes", "--follow", *job_options(folder), "--",
            "python3", "plain.py", "go-on"]  # fmt: skip
    console = fork_server.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        until(lambda: len(processes_of(rig, "plain.py go-on")) == 2)
    finally:
        os.kill(console.pid, signal.SIGKILL)
        console.communicate()
    [job] = [the_job for the_job in list_jobs(hosts) if the_job["state"] == "running"]
    assert len(processes_of(rig, "plain.py go-on")) == 2
    cleaned = gconsole("clean", hosts)
    assert cleaned.status == 3
    assert f"jobs are running: {job['job']}" in cleaned.stdout
    for node in rig.nodes[:2]:
        (node.folder / "go-on").touch()
    assert run("wait", hosts, job["job"], "--timeout", "60s").status == 0


def test_pending_stop_is_executed_when_a_cut_node_reconnects(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path, ssh={"connect_timeout_s": 3.0})
    folder = script("plain.py", PLAIN)
    job = start_job(hosts, *job_options(folder), "--", "python3", "plain.py", "never")
    rig.nodes[1].down()
    try:
        result = run("stop", hosts, job, "--yes", "--grace", "2s")
        assert result.status == 3, result.stdout + result.stderr
        assert "node2  unknown: " in result.stdout
        assert "node2 unreachable; the next `gconsole run` that connects stops it there" in result.stderr
        assert len(processes_of(rig, "plain.py never")) == 1
    finally:
        rig.nodes[1].up()
    status = run("status", hosts, "--set", "ssh.connect_timeout_s=60")
    assert f"pending stop of {job} on node2: stopped: 1 process ended, nothing left" in status.stderr
    assert processes_of(rig, "plain.py never") == []
    again = run("stop", hosts, job, "--yes", "--grace", "2s")
    assert again.status == 0, again.stdout + again.stderr


def test_job_output_of_a_cut_node_is_delivered_after_reconnecting(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path, ssh={"connect_timeout_s": 3.0})
    job = start_job(hosts, *job_options(script("plain.py", PLAIN)), "--", "python3", "plain.py", "go-on-cut")
    following = follow_both_ranks(hosts, job)
    rig.nodes[1].down()
    try:
        for node in rig.nodes[:2]:
            (node.folder / "go-on-cut").touch()
        until(lambda: not processes_of(rig, "plain.py go-on-cut"))
    finally:
        rig.nodes[1].up()
    remaining, errors = following.communicate(timeout=90)
    assert following.returncode == 0, errors
    assert remaining.count("bye") == 2 or "[0-1] bye" in remaining, remaining
    assert run("wait", hosts, job, "--timeout", "60s").status == 0
    assert state_of(hosts, job) == "completed"


def test_follow_goes_on_with_the_next_agent_and_says_that_lines_are_missing(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    job = start_job(hosts, *job_options(script("plain.py", PLAIN)), "--", "python3", "plain.py", "go-again")
    node, others = rig.nodes[1], agent_pids(rig.nodes[1])
    following = follow_both_ranks(hosts, job)
    ended = agent_pids(node) - others
    assert ended
    node.output(["sh", "-c", f"kill -9 {' '.join(ended)}; true"])  # the process for the next job ends with its agent
    until(lambda: agent_pids(node) - others - ended)
    warning = following.stderr.readline()
    while "again" not in warning:
        warning = following.stderr.readline()
        assert warning
    for each in rig.nodes[:2]:
        (each.folder / "go-again").touch()
    remaining, errors = following.communicate(timeout=90)
    assert "node2: its agent was started again; lines that the job wrote there meanwhile are missing here." in warning
    assert remaining.count("bye") == 2 or "[0-1] bye" in remaining, remaining
    assert "of 2" not in remaining
    assert following.returncode == 3, errors


def follow_both_ranks(hosts: Path, job: str) -> fork_server.Popen:
    """A command that follows the output of a job, and has printed the first line of its two ranks."""
    argv = [GCONSOLE, "run", "logs", hosts, job, "--follow"]
    following = fork_server.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = ""
    while not all(f"rank {rank} of 2" in output for rank in (0, 1)):
        line = following.stdout.readline()
        assert line, following.communicate()[1]
        output += line
    return following


def agent_pids(node: Node) -> set[str]:
    """Agents on a node, and processes that they have forked."""
    return {line.split()[0] for line in node.ps().splitlines() if "import sys,zlib" in line}


def test_stop_with_wait_option_waits_for_a_disconnected_node(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path, ssh={"connect_timeout_s": 3.0})
    folder = script("plain.py", PLAIN)
    job = start_job(hosts, *job_options(folder), "--", "python3", "plain.py", "never")
    rig.nodes[1].down()
    try:
        argv = [GCONSOLE, "run", "stop", hosts, job, "--yes", "--grace", "2s", "--wait", "60s"]
        stopping = fork_server.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = stopping.stdout.readline()
    finally:
        rig.nodes[1].up()
    remaining, errors = stopping.communicate(timeout=90)
    assert "node1  stopped: 1 process ended, nothing left" in first
    assert "node2  stopped: 1 process ended, nothing left" in remaining, errors
    assert stopping.returncode == 0
    assert processes_of(rig, "plain.py never") == []


def test_ranks_of_a_started_job_are_listed_by_ps(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("plain.py", PLAIN)
    job = start_job(hosts, *job_options(folder), "--", "python3", "plain.py", "go-see")
    try:
        listed = gconsole("ps", hosts)
        assert any("0-1" in line and "plain.py go-see" in line for line in listed.stdout.splitlines()), listed.stdout
    finally:
        assert run("stop", hosts, job, "--yes").status == 0


#: Runs `gconsole` and writes the names of what it has loaded to the file {path}.
LOADED = """
import atexit, sys

from gconsole.cli.main import main

atexit.register(lambda: open({path!r}, "w").write(" ".join(sys.modules)))
main()
"""


def test_start_and_follow_load_neither_sessions_nor_the_analyses_of_hangs_and_crashes(rig: Rig, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    program = [sys.executable, "-c", LOADED.format(path=str(loaded))]
    options = ["--yes", "--follow", "--nodes", 2, "--gpus-per-node", 0, "--launcher", "env", "--", "echo", "ready"]
    result = run_program([*program, "run", "start", hosts_of_two(rig, tmp_path), *options])
    assert "[0-1] ready" in result.stdout, result.stdout + result.stderr
    heavy = ("session", "monitor.hang", "monitor.crash", "analysis.hang", "analysis.crash", "analysis.collectives")
    rooms = tuple(f"gconsole.{room}" for room in heavy)
    assert [name for name in loaded.read_text().split() if name.startswith(rooms)] == []
