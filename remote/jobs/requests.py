"""The requests of `gconsole run` to a node: probe, prepare, begin, drop and stop a job, and read output and files.

A start has two phases, so that it is all or nothing: every node prepares (nothing runs yet), then every node begins.
"""

import binascii
import os
import sys
import time

from ..agent import commands
from ..agent.requests import RequestError
from ..clocks import stamps
from ..proc.activity import state_of
from ..proc.procfs import ProcFs
from . import job_dir, preflight, python_check, supervisor, terminate_processes
from .output import Follower, tail_offset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..agent.agent import Agent
    from ..samplers.base import Fields
    from .job_dir import JobFolder

#: Seconds until a supervisor that has written neither supervisor.json nor exit.json counts as failed.
BEGIN_S = 20.0
#: Seconds a stop waits for the supervisor to write exit.json, and to end, after the job's processes ended.
EXIT_S = 15.0
#: Seconds between two looks: at a supervisor that starts, and at a job that ends.
BEGIN_POLL_S, POLL_S = 0.005, 0.02
#: Bytes of a file in one reply.
CHUNK_BYTES = 1 << 20
MAX_FILES = 10000


def probe(agent: "Agent", args: "Fields") -> "Fields":
    """`preflight.check`; the port of another job that has not bound it yet counts as taken."""
    given = {
        spec.get("master_port") for folder, spec in _all(agent) if not job_dir.is_over(job_dir.state_of(folder, spec))
    }
    ports = [port for port in args.get("ports", ()) if port not in given]
    checked = preflight.check(dict(args, ports=ports))
    checked["python"] = None
    if args.get("python") is not None and not checked["problems"]:
        python = python_check.check(args["python"], checked["workdir"])
        checked["problems"] += python["problems"]
        checked["python"] = python["python"]
    if agent.place.root is None:
        checked["problems"].append("no cache folder for the job's files (ephemeral, or no usable place)")
    return checked


def prepare(agent: "Agent", args: "Fields") -> "Fields":
    """Check again and create the job's folder; nothing runs yet. Raises RequestError."""
    spec = args["spec"]
    checked = probe(agent, {"workdir": spec["workdir"], "programs": sorted({c["argv"][0] for c in spec["commands"]}),
                            "ports": [spec["master_port"]] if spec["index"] == 0 else []})  # fmt: skip
    if checked["problems"]:
        raise RequestError("not_ready", "; ".join(checked["problems"]))
    if spec["index"] == 0 and checked["port"] is None:
        text = "port %d was taken after the job was planned" % spec["master_port"]
        raise RequestError("port_taken", text, "start again; another port will be chosen")
    try:
        folder = job_dir.create(agent.place.root or "", spec["job"], spec["index"])
    except FileExistsError:
        raise RequestError("job_exists", "job %s already exists on this node" % spec["job"])
    except OSError as error:
        raise RequestError("job_folder", "the job's folder cannot be created: %s" % error, "gconsole doctor")
    kept = dict(spec, identity=job_dir.identity_of(agent.context), prepared_s=time.time(), workdir=checked["workdir"])
    try:
        _write_config(folder, kept.pop("files", ()))
        folder.write(job_dir.SPEC, kept)
        if agent.waiting_supervisor is None or not agent.waiting_supervisor.is_alive():
            supervisor.write_program(folder.path, commands.source_of)
    except OSError as error:
        folder.remove()
        raise RequestError("job_folder", "the job's folder cannot be written: %s" % error, "free some disk space")
    return {"folder": folder.path}


def _write_config(folder: "JobFolder", texts: "Iterable[tuple[str, str]]") -> None:
    """Write the configuration files that the console adjusted for this job. Raises OSError."""
    for name, text in texts:
        os.makedirs(folder.file(job_dir.CONFIG), 0o700, exist_ok=True)
        path = os.path.join(folder.file(job_dir.CONFIG), os.path.basename(name))
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(text.replace("$GCONSOLE_JOB_DIR", folder.path))


def begin(agent: "Agent", args: "Fields") -> "Fields":
    """Start a prepared job: its state once it runs. Raises RequestError if it does not."""
    folder, spec = _find(agent, args["job"])
    if folder.read(job_dir.SUPERVISOR) is not None:
        raise RequestError("job_began", "job %s was already started" % args["job"])
    log = folder.file("supervisor.log")
    try:
        _start_supervisor(agent, folder, log)
    except OSError as error:
        raise RequestError("not_started", "the supervisor cannot be started: %s" % error)
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        if folder.read(job_dir.SUPERVISOR) is not None:
            agent.wake_sampler("jobs")
            return job_dir.state_of(folder, spec)
        ended = folder.read(job_dir.EXIT)
        if ended is not None:
            raise RequestError("not_started", "; ".join(ended["reasons"]) or "it ended at once")
        time.sleep(BEGIN_POLL_S)
    raise RequestError("not_started", "the supervisor did not start within %d s: %s" % (BEGIN_S, _last_lines(log)))


def _start_supervisor(agent: "Agent", folder: "JobFolder", log: str) -> None:
    """In the process that waits for it, else in a new one. Raises OSError."""
    waiting, agent.waiting_supervisor = agent.waiting_supervisor, None
    if waiting is not None and waiting.start(folder.path):
        return
    program = folder.file("supervisor.py")
    if not os.path.exists(program):
        supervisor.write_program(folder.path, commands.source_of)
    agent.starter.start("job_supervisor", {"{python}": sys.executable, "{program}": program}, log)


