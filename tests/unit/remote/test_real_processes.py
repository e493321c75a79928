"""Process sampler on the real /proc with every installed interpreter."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from fake_proc import check, kind_of

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.processes import ProcessSampler

REMOTE = Path(sys.modules[Context.__module__].__file__).parents[1]
DEADLINE_S = 60.0


def interpreters():
    """Python 3.6 and newer on this machine, oldest first: those of pyenv, and the one running the tests."""
    found = {}
    for path in sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python")):
        found[tuple(int(part) for part in path.parts[-3].split(".")[:2])] = str(path)
    found.setdefault(sys.version_info[:2], sys.executable)
    return [path for version, path in sorted(found.items()) if version >= (3, 6)]


OLDEST, NEWEST = interpreters()[0], interpreters()[-1]

#: Prints "ready" and runs until standard input is closed.
WAIT = "\nimport sys; sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()\n"

#: argv: the agent's folder, then the mark. Prints the records of two ticks of the samplers.
SAMPLE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.processes import ProcessSampler
from gconsole_remote.samplers.host import HostSampler
from gconsole_remote.samplers.gpu import GpuSampler
from gconsole_remote.nvml.simulate import SimulatedNvml
context = Context(process_filter=("GCONSOLE_TEST", sys.argv[2]), simulate_gpus=2)
samplers = [ProcessSampler(context), HostSampler(context), GpuSampler(context, SimulatedNvml(2, "host"))]
for sampler in samplers:
    sampler.start()
for _ in range(2):
    for sampler in samplers:
        for kind, fields in sampler.tick(time.monotonic()):
            print(json.dumps([kind, fields]))
"""


class Job:
    """Processes of one test, marked by a variable so that only they are sampled; they end with the test."""

    def __init__(self, folder):
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self.processes = []

    def python(self, code, interpreter=sys.executable, env=None, **more):
        return self.start([interpreter, "-c", code + WAIT], env, **more)

    def start(self, argv, env=None, ready=1, **more):
        env = {**os.environ, "GCONSOLE_TEST": self.mark, **(env or {})}
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, start_new_session=True, **more
        )
        self.processes.append(process)
        for _ in range(ready):
            assert process.stdout.readline() == "ready\n"
        return process

    def end(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def sampler(self):
        sampler = ProcessSampler(Context(process_filter=("GCONSOLE_TEST", self.mark)))
        sampler.start()
        return sampler

    def see(self):
        """Records of the first tick, by kind."""
        return by_kind(self.sampler().tick(time.monotonic()))


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.end()


def by_kind(facts):
    found = {"process": [], "rank": [], "rank_stat": []}
    for kind, fields in facts:
        record = check(kind, fields)
        found.setdefault(kind_of(record), []).append(record)
    return found


def ranks_of(seen):
    return {rank.pid: (rank.rank, rank.source) for rank in seen["rank"]}


RANK = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


@pytest.mark.parametrize("interpreter", [OLDEST, NEWEST])
def test_rank_set_in_the_initial_environment_is_found(job, interpreter):
    process = job.python("", interpreter, {**RANK, "RANK": "1", "LOCAL_RANK": "1"})
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)

    seen = job.see()

    assert ranks_of(seen) == {process.pid: (1, "environ")}
    assert [stat.state for stat in seen["rank_stat"]] == ["idle"]
    assert seen["rank_stat"][0].rss_bytes > 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", interpreters())
def test_rank_set_in_the_environment_at_run_time_is_found(job, interpreter):
    process = job.python(f"import os; os.environ.update({RANK!r}, RANK='2')", interpreter)

    seen = job.see()

    assert ranks_of(seen) == {process.pid: (2, "environ (live)")}
    assert seen["rank"][0].job.startswith("127.0.0.1:29511~")


def test_rank_that_unsets_its_variable_is_withdrawn(job):
    code = "import os, sys\nprint('ready', flush=True); sys.stdin.readline(); del os.environ['RANK']"
    process = job.python(code, env={**RANK, "RANK": "1"})
    sampler = job.sampler()
    assert ranks_of(by_kind(sampler.tick(100.0))) == {process.pid: (1, "environ")}

    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"

    assert [rank.status for rank in by_kind(sampler.tick(102.0))["rank"]] == ["withdrawn"]


