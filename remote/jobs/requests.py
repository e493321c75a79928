"""What `gconsole run` may ask of a node: whether a job could run, and to prepare, begin, drop and stop one.

A start has two steps, so that it is all or nothing: every node prepares (nothing runs yet), then every node begins.
"""

import base64
import os
import sys
import time

from ..agent import commands
from ..clocks import stamps
from . import job_dir as files
from . import preflight, process_tree, state
from .errors import Problem
from .output import Follower, tail_offset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ..agent.agent import Agent
    from ..samplers.base import Fields
    from .job_dir import JobFolder

#: A supervisor that has said neither that it runs nor why not, after so long, has failed.
BEGIN_S = 20.0
LOOK_S = 0.02
#: A file travels in pieces of this size; so many files are fetched at once at most.
PIECE = 1 << 20
MOST_FILES = 10000


def probe(agent: "Agent", args: "Fields") -> "Fields":
    """See `ready.ready`; a port that a job of ours was given and has not bound yet is not free either."""
    given = {spec.get("master_port") for folder, spec in _all(agent) if not state.is_over(state.state_of(folder, spec))}
    ports = [port for port in args.get("ports", ()) if port not in given]
    answer = preflight.ready(dict(args, ports=ports))
    if agent.place.root is None:
        answer["problems"].append("there is no folder to keep a job in (ephemeral, or no place for the cache)")
    return answer