def drop(agent: "Agent", args: "Fields") -> bool:
    """Delete a job that never started or has ended; False if it runs."""
    folder, spec = _find(agent, args["job"])
    if folder.read(job_dir.SUPERVISOR) is not None and not job_dir.is_over(job_dir.state_of(folder, spec)):
        return False
    folder.remove()
    return True


def stop(agent: "Agent", args: "Fields") -> "Fields":
    """Terminate every process of the job here: how many there were, and the pids that are left."""
    folder, spec = _find(agent, args["job"])
    watcher = folder.read(job_dir.SUPERVISOR)
    before = job_dir.state_of(folder, spec)
    if watcher is None:
        folder.write(job_dir.EXIT, {"code": None, "signal": None, "reasons": [], "ended": stamps.realtime_ns()})
    if not job_dir.is_over(before):
        folder.write(job_dir.STOP, {"asked": stamps.realtime_ns()})
    pid = watcher["pid"] if watcher and before["state"] in ("running", "stopping") else None
    count, left = terminate_processes.terminate(
        lambda: terminate_processes.members(spec["job"], spec["index"], pid), float(args.get("grace_s", 10.0))
    )
    deadline = time.monotonic() + EXIT_S
    now = job_dir.state_of(folder, spec)
    while not left and time.monotonic() < deadline and not (job_dir.is_over(now) and _has_ended(pid, watcher)):
        time.sleep(POLL_S)
        now = job_dir.state_of(folder, spec)
    return {"found": count, "left": sorted(left), "state": now["state"], "was": before["state"]}


def _has_ended(pid: "int | None", watcher: "Fields | None") -> bool:
    return pid is None or watcher is None or state_of(ProcFs(), pid, watcher["start_ticks"]) is None


def follow(agent: "Agent", args: "Fields") -> "Fields":
    """Send the output of a job so far, from its last `tail` lines on, and with `follow` what it writes from now on.

    The reply has the seq of the last record of it. With `follow`, the record of the job's end comes after its output.
    """
    job, is_followed = args["job"], bool(args.get("follow"))
    folder, spec = _find(agent, job)
    follower = Follower(folder, spec, args.get("tail"))
    if is_followed:
        agent.followed[job] = None  # before the state is read: an end that is noticed from now on waits
    try:
        is_over = job_dir.is_over(job_dir.state_of(folder, spec))
        while True:
            facts = follower.facts(whole=is_over or not is_followed)
            if not facts:
                break
            agent.outbox.post(facts)
    finally:
        if is_followed:
            agent.followed[job] = follower
            agent.wake_sampler("jobs")
    return {"last_seq": agent.outbox.last_seq}


def watch(agent: "Agent", args: "Fields") -> "Fields":
    """With `wanted` send the job's output from now on, first its last `tail` lines; without it, stop.

    A job that is watched again continues where its output was left, or at its last lines if that is too much.
    """
    job = args["job"]
    folder, spec = _find(agent, job)
    if not args["wanted"]:
        follower = agent.followed.pop(job, None)
        if follower is not None:
            agent.left_off[job] = follower
        return {}
    if job not in agent.followed:
        follower = agent.left_off.pop(job, None)
        if follower is None:
            follower = Follower(folder, spec, args["tail"])
        follower.catch_up(args["tail"])
        agent.followed[job] = follower
        agent.wake_sampler("jobs")
    return {}


def list_files(agent: "Agent", args: "Fields") -> "Fields":
    """[[path below `path`, bytes]] of the files at `path` in the job's workdir; [["", bytes]] for one file."""
    _, spec = _find(agent, args["job"])
    path = os.path.join(spec["workdir"], os.path.expanduser(args["path"]))
    if os.path.isfile(path):
        return {"path": path, "files": [["", os.path.getsize(path)]]}
    if not os.path.isdir(path):
        raise RequestError("no_file", "%s does not exist" % path)
    paths: list[list[Any]] = []
    for folder, _, names in os.walk(path):  # links to folders are not followed
        for name in names:
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                paths.append([os.path.relpath(file, path), os.path.getsize(file)])
        if len(paths) > MAX_FILES:
            raise RequestError("too_many", "%s has more than %d files" % (path, MAX_FILES), "select a part of it")
    return {"path": path, "files": sorted(paths)}


def read_file(agent: "Agent", args: "Fields") -> "Fields":
    """CHUNK_BYTES of a file from `offset`: {"data": base64, "end": whether nothing follows}."""
    _find(agent, args["job"])
    try:
        with open(args["path"], "rb") as f:
            f.seek(args["offset"])
            data = f.read(CHUNK_BYTES)
    except OSError as error:
        raise RequestError("unreadable", "%s: %s" % (args["path"], error.strerror))
    return {"data": binascii.b2a_base64(data, newline=False).decode("ascii"), "end": len(data) < CHUNK_BYTES}


def _all(agent: "Agent") -> "list[tuple[JobFolder, Fields]]":
    return job_dir.folders(agent.place.root, job_dir.identity_of(agent.context))


def _find(agent: "Agent", job: str) -> "tuple[JobFolder, Fields]":
    for folder, spec in _all(agent):
        if spec["job"] == job:
            return folder, spec
    raise RequestError("no_job", "no job %s on this node" % job, "gconsole run status lists the jobs")


def _last_lines(path: str) -> str:
    try:
        with open(path, "rb") as f:
            f.seek(tail_offset(path, 3))
            return f.read(2000).decode("utf-8", "replace").strip() or "no output"
    except OSError as error:
        return str(error)