def test_rank_that_meets_at_another_port_remains_one_of_the_job_that_its_launcher_started(job):
    begin = RANK | {"RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    elsewhere = "import os\nos.environ['MASTER_PORT'] = '29701'\nos.environ['LOCAL_RANK'] = '0'"
    changed, kept = job.python(elsewhere, env=begin), job.python("", env={**begin, "RANK": "1"})

    seen = job.see()

    assert set(ranks_of(seen)) == {changed.pid, kept.pid}
    assert {rank.job.partition("~")[0] for rank in seen["rank"]} == {"10.0.0.1:29500"}


def test_forked_workers_of_a_rank_are_its_children(job):
    fork = "import os\nfor _ in range(3):\n    if os.fork() == 0: break\n"
    process = job.python(fork, env={**RANK, "RANK": "0"}, ready=4)

    seen = job.see()

    assert ranks_of(seen) == {process.pid: (0, "environ")}
    assert sorted(one.role for one in seen["process"]) == ["child", "child", "child", "rank"]


@pytest.mark.slow
def test_spawned_ranks_are_found_and_their_parent_is_not_a_rank(job):
    child = f"import os, sys\nos.environ.update({RANK!r}, RANK=sys.argv[1], LOCAL_RANK=sys.argv[1])" + WAIT
    parent = f"""
import subprocess, sys
for rank in range(2):
    subprocess.Popen([sys.executable, "-c", {child!r}, str(rank)])
"""
    process = job.python(parent, ready=3)

    seen = job.see()

    assert sorted(rank.rank for rank in seen["rank"]) == [0, 1]
    assert process.pid not in ranks_of(seen)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash on this machine")
def test_the_shell_around_a_rank_is_not_the_rank(job):
    code = f"{sys.executable} -c {json.dumps(WAIT.strip())}; true"
    process = job.start(["bash", "-c", code], {**RANK, "RANK": "3"})

    seen = job.see()

    assert [rank.rank for rank in seen["rank"]] == [3]
    assert process.pid not in ranks_of(seen)


def test_a_shell_that_execs_a_rank_becomes_one(job):
    code = f"echo ready; read x; exec {sys.executable} -c {json.dumps(WAIT.strip())}"
    process = job.start(["sh", "-c", code], {**RANK, "RANK": "3"})
    sampler = job.sampler()
    assert by_kind(sampler.tick(100.0))["rank"] == []

    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"

    assert ranks_of(by_kind(sampler.tick(102.0))) == {process.pid: (3, "environ")}


def test_busy_rank_is_moving_and_a_stopped_one_is_stopped(job):
    busy = job.start([sys.executable, "-c", "print('ready', flush=True)\nwhile True: pass"], {**RANK, "RANK": "0"})
    stopped = job.python("", env={**RANK, "RANK": "1"})
    os.kill(stopped.pid, 19)
    wait_for(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().split()[2] == "T")

    states = {stat.pid: stat.state for stat in job.see()["rank_stat"]}

    assert states == {busy.pid: "moving", stopped.pid: "stopped"}


def test_signal_that_killed_a_rank_is_reported_while_it_is_a_zombie(job):
    process = job.python("", env={**RANK, "RANK": "0"})
    sampler = job.sampler()
    list(sampler.tick(100.0))

    process.send_signal(9)
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z")
    seen = by_kind(sampler.tick(101.0))

    assert [(rank.status, rank.reason) for rank in seen["rank"]] == [("exited", "killed by signal 9 (SIGKILL)")]
    process.wait()
    assert [one.gone for one in by_kind(sampler.tick(102.0))["process"]] == [True]


def test_agent_started_from_a_rank_is_not_a_rank(job):
    run = subprocess.run(
        [sys.executable, "-c", SAMPLE, str(agent_folder(job.folder)), job.mark],
        env={**os.environ, **RANK, "RANK": "0", "GCONSOLE_TEST": job.mark},
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip

    assert not [line for line in run.stdout.splitlines() if json.loads(line)[0] in ("rank", "process")]


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", interpreters())
def test_samplers_produce_valid_records_on_every_interpreter(job, interpreter):
    process = job.python("import os\nos.environ['LOCAL_RANK'] = '1'", env={**RANK, "RANK": "1"})

    run = subprocess.run(
        [interpreter, "-B", "-I", "-c", SAMPLE, str(agent_folder(job.folder)), job.mark],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip

    seen = by_kind(json.loads(line) for line in run.stdout.splitlines())
    assert ranks_of(seen) == {process.pid: (1, "environ (live)" if reads_any_memory() else "environ")}
    assert len(seen["host"]) == 2
    assert seen["host"][0].mem_available_bytes > 0
    assert seen["host"][0].processes > 1
    assert seen["host"][0].cpu_pct is None
    assert (len(seen["gpu_info"]), len(seen["gpu"])) == (2, 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: cannot run as another user")
def test_ranks_of_another_user_are_listed_without_their_rank_number(job):
    launcher = job.folder / "torchrun"
    launcher.write_text(
        "import subprocess, sys\n"
        "children = [subprocess.Popen([sys.executable, '-c', sys.argv[-1]]) for _ in range(2)]\n"
        "[child.wait() for child in children]\n"
    )
    argv = [sys.executable, str(launcher), "--nnodes=2", "--nproc-per-node", "2", WAIT]
    job.start(argv, {"WORLD_SIZE": "4", "RANK": "1"}, ready=2)

    seen = by_kind(as_nobody(lambda: list(ticked(ProcessSampler(Context())))))
    ours = job.processes[0].pid  # excludes other jobs; a mark in another user's environment is unreadable
    ranks = [rank for rank in seen["rank"] if rank.launcher == "torchrun" and group_of(rank.pid) == ours]

    assert sorted((rank.rank, rank.local_rank, rank.world_size, rank.status) for rank in ranks) == [
        (None, 0, 4, "no_permission"), (None, 1, 4, "no_permission"),
    ]  # fmt: skip
    assert "belongs to root (uid 0)" in ranks[0].reason
    states = {stat.pid: stat.state for stat in seen["rank_stat"]}
    assert {states[rank.pid] for rank in ranks} <= {"idle", "moving"}


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: cannot run as another user")
def test_root_reads_the_ranks_of_every_user(job):
    code = "import os; os.setgid(65534); os.setuid(65534); os.environ['RANK'] = '1'"
    process = job.python(code, env=RANK)

    seen = job.see()

    assert ranks_of(seen) == {process.pid: (1, "environ (live)")}
    assert seen["rank"][0].uid == 65534


def group_of(pid: int) -> int | None:
    """The process group of a process; None if it has ended: jobs of other tests run at the same time."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def reads_any_memory():
    """Whether this user may read the memory of processes that are not its descendants (Yama restricts that)."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


def ticked(sampler):
    sampler.start()
    return sampler.tick(time.monotonic())


def as_nobody(act):
    """Result of `act` (as JSON) from a fork of this process under the uid of `nobody`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with os.fdopen(writer, "w") as out:
                json.dump(act(), out)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def agent_folder(folder):
    """A folder from which only the agent's package can be imported, as on a node."""
    (folder / "node").mkdir()
    (folder / "node" / "gconsole_remote").symlink_to(REMOTE)
    return folder / "node"


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