def prepare(agent: "Agent", args: "Fields") -> "Fields":
    """Make the job's folder, once more checked: nothing runs yet. Raises Problem."""
    spec = args["spec"]
    checked = probe(agent, {"workdir": spec["workdir"], "programs": sorted({c["argv"][0] for c in spec["commands"]}),
                            "ports": [spec["master_port"]] if spec["index"] == 0 else []})  # fmt: skip
    if checked["problems"]:
        raise Problem("not_ready", "; ".join(checked["problems"]))
    if spec["index"] == 0 and checked["port"] is None:
        text = "port %d was taken since the plan was made" % spec["master_port"]
        raise Problem("port_taken", text, "start again: another one will be chosen")
    try:
        folder = files.create(agent.place.root or "", spec["job"], spec["index"])
    except FileExistsError:
        raise Problem("job_exists", "a job %s is here already" % spec["job"])
    except OSError as error:
        raise Problem("job_folder", "its folder cannot be made: %s" % error, "gconsole doctor")
    kept = dict(spec, identity=files.identity_of(agent.context), prepared_s=time.time(), workdir=checked["workdir"])
    try:
        _write_config(folder, kept.pop("files", ()))
        folder.write(files.SPEC, kept)
        with open(os.open(folder.file("supervisor.py"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(commands.source_of(__package__ + ".supervisor"))
    except OSError as error:
        folder.remove()
        raise Problem("job_folder", "it cannot be written: %s" % error, "is the disk full?")
    return {"folder": folder.path}


def _write_config(folder: "JobFolder", texts: "Iterable[tuple[str, str]]") -> None:
    """The files that the console adjusted to this job. Raises OSError."""
    for name, text in texts:
        os.makedirs(folder.file(files.CONFIG), 0o700, exist_ok=True)
        path = os.path.join(folder.file(files.CONFIG), os.path.basename(name))
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(text.replace("$GCONSOLE_JOB_DIR", folder.path))


def begin(agent: "Agent", args: "Fields") -> "Fields":
    """Start what was prepared; its state once it runs. Raises Problem where it does not."""
    folder, spec = _find(agent, args["job"])
    if folder.read(files.SUPERVISOR) is not None:
        raise Problem("job_began", "the job %s has begun already" % args["job"])
    log = folder.file("supervisor.log")
    agent.starter.start("job_supervisor", {"{python}": sys.executable, "{program}": folder.file("supervisor.py")}, log)
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        if folder.read(files.SUPERVISOR) is not None:
            return state.state_of(folder, spec)
        ended = folder.read(files.EXIT)
        if ended is not None:
            raise Problem("not_started", "; ".join(ended["reasons"]) or "it ended at once")
        time.sleep(LOOK_S)
    raise Problem("not_started", "no word within %d s: %s" % (BEGIN_S, _words(log)))


def drop(agent: "Agent", args: "Fields") -> bool:
    """Forget a job that never began, or is over; False where it runs."""
    folder, spec = _find(agent, args["job"])
    if folder.read(files.SUPERVISOR) is not None and not state.is_over(state.state_of(folder, spec)):
        return False
    folder.remove()
    return True


def stop(agent: "Agent", args: "Fields") -> "Fields":
    """End every process of the job here; how many there were, and those that are left, which is the proof."""
    folder, spec = _find(agent, args["job"])
    watcher = folder.read(files.SUPERVISOR)
    before = state.state_of(folder, spec)
    if watcher is None:
        folder.write(files.EXIT, {"code": None, "signal": None, "reasons": [], "ended": stamps.realtime_ns()})
    if not state.is_over(before):
        folder.write(files.STOP, {"asked": stamps.realtime_ns()})
    pid = watcher["pid"] if watcher and before["state"] in ("running", "stopping") else None
    found, left = process_tree.end(
        lambda: process_tree.members(spec["job"], spec["index"], pid), float(args.get("grace_s", 10.0))
    )
    deadline = time.monotonic() + 15.0  # the supervisor writes its last word, and ends
    now = state.state_of(folder, spec)
    while not state.is_over(now) and not left and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        now = state.state_of(folder, spec)
    return {"found": found, "left": sorted(left), "state": now["state"], "was": before["state"]}


def follow(agent: "Agent", args: "Fields") -> "Fields":
    """Say what the job has written so far, from its last `tail` lines on, and with `follow` what it writes from now on.

    The answer is the number of the last record of it.
    """
    folder, spec = _find(agent, args["job"])
    follower = Follower(folder, spec, args.get("tail"))
    is_over = state.is_over(state.state_of(folder, spec))
    while True:
        facts = follower.facts(whole=is_over or not args.get("follow"))
        if not facts:
            break
        agent.outbox.post(facts)
    if args.get("follow"):
        agent.followed[args["job"]] = follower
    return {"last_seq": agent.outbox.last_seq}


def watch(agent: "Agent", args: "Fields") -> "Fields":
    """With `wanted` say what the job writes from now on, at first its last `tail` lines; without it, no more.

    Whoever comes back to a job gets what it wrote meanwhile, from where it was left, or its last lines where that is
    too much.
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
    return {}


def list_files(agent: "Agent", args: "Fields") -> "Fields":
    """[[path below `path`, size]] of the files at `path` in the job's folder of work; [["", size]] for one file."""
    _, spec = _find(agent, args["job"])
    path = os.path.join(spec["workdir"], os.path.expanduser(args["path"]))
    if os.path.isfile(path):
        return {"path": path, "files": [["", os.path.getsize(path)]]}
    if not os.path.isdir(path):
        raise Problem("no_file", "%s is not there" % path)
    found = []
    for folder, _, names in os.walk(path):  # links to folders are not followed: they may lead anywhere
        for name in names:
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                found.append([os.path.relpath(file, path), os.path.getsize(file)])
        if len(found) > MOST_FILES:
            raise Problem("too_many", "%s has more than %d files" % (path, MOST_FILES), "name a part of it")
    return {"path": path, "files": sorted(found)}


def read_file(agent: "Agent", args: "Fields") -> "Fields":
    """A piece of a file, base64: {"data", "end"}; `end` where nothing follows."""
    _find(agent, args["job"])
    try:
        with open(args["path"], "rb") as f:
            f.seek(args["offset"])
            data = f.read(PIECE)
    except OSError as error:
        raise Problem("unreadable", "%s: %s" % (args["path"], error.strerror))
    return {"data": base64.b64encode(data).decode("ascii"), "end": len(data) < PIECE}


def _all(agent: "Agent") -> "list[tuple[JobFolder, Fields]]":
    return files.folders(agent.place.root, files.identity_of(agent.context))


def _find(agent: "Agent", job: str) -> "tuple[JobFolder, Fields]":
    for folder, spec in _all(agent):
        if spec["job"] == job:
            return folder, spec
    raise Problem("no_job", "there is no job %s here" % job, "gconsole run status lists them")


def _words(path: str) -> str:
    try:
        with open(path, "rb") as f:
            f.seek(tail_offset(path, 3))
            return f.read(2000).decode("utf-8", "replace").strip() or "it wrote nothing"
    except OSError as error:
        return str(error)
