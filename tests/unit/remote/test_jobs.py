"""Job on one node: it outlives its starter, its exit is recorded, and stopping it leaves no processes."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gconsole_remote.agent import commands
from gconsole_remote.agent.commands import DetachedStarter
from gconsole_remote.jobs import job_dir, output, preflight, requests, supervisor, terminate_processes
from gconsole_remote.jobs import job_dir as files
from gconsole_remote.kernel.log import KernelLog
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.jobs import JobSampler

PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
OLDEST = sorted(PYENV.glob("3.6.*/bin/python3.6")) or [Path(sys.executable)]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")


class Place:
    def __init__(self, root: Path) -> None:
        self.root = str(root)


class Outbox:
    def __init__(self) -> None:
        self.posted: list = []
        self.last_seq = 0

    def post(self, facts):
        self.posted += facts
        self.last_seq += len(facts)


class Agent:
    """The part of an agent that job requests use."""

    def __init__(self, root: Path) -> None:
        self.place, self.context, self.outbox = Place(root), Context(), Outbox()
        self.starter, self.followed, self.left_off = DetachedStarter(), {}, {}
        self.waiting_supervisor = None
        self.woken: list[str] = []
        self.wake_sampler = self.woken.append


@pytest.fixture
def agent(tmp_path):
    made = Agent(tmp_path / "cache")
    Path(made.place.root).mkdir(0o700)
    yield made
    for folder, spec in files.all_folders(made.place.root):  # cleanup after a failed test
        watcher = folder.read(files.SUPERVISOR)
        terminate_processes.terminate(
            lambda s=spec, w=watcher: terminate_processes.members(s["job"], s["index"], w["pid"] if w else None), 0.0
        )


def a_spec(tmp_path, *commands: str, job: str = "j-1", **fields):
    """A job of shell commands, one per rank."""
    return {
        "job": job, "index": 0, "nodes": ["here"], "command": ["x"], "launcher": "env",
        "procs_per_node": len(commands), "gpus_per_node": 0, "world_size": len(commands), "master_addr": "127.0.0.1",
        "master_port": 29999, "workdir": str(tmp_path), "created": 1, "gpus": [],
        "env": {"GCONSOLE_JOB": job, "GCONSOLE_NODE_RANK": "0"},
        "commands": [
            {"argv": ["/bin/sh", "-c", text], "env": {"RANK": str(rank)}, "local_rank": rank,
             "output": f"ranks/env/attempt_0/{rank}/output.log"}
            for rank, text in enumerate(commands)
        ], **fields,
    }  # fmt: skip


def begun(agent, spec):
    requests.prepare(agent, {"spec": spec})
    return requests.begin(agent, {"job": spec["job"]})


def the_state(agent, job="j-1"):
    entries = files.all_folders(agent.place.root)
    [fields] = [job_dir.state_of(folder, spec) for folder, spec in entries if spec["job"] == job]
    return fields


def until(condition, deadline_s=30.0):
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def over(agent, job="j-1"):
    until(lambda: job_dir.is_over(the_state(agent, job)))
    return the_state(agent, job)


def test_job_whose_commands_succeed_is_completed(agent, tmp_path):
    assert begun(agent, a_spec(tmp_path, "exit 0", "sleep 0.1"))["state"] in ("running", "completed")
    assert over(agent)["state"] == "completed"


def test_started_and_followed_job_is_reported_before_the_next_slot(agent, tmp_path):
    sampler = JobSampler(agent.context, agent)
    assert list(sampler.tick(0.0)) == []
    begun(agent, a_spec(tmp_path, "exec sleep 600"))
    assert agent.woken == ["jobs"]
    assert list(sampler.tick(0.1)) == []  # its folders were read just before
    sampler.expedite()
    assert [kind for kind, _ in sampler.tick(0.1)] == ["job", "job_node"]
    requests.follow(agent, {"job": "j-1", "tail": None, "follow": True})
    assert agent.woken == ["jobs", "jobs"]


def test_first_failed_rank_sets_the_exit_code_and_the_others_are_ended(agent, tmp_path):
    began = time.monotonic()
    begun(agent, a_spec(tmp_path, "sleep 600", "exit 7"))
    found = over(agent)
    assert (found["state"], found["exit_code"], found["local_rank"]) == ("failed", 7, 1)
    assert time.monotonic() - began < 60


def test_rank_killed_by_a_signal_reports_the_signal_and_no_exit_code(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "kill -9 $$"))
    found = over(agent)
    assert (found["exit_code"], found["signal"]) == (None, 9)


def test_later_agent_recovers_and_stops_the_job_from_its_files(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "sleep 600"))
    later = Agent(Path(agent.place.root))
    sampler = JobSampler(later.context, later)
    kinds = dict(sampler.tick(0.0))
    assert kinds["job"]["job"] == "j-1"
    assert kinds["job_node"]["state"] == "running"
    done = requests.stop(later, {"job": "j-1", "grace_s": 5.0})
    assert (done["left"], done["state"]) == ([], "stopped")
    assert dict(sampler.tick(10.0))["job_node"]["state"] == "stopped"


@pytest.mark.slow
def test_stop_kills_ranks_that_ignore_sigterm_and_detached_children(agent, tmp_path):
    left = "setsid sh -c 'trap \"\" TERM; (setsid env -i sleep 600 &) ; sleep 600' &"
    stubborn = f"trap '' TERM; {left} sleep 600; sleep 600"
    begun(agent, a_spec(tmp_path, stubborn))
    watcher = the_state(agent)["pid"]
    until(lambda: len(terminate_processes.members("j-1", 0, watcher)) >= 4)
    members = terminate_processes.members("j-1", 0, watcher)
    done = requests.stop(agent, {"job": "j-1", "grace_s": 0.5})
    assert done["found"] >= 4
    assert done["left"] == []
    assert all(map(_is_dead, members))


def _is_dead(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_job_stop_also_ends_a_sigstopped_process(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "kill -STOP $$; sleep 600"))
    until(lambda: terminate_processes.members("j-1", 0, the_state(agent)["pid"]))
    assert requests.stop(agent, {"job": "j-1", "grace_s": 5.0})["left"] == []


def test_a_stopped_process_continues_so_that_it_handles_sigterm(agent, tmp_path):
    """Its handler runs within the grace period, before SIGKILL."""
    begun(agent, a_spec(tmp_path, "trap 'touch handled; exit 0' TERM; touch ready; kill -STOP $$; while :; do :; done"))
    until((tmp_path / "ready").exists)
    assert requests.stop(agent, {"job": "j-1", "grace_s": 30.0})["left"] == []
    assert (tmp_path / "handled").exists()


def test_a_process_that_reuses_the_pid_of_a_job_is_not_signalled():
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            listings = iter([{other.pid: 1}, {other.pid: 1}])  # start time of a process that has ended
            terminate_processes.terminate(lambda: next(listings, {}), grace_s=0.01, kill_s=5.0)
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.1)
        finally:
            other.kill()


@pytest.mark.slow
def test_background_processes_left_by_a_command_are_ended_with_it(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "setsid sleep 600 & exit 0"))
    assert over(agent)["state"] == "completed"
    assert terminate_processes.with_job_environment("j-1", 0) == {}


def test_job_whose_supervisor_was_killed_stays_running_and_can_be_stopped(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "exec sleep 600"))
    until(lambda: terminate_processes.with_job_environment("j-1", 0))
    os.kill(the_state(agent)["pid"], signal.SIGKILL)
    until(lambda: not terminate_processes.descendants(os.getpid()) or the_state(agent)["state"] == "running")
    assert the_state(agent)["state"] == "running", "its processes are still running"
    assert requests.stop(agent, {"job": "j-1", "grace_s": 5.0})["left"] == []
    assert the_state(agent)["state"] == "stopped"


def test_a_program_that_does_not_exist_is_refused_before_anything_runs(agent, tmp_path):
    spec = a_spec(tmp_path, "x")
    spec["commands"][0]["argv"] = ["/nonexistent/program"]
    with pytest.raises(requests.RequestError, match="program /nonexistent/program not found"):
        requests.prepare(agent, {"spec": spec})
    assert list(files.all_folders(agent.place.root)) == []


def test_start_of_an_unexecutable_program_fails_with_its_reason(agent, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/nonexistent/interpreter\n")
    broken.chmod(0o755)
    spec = a_spec(tmp_path, "x")
    spec["commands"][0]["argv"] = [str(broken)]
    requests.prepare(agent, {"spec": spec})
    with pytest.raises(requests.RequestError, match="No such file"):
        requests.begin(agent, {"job": "j-1"})
    assert requests.drop(agent, {"job": "j-1"})
    assert list(files.all_folders(agent.place.root)) == []


def test_a_port_that_was_taken_since_the_plan_is_refused(agent, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert preflight.free_port([port]) is None
        with pytest.raises(requests.RequestError, match=f"port {port} was taken"):
            requests.prepare(agent, {"spec": a_spec(tmp_path, "x", master_port=port)})
    assert preflight.free_port([port]) == port


def test_a_port_that_another_job_was_given_is_not_offered(agent, tmp_path):
    requests.prepare(agent, {"spec": a_spec(tmp_path, "sleep 1")})
    found = requests.probe(agent, {"workdir": str(tmp_path), "programs": [], "ports": [29999]})
    assert found["port"] is None


def test_job_that_is_never_begun_fails_after_the_timeout(agent, tmp_path):
    requests.prepare(agent, {"spec": a_spec(tmp_path, "x")})
    [(folder, spec)] = files.all_folders(agent.place.root)
    assert job_dir.state_of(folder, spec)["state"] == "dispatching"
    later = spec["prepared_s"] + job_dir.NEVER_BEGUN_S + 1
    assert job_dir.state_of(folder, spec, later)["state"] == "failed"


def test_job_folders_are_accessible_only_to_their_owner(agent, tmp_path):
    requests.prepare(agent, {"spec": a_spec(tmp_path, "echo secret")})
    for path in ("jobs", "jobs/j-1.0"):
        assert Path(agent.place.root, path).stat().st_mode & 0o777 == 0o700


def test_followed_output_starts_with_the_last_lines_per_rank_and_continues(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "seq 1 5; printf unfinished; exec sleep 600", "echo hello"))
    until(lambda: _written(agent, 0).endswith("unfinished") and _written(agent, 1) == "hello\n")
    requests.follow(agent, {"job": "j-1", "tail": 2, "follow": True})
    texts = {fields["rank"]: fields["text"] for _, fields in agent.outbox.posted}
    assert texts == {0: "5", 1: "hello"}, "an unterminated last line counts as a line"
    requests.stop(agent, {"job": "j-1", "grace_s": 5.0})
    sampler = JobSampler(agent.context, agent)
    kinds = [fields["text"] if kind == "log" else kind for kind, fields in sampler.tick(0.0)]
    assert kinds == ["job", "unfinished", "job_node"]
    assert list(sampler.tick(0.1)) == [] and agent.followed == {}


def test_end_of_a_job_is_reported_after_its_followed_output(agent, tmp_path):
    sampler = JobSampler(agent.context, agent)
    begun(agent, a_spec(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo bye"))
    assert [kind for kind, _ in sampler.tick(0.0)] == ["job", "job_node"]
    requests.follow(agent, {"job": "j-1", "tail": None, "follow": True})
    (tmp_path / "go").touch()
    over(agent)
    facts = list(sampler.tick(0.3))
    assert [fields.get("text") or fields["state"] for _, fields in facts] == ["bye", "completed"]
    assert list(sampler.tick(2.0)) == []


def test_end_that_is_noticed_while_the_output_so_far_is_read_waits_for_the_rest(agent, tmp_path, monkeypatch):
    sampler = JobSampler(agent.context, agent)
    begun(agent, a_spec(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo bye"))
    assert [kind for kind, _ in sampler.tick(0.0)] == ["job", "job_node"]
    meanwhile = []

    def facts(follower, whole):
        monkeypatch.undo()
        read = follower.facts(whole)
        (tmp_path / "go").touch()
        over(agent)
        meanwhile.extend(sampler.tick(1.0))
        return read

    monkeypatch.setattr(output.Follower, "facts", facts)
    requests.follow(agent, {"job": "j-1", "tail": None, "follow": True})
    assert meanwhile == []
    assert [fields.get("text") or fields["state"] for _, fields in sampler.tick(2.0)] == ["bye", "completed"]


def test_end_of_a_job_that_is_followed_no_longer_is_reported(agent, tmp_path):
    sampler = JobSampler(agent.context, agent)
    begun(agent, a_spec(tmp_path, "echo bye"))
    over(agent)
    agent.followed["j-1"] = None  # its output so far is being read
    assert [kind for kind, _ in sampler.tick(0.0)] == ["job"]
    requests.watch(agent, {"job": "j-1", "tail": 5, "wanted": False})
    assert [kind for kind, _ in sampler.tick(0.1)] == ["job_node"]


def test_end_is_reported_although_a_process_that_outlives_the_job_writes_for_ever(agent, tmp_path, monkeypatch):
    sampler = JobSampler(agent.context, agent)
    begun(agent, a_spec(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo bye"))
    list(sampler.tick(0.0))
    requests.follow(agent, {"job": "j-1", "tail": None, "follow": True})
    (tmp_path / "go").touch()
    over(agent)
    path = Path(agent.place.root, "jobs", "j-1.0", "ranks", "env", "attempt_0", "0", "output.log")
    read = output.LineReader.read

    def read_and_write(reader, whole):
        data = read(reader, whole)
        with path.open("a") as file:
            file.write("more\n")
        return data

    monkeypatch.setattr(output.LineReader, "read", read_and_write)
    facts = [fact for second in range(1, 4) for fact in sampler.tick(float(second))]
    assert [fields["state"] for kind, fields in facts if kind == "job_node"] == ["completed"]
    assert agent.followed == {}


def _written(agent, rank):
    path = Path(agent.place.root, "jobs", "j-1.0", "ranks", "env", "attempt_0", str(rank), "output.log")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(("text", "lines", "expected"), [
    ("a\nb\n", 0, 4), ("a\nb", 0, 3), ("", 0, 0), ("a\nb\n", 1, 2), ("a\nb", 1, 2), ("a\nb", 9, 0),
])  # fmt: skip
def test_offset_of_the_last_lines_of_a_file(tmp_path, text, lines, expected):
    (tmp_path / "output.log").write_text(text)
    assert output.tail_offset(str(tmp_path / "output.log"), lines) == expected


def test_long_unterminated_line_is_emitted_before_its_end(tmp_path):
    path = tmp_path / "output.log"
    path.write_bytes(b"x" * (output.MAX_LINE_BYTES + 10))
    reader = output.LineReader(str(path), 0)
    assert len(reader.read(whole=False)) == output.MAX_LINE_BYTES + 10
    assert reader.read(whole=False) == b""


def test_long_output_is_split_without_losing_lines():
    lines = [b"line %d" % number for number in range(20_000)]
    data = b"\n".join(lines)
    pieces = list(output._pieces(data))
    assert len(pieces) > 2
    assert b"\n".join(piece for _, piece in pieces).split(b"\n") == lines
    assert all(data[begin : begin + len(piece)] == piece for begin, piece in pieces)


@pytest.mark.slow
def test_the_supervisor_runs_on_the_oldest_python(tmp_path):
    spec = a_spec(tmp_path, "echo hello; exit 3")
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    supervisor.write_program(str(tmp_path), commands.source_of)
    program = tmp_path / "supervisor.py"
    done = subprocess.run([str(OLDEST[0]), "-I", "-B", str(program)], capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    ended = json.loads((tmp_path / "exit.json").read_text())
    assert (ended["code"], ended["signal"]) == (3, None)
    assert (tmp_path / "ranks/env/attempt_0/0/output.log").read_text() == "hello\n"


def test_a_job_runs_at_the_niceness_of_its_user_although_the_agent_is_nice(tmp_path):
    answer: queue.Queue = queue.Queue()

    def as_agent():  # in a thread of its own, because niceness is per thread
        starter = DetachedStarter()
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        starter.start("job_supervisor", {"{python}": "/usr/bin/env", "{program}": str(tmp_path)}, str(tmp_path / "log"))
        answer.put(None)

    import threading

    before = os.nice(0)
    saved = commands.COMMANDS["job_supervisor"]
    commands.COMMANDS["job_supervisor"] = ["nice"]
    try:
        threading.Thread(target=as_agent).start()
        answer.get(timeout=90)
    finally:
        commands.COMMANDS["job_supervisor"] = saved
    until(lambda: (tmp_path / "log").read_text().strip())
    assert int((tmp_path / "log").read_text()) == before


def test_last_output_line_of_a_failed_rank_is_the_reason(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "sleep 600", "echo loading; echo 'CUDA out of memory' >&2; exit 1"))
    assert over(agent)["reason"] == "its last line: CUDA out of memory"


def test_last_outputs_of_a_job_that_failed_are_sent_to_an_agent_that_comes_later(agent, tmp_path):
    spec = a_spec(
        tmp_path,
        "mkdir -p $GCONSOLE_JOB_DIR/ranks/x/attempt_1/1; "
        "echo boom > $GCONSOLE_JOB_DIR/ranks/x/attempt_1/1/stderr.log; echo table; exit 1",
        procs_per_node=2,
    )
    spec["commands"][0].update(local_rank=None, output="output.log")
    begun(agent, spec)
    over(agent)

    facts = [fields for kind, fields in JobSampler(Context(interval_s=1.0), agent).tick(0.0) if kind == "output"]

    shown = [(each["stream"], each["attempt"], each["rank"], each["text"]) for each in facts]
    assert shown == [("file", 0, None, "table\n"), ("stderr", 1, 1, "boom\n")]


def test_job_that_succeeded_sends_no_last_outputs(agent, tmp_path):
    begun(agent, a_spec(tmp_path, "echo fine"))
    over(agent)
    assert "output" not in [kind for kind, _ in JobSampler(Context(interval_s=1.0), agent).tick(0.0)]


def test_rank_named_as_root_cause_by_torchrun_is_the_reason(agent, tmp_path):
    blamed = ["  rank      : 6 (local_rank: 2)\n  exitcode  : -15 (pid: 4)\n",
              "  rank      : 5 (local_rank: 1)\n  exitcode  : -9 (pid: 43)\n"]  # fmt: skip
    report = f"Failures:\n{blamed[0]}Root Cause (first observed failure):\n[0]:\n{blamed[1]}"
    (tmp_path / "report").write_text(report)
    spec = a_spec(
        tmp_path,
        "mkdir -p $GCONSOLE_JOB_DIR/ranks/x/attempt_0/1; "
        "echo step 7 > $GCONSOLE_JOB_DIR/ranks/x/attempt_0/1/stdout.log; cat report; exit 1",
    )
    spec["commands"][0].update(local_rank=None, output="output.log")
    begun(agent, spec)
    assert over(agent)["reason"].startswith("rank 5 (local rank 1) ended with signal 9; its last line: step 7")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"cgroup": 0, "node": 5}, {"cgroup": 1, "node": 6}, "the OOM killer ended 1 process(es) of the job's cgroup"),
        ({"cgroup": 0, "node": 5}, {"cgroup": 0, "node": 6}, "the OOM killer ended 1 process(es) on this node"),
        ({"cgroup": None, "node": 5}, {"cgroup": None, "node": 5}, None),
        ({"cgroup": None, "node": None}, {"cgroup": 3, "node": None}, None),
    ],
)
def test_oom_killer_is_reported_only_when_the_kernel_counted_a_kill(monkeypatch, before, after, expected):
    monkeypatch.setattr(supervisor, "_oom_kills", lambda: after)
    monkeypatch.setattr(supervisor, "_kernel_lines", lambda began: [])
    found = supervisor._kernel_reasons(before, 0.0)
    assert found == [] if expected is None else found[0].startswith(expected)


def test_kernel_xid_message_during_the_job_is_a_reason(monkeypatch, tmp_path):
    log = [
        "4,1201,5000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=40213, an earlier one\n",
        "4,1202,9000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n",
        "6,1203,9100000,-;eth0: link is up\n",
    ]
    (tmp_path / "kmsg").write_text("".join(log))
    monkeypatch.setattr(supervisor, "KernelLog", lambda is_whole: KernelLog(str(tmp_path / "kmsg"), is_whole))
    nothing = {"cgroup": None, "node": None}
    monkeypatch.setattr(supervisor, "_oom_kills", lambda: nothing)
    assert supervisor._kernel_reasons(nothing, 8.0) == [
        "kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    ]


def test_output_written_while_unwatched_is_delivered_once_on_return(agent, tmp_path):
    spec = a_spec(tmp_path, "echo one; while ! test -e go; do sleep 0.05; done; echo two; sleep 600")
    begun(agent, spec)
    sampler = JobSampler(Context(interval_s=1.0), agent)

    def texts() -> list:
        return [fields["text"] for kind, fields in sampler.tick(0.0) if kind == "log"]

    def until_told(text: str) -> None:
        deadline = time.monotonic() + 20.0
        while text not in texts():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    try:
        watched = {"job": spec["job"], "tail": 500}
        requests.watch(agent, dict(watched, wanted=True))
        until_told("one")
        requests.watch(agent, dict(watched, wanted=False))
        (tmp_path / "go").touch()
        assert texts() == [], "not watched"
        requests.watch(agent, dict(watched, wanted=True))
        until_told("two")  # and not "one" again
    finally:
        requests.stop(agent, {"job": spec["job"], "grace_s": 1.0})
