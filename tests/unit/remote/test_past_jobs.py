"""Log folders that torchrun left behind: of failed jobs that are over, and safe whatever is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_proc import check

from gconsole_remote.proc import log_folders, torchrun_logs
from gconsole_remote.proc.launcher_logs import past_logs
from gconsole_remote.proc.output_files import TAIL_BYTES
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.torchrun_logs import MOST_FILES, MOST_JOBS, RECENT_S, PastOutput, past_outputs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.past_jobs import PastJobSampler

ERROR = json.dumps({"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1700000000"}}})
STRANGER = 65_000


class Left:
    """A TMPDIR with log folders, and a /proc without processes."""

    def __init__(self, root: Path) -> None:
        self.tmp, self.proc = root / "tmp", root / "proc"
        self.tmp.mkdir()
        self.proc.mkdir()
        (self.proc / "stat").write_text("btime 1\n")

    def run(self, name: str, top: str = "") -> Path:
        folder = self.tmp / f"torchelastic_{top or name[-8:]}" / name
        folder.mkdir(parents=True)
        return folder

    def failed(self, name: str, attempt: int = 0, rank: int = 0, text: str = ERROR, ago_s: float = 60) -> Path:
        """The error file of one rank of a run."""
        run = next(self.tmp.glob(f"torchelastic_*/{name}"), None) or self.run(name)
        folder = run / f"attempt_{attempt}" / str(rank)
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(text)
        os.utime(folder / "error.json", (time.time() - ago_s,) * 2)
        return folder

    def found(self, procfs: ProcFs | None = None) -> list[PastOutput]:
        return list(past_outputs(procfs or ProcFs(str(self.proc)), [str(self.tmp), "", "/missing"], time.time_ns()))

    def names(self) -> list[str]:
        return [output.job for output in self.found()]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_error_file_and_stderr_of_a_failed_job_are_sent_once_as_outputs_without_a_process(left: Left):
    folder = left.failed("llama_abcd1234", rank=3)
    (folder / "stderr.log").write_text("Traceback\n")
    context = Context(proc=str(left.proc))
    sampler = PastJobSampler(context)
    sampler.folders = (str(left.tmp), str(left.tmp))

    records = [check(kind, fields) for kind, fields in sampler.tick(0.0)]

    assert [(each.job, each.stream, each.pid, each.start_ticks, each.rank) for each in records] == [
        ("llama", "error_file", None, None, None), ("llama", "stderr", None, None, None),
    ]  # fmt: skip
    assert records[0].text == ERROR
    assert records[0].path == str(folder / "error.json")
    assert abs(time.time_ns() - records[0].written_at - 60e9) < 30e9
    assert list(sampler.tick(60.0)) == []


@pytest.mark.parametrize(("ago_s", "jobs"), [(50, ["llama", "llama"]), (600, ["llama", "run.log"])])
def test_log_of_a_launcher_is_of_the_job_whose_run_ended_then(left: Left, ago_s: float, jobs: list[str]):
    left.failed("llama_abcd1234", attempt=1, ago_s=60)
    written(left.tmp / "run.log", TABLE, ago_s)
    sampler = PastJobSampler(Context(proc=str(left.proc)))
    sampler.folders = (str(left.tmp),)
    records = [check(kind, fields) for kind, fields in sampler.tick(0.0)]
    assert [each.job for each in records] == jobs
    assert records[1].attempt == (1 if jobs[1] == "llama" else 0)


def test_nothing_is_read_where_the_node_is_a_part_of_its_machine(left: Left):
    left.failed("llama_abcd1234")
    sampler = PastJobSampler(Context(proc=str(left.proc), process_filter=("A", "b")))
    sampler.folders = (str(left.tmp),)
    assert list(sampler.tick(0.0)) == []


def test_job_without_a_run_id_is_named_after_its_folder(left: Left):
    left.failed("none_abcd1234")
    left.failed("none_efgh5678")
    assert sorted(left.names()) == ["none_abcd1234", "none_efgh5678"]


def test_old_empty_and_future_files_are_left_out(left: Left):
    left.failed("old_abcd1234", ago_s=RECENT_S + 60)
    left.failed("future_abcd1235", ago_s=-7200)
    left.failed("empty_abcd1236", text="")
    left.run("ended_abcd1237")
    assert left.names() == []


def test_only_the_newest_attempt_and_the_newest_run_of_an_id_count(left: Left):
    left.failed("a_abcd1234")
    (left.tmp / "torchelastic_abcd1234" / "a_abcd1234" / "attempt_1" / "0").mkdir(parents=True)  # it ended well
    left.failed("b_abcd1235", ago_s=600)
    newer = left.failed("b_abcd1236", ago_s=60)
    left.failed("d_abcd1238", ago_s=600)
    (left.run("d_abcd1239") / "attempt_0" / "0").mkdir(parents=True)  # started again, and it ended well
    for name, ago_s in (("b_abcd1235", 800), ("b_abcd1236", 90), ("d_abcd1238", 800), ("d_abcd1239", 90)):
        os.utime(left.tmp / f"torchelastic_{name[-8:]}", (time.time() - ago_s,) * 2)
    left.failed("c_abcd1237", attempt=9)
    left.failed("c_abcd1237", attempt=10, text=ERROR + " ")

    assert {(output.job, output.attempt) for output in left.found()} == {("b", 0), ("c", 10)}
    assert [output.path for output in left.found() if output.job == "b"] == [str(newer / "error.json")]


def test_number_and_size_of_what_is_sent_are_limited(left: Left):
    for number in range(MOST_JOBS + 5):
        left.failed(f"job{number}_abcd{number:04}", ago_s=number)
    assert set(left.names()) == {f"job{number}" for number in range(MOST_JOBS)}
    for number in range(8):
        for rank in range(64):
            left.failed(f"large{number}_{number:08}", rank=rank, text="x\n" * (TAIL_BYTES if rank < 2 else 4), ago_s=0)
    found = left.found()
    assert len(found) == MOST_FILES
    assert max(len(output.text) for output in found) <= TAIL_BYTES


@pytest.mark.parametrize("name", ["error.json", "0", "attempt_0", "run", "top"])
def test_links_to_files_of_others_are_not_followed(left: Left, tmp_path: Path, name: str):
    folder = left.failed("llama_abcd1234")
    place = {
        "error.json": folder / "error.json", "0": folder, "attempt_0": folder.parent, "run": folder.parents[1],
        "top": folder.parents[2],
    }[name]  # fmt: skip
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert left.found() == []


def test_fifos_folders_and_odd_names_do_not_block_or_fail(left: Left):
    folder = left.failed("llama_abcd1234")
    (folder / "error.json").unlink()
    os.mkfifo(folder / "error.json")
    (folder / "stderr.log").mkdir()
    (folder.parent / "²").mkdir()
    (folder.parents[1] / "attempt_²").mkdir()
    (left.tmp / "torchelastic_file").write_text("")
    name = os.fsdecode(b"torchelastic_\xff\x1b[31m/a\x1b\xff_abcd1234")
    (left.tmp / name).mkdir(parents=True)
    assert left.found() == []
    odd = left.failed("odd\x1b[31m\nname_abcd1239")
    assert odd.exists()
    assert left.found() == []  # a newline ends no run id
    left.failed("red\x1b[31m_abcd1230")
    assert left.names() == ["red [31m"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
@pytest.mark.parametrize("number", range(4))
def test_folder_with_files_of_another_user_is_not_read(left: Left, number: int):
    folder = left.failed("llama_abcd1234")
    for parent in (left.tmp, *left.tmp.parents[:3]):
        parent.chmod(0o755)
    places = [folder / "error.json", folder, folder.parent, folder.parents[1], folder.parents[2]]
    for place in places:
        os.chown(place, STRANGER, STRANGER)
    assert left.names() == ["llama"]
    os.chown(places[number], 0, 0)
    assert left.found() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_jobs_of_two_users_with_one_run_id_are_kept_apart(left: Left):
    left.failed("llama_abcd1234", ago_s=10)
    folder = left.failed("llama_abcd1235", ago_s=20)
    for parent in (left.tmp, *left.tmp.parents[:3]):
        parent.chmod(0o755)
    for place in (folder / "error.json", folder, folder.parent, folder.parents[1], folder.parents[2]):
        os.chown(place, STRANGER, STRANGER)
    assert left.names() == ["llama", f"llama (uid {STRANGER})"]


@pytest.mark.parametrize(
    "env",
    [
        {"TORCHELASTIC_RUN_ID": "llama", "TORCHELASTIC_ERROR_FILE": "/elsewhere/error.json"},
        {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_1/llama_abcd1234/attempt_0/1/e"},
    ],
)
def test_job_that_lives_or_was_started_again_is_left_to_its_processes(left: Left, env: dict[str, str]):
    left.failed("llama_abcd1234")
    code = "import sys; print(flush=True); sys.stdin.read()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **env}, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert left.found(ProcFs()) == []


def test_living_launcher_without_ranks_keeps_its_folder(left: Left, monkeypatch: pytest.MonkeyPatch):
    folder = left.failed("llama_abcd1234")
    made_s = folder.parents[2].stat().st_mtime
    assert left.names() == ["llama"]
    started: Callable[[float], str] = lambda start_s: (  # noqa: E731
        f"7 (python3) S 1 7 7 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {int(start_s * os.sysconf('SC_CLK_TCK'))} 0 0"
    )
    (left.proc / "7").mkdir()
    (left.proc / "7" / "environ").write_text("")
    (left.proc / "7" / "status").write_text("Uid:\t0\t0\t0\t0\n")
    (left.proc / "7" / "maps").write_text("7f-80 r-xp 0 0 1 /venv/lib/site-packages/torch/lib/libtorch_cpu.so\n")
    monkeypatch.setattr(torchrun_logs, "boot_time_s", lambda procfs: 0.0)
    (left.proc / "7" / "stat").write_text(started(made_s - 20))
    assert left.names() == []
    (left.proc / "7" / "stat").write_text(started(made_s - 2 * torchrun_logs.START_S))
    assert left.names() == ["llama"], "it started long before that folder was made"
    (left.proc / "7" / "stat").write_text(started(made_s - 20))
    (left.proc / "7" / "maps").write_text("7f-80 r-xp 0 0 1 /usr/bin/python3\n")
    assert left.names() == ["llama"], "a Python process without torch"


@contextmanager
def shell_in(folder: Path) -> Iterator[ProcFs]:
    """A shell in a folder, as it is there after the job that was started from it: the only process of a /proc."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = subprocess.Popen(["sh", "-c", "read line"], cwd=folder, stdin=subprocess.PIPE)
    proc = folder.with_name("proc")
    proc.mkdir()
    for name in ("stat", "self", str(shell.pid)):
        (proc / name).symlink_to(f"/proc/{name}")
    try:
        yield ProcFs(str(proc))
    finally:
        shell.kill()
        shell.communicate()


def log_dir_of(folder: Path, name: str = "llama_abcd1234", *, ago_s: float = 60) -> Path:
    """What `torchrun --log-dir FOLDER` leaves of a job that failed."""
    own = folder / name / "attempt_0" / "0"
    own.mkdir(parents=True)
    (own / "error.json").write_text(ERROR)
    os.utime(own / "error.json", (time.time() - ago_s,) * 2)
    for made in (own.parent, own.parents[1]):
        os.utime(made, (time.time() - ago_s - 900,) * 2)  # torchrun made them when it started
    return own


def found_of(procfs: ProcFs) -> list[PastOutput]:
    return list(past_outputs(procfs, [], time.time_ns()))


@pytest.mark.parametrize("place", [".", "logs", "logs/monday"])
def test_log_dir_below_the_folder_of_a_living_shell_is_found(tmp_path: Path, place: str):
    folder = log_dir_of(tmp_path / "project" / place)
    with shell_in(tmp_path / "project") as procfs:
        [output] = found_of(procfs)
    assert (output.job, output.stream, output.path) == ("llama", "error_file", str(folder / "error.json"))
    assert found_of(procfs) == [], "nothing names it any more"


def test_log_dir_that_is_deeper_hidden_or_old_is_not(tmp_path: Path):
    log_dir_of(tmp_path / "project" / "a" / "b" / "c")
    log_dir_of(tmp_path / "project" / ".cache")
    log_dir_of(tmp_path / "project" / "old", ago_s=RECENT_S + 60)
    (tmp_path / "project" / "my_training" / "attempt_1").mkdir(parents=True)  # of some other program
    with shell_in(tmp_path / "project") as procfs:
        assert found_of(procfs) == []


def test_log_dir_behind_a_link_is_not_followed(tmp_path: Path):
    log_dir_of(tmp_path / "elsewhere")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "logs").symlink_to(tmp_path / "elsewhere")
    with shell_in(tmp_path / "project") as procfs:
        assert found_of(procfs) == []


def test_search_for_log_dirs_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(20):
        log_dir_of(tmp_path / "project" / f"logs{number}", f"run{number}_abcd1234")
    monkeypatch.setattr(log_folders, "MOST_RUNS", 5)
    with shell_in(tmp_path / "project") as procfs:
        assert len({output.job for output in found_of(procfs)}) <= 5


def test_folder_that_never_answers_does_not_hold_up_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()
    monkeypatch.setattr(log_folders, "_search", lambda *work: release.wait(60))
    monkeypatch.setattr(log_folders, "DEADLINE_S", 0.1)
    assert log_folders.find_runs(ProcFs()) == []
    release.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_log_dir_of_another_user_than_that_of_the_shell_is_not_read(tmp_path: Path):
    own = log_dir_of(tmp_path / "project" / "logs")
    for path in (own / "error.json", own, own.parent, own.parents[1], own.parents[2]):
        os.chown(path, STRANGER, STRANGER)
    with shell_in(tmp_path / "project") as procfs:  # of root
        assert found_of(procfs) == []


TABLE = """\
[rank1]: ValueError: bad shard
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_15:41:02
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 412)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def logs_of(procfs: ProcFs) -> list[PastOutput]:
    return list(past_logs(procfs, time.time_ns()))


def written(path: Path, text: str, ago_s: float = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - ago_s,) * 2)
    return path


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("train.log", TABLE),
        ("logs/slurm-17.out", "srun: error: node2: task 3: Exited with exit code 1\n"),
        ("nohup.out", "[2026-11-28 15:41:02] [ERROR] [launch.py:325:sigkill_handler] exits with return code = -9\n"),
        ("llama.o1234", "prterun noticed that process rank 1 with PID 77 on node n1 exited on signal 9.\n"),
        (
            "ddp.txt",
            "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following",
        ),
    ],
)
def test_log_of_a_launcher_whose_job_failed_is_sent_as_one_file(tmp_path: Path, name: str, report: str):
    path = written(tmp_path / "project" / name, "step 1\n" * 5_000 + report + "exit 1\n")
    with shell_in(tmp_path / "project") as procfs:
        [output] = logs_of(procfs)
    assert (output.job, output.stream, output.path) == (path.name, "file", str(path))
    assert output.text.endswith(report + "exit 1\n")


@pytest.mark.parametrize("after", ["", "[rank1]:[W1128 15:41:02 ProcessGroup.cpp:1] Warning: not destroyed\n", "\n"])
def test_log_of_a_rank_that_ends_with_its_exception_is_sent(tmp_path: Path, after: str):
    written(
        tmp_path / "project" / "rank-1.log",
        "step 1\n[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: bad\n[rank1]: shard\n" + after,
    )
    with shell_in(tmp_path / "project") as procfs:
        assert [output.job for output in logs_of(procfs)] == ["rank-1.log"]


def test_log_of_a_launcher_has_the_job_of_the_error_file_that_it_names(tmp_path: Path):
    error_file = "/tmp/torchelastic_x1/none_abcd1234/attempt_0/1/error.json"
    written(tmp_path / "project" / "train.log", TABLE.replace("<N/A>", error_file))
    with shell_in(tmp_path / "project") as procfs:
        assert [output.job for output in logs_of(procfs)] == ["none_abcd1234"]


@pytest.mark.parametrize(
    ("name", "text", "ago_s"),
    [
        ("train.log", "Traceback (most recent call last):\nValueError: x\n", 60),  # of some program
        ("train.log", TABLE + "step 1\n" * 5_000, 60),  # it was started again, and goes on
        ("train.log", "[rank1]: ValueError: bad shard\nW1128 15:41:02 Restarting worker group\nstep 1\n", 60),
        ("train.log", TABLE, RECENT_S + 60),
        ("train.py", TABLE, 60),
        (".hidden/train.log", TABLE, 60),
        ("a/b/c/train.log", TABLE, 60),
    ],
    ids=["traceback", "goes on", "restarted", "old", "no log", "hidden", "deep"],
)
def test_other_files_of_the_folder_are_not_sent(tmp_path: Path, name: str, text: str, ago_s: float):
    written(tmp_path / "project" / name, text, ago_s)
    with shell_in(tmp_path / "project") as procfs:
        assert logs_of(procfs) == []


def test_log_that_a_process_has_open_is_that_of_a_job_that_lives(tmp_path: Path):
    path = written(tmp_path / "project" / "train.log", TABLE)
    with shell_in(tmp_path / "project") as procfs, path.open("a"):
        (tmp_path / "proc" / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
        assert logs_of(procfs) == []


def test_log_that_a_process_has_open_by_another_path_is_that_of_a_job_that_lives(tmp_path: Path):
    path = written(tmp_path / "project" / "train.log", TABLE)
    elsewhere = tmp_path / "container" / "train.log"  # as a container has the same file
    elsewhere.parent.mkdir()
    os.link(path, elsewhere)
    with shell_in(tmp_path / "project") as procfs:
        (tmp_path / "proc" / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
        assert len(logs_of(procfs)) == 1
        with elsewhere.open("a"):
            assert logs_of(procfs) == []


def test_log_of_a_job_that_was_started_again_in_its_folder_is_not_sent(tmp_path: Path):
    written(tmp_path / "project" / "train.log", TABLE)
    argv = [sys.executable, "-c", "input()"]
    with (
        shell_in(tmp_path / "project") as procfs,
        subprocess.Popen(argv, cwd=tmp_path / "project", stdin=subprocess.PIPE) as again,
    ):
        (tmp_path / "proc" / str(again.pid)).symlink_to(f"/proc/{again.pid}")
        deadline = time.monotonic() + 30
        while logs_of(procfs) and time.monotonic() < deadline:  # until it has called exec
            time.sleep(0.05)
        assert logs_of(procfs) == []


@contextmanager
def seen_in(tmp_path: Path, argv: list[str], cwd: Path, ready: str) -> Iterator[ProcFs]:
    """A /proc with nothing but that process, once it has printed `ready`."""
    proc = tmp_path / "proc"
    proc.mkdir()
    with subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            for name in ("stat", "self", str(process.pid)):
                (proc / name).symlink_to(f"/proc/{name}")
            assert process.stdout.readline().strip() == ready
            yield ProcFs(str(proc))
        finally:
            process.kill()


def maps_and_waits(file: Path) -> str:
    """A program that has mapped a file."""
    return (
        f"import mmap; f = open({str(file)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
        " print('ready', flush=True); input()"
    )


@pytest.mark.parametrize(("name", "sent"), [("gconsole-agent", 1), ("train.py", 0)])
def test_log_in_the_folder_of_a_newer_python_program_is_sent_if_that_is_an_agent(tmp_path: Path, name: str, sent: int):
    """The agent itself is a newer Python program in the home of its login."""
    written(tmp_path / "home" / "train.log", TABLE)
    argv = [sys.executable, "-c", "print('ready', flush=True); input()", name]
    with seen_in(tmp_path, argv, tmp_path / "home", "ready") as procfs:
        assert len(logs_of(procfs)) == sent


@pytest.mark.parametrize("place", ["train.log", "llama/train.log", "llama/monday/train.log"])
def test_log_in_a_folder_of_all_users_is_sent(left: Left, place: str):
    path = written(left.tmp / place, TABLE)
    written(left.tmp / "a" / "b" / "c" / "deep.log", TABLE)
    [output] = past_logs(ProcFs(str(left.proc)), time.time_ns(), ["", "/missing", str(left.tmp)])
    assert (output.job, output.path) == (path.name, str(path))


def test_log_dir_in_a_folder_of_all_users_is_found(left: Left):
    folder = log_dir_of(left.tmp / "logs")
    [output] = past_outputs(ProcFs(str(left.proc)), [str(left.tmp)], time.time_ns())
    assert output.path == str(folder / "error.json")


@pytest.mark.parametrize(("library", "sent"), [("site-packages/torch/lib", 0), ("site-packages/requests", 1)])
def test_log_is_not_sent_while_a_newer_job_of_its_owner_lives(left: Left, library: str, sent: int):
    written(left.tmp / "train.log", TABLE)
    file = written(left.tmp.parent / library / "library.so", "x" * 4096)
    left.proc.joinpath("stat").unlink()
    left.proc.rmdir()
    with seen_in(left.proc.parent, [sys.executable, "-c", maps_and_waits(file)], left.tmp.parent, "ready") as procfs:
        assert len(list(past_logs(procfs, time.time_ns(), [str(left.tmp)]))) == sent


@pytest.mark.parametrize("fstype", ["nfs4", "ext4"])
@pytest.mark.parametrize(
    "report",
    [
        TABLE.replace("host      : node1", "host      : {host}"),
        "srun: error: node9: task 1: Killed\nsrun: error: {host}: tasks 2-3: Exited with exit code 1\n",
        "prterun noticed that process rank 1 with PID 77 on node {host} exited on signal 9.\n",
    ],
    ids=["torchrun", "srun", "mpirun"],
)
@pytest.mark.parametrize("host", ["{}", "{}.cluster.example", "node9"])
def test_log_that_every_node_has_is_sent_by_the_node_of_the_failed_rank(
    left: Left, fstype: str, report: str, host: str
):
    path = written(left.tmp / "train.log", report.format(host=host.format(os.uname().nodename.split(".")[0])))
    device = path.stat().st_dev
    (left.proc / "self").mkdir()
    (left.proc / "self" / "mountinfo").write_text(
        f"30 1 {os.major(device)}:{os.minor(device)} / /data rw shared:1 - {fstype} /dev/store rw\n"
    )
    outputs = list(past_logs(ProcFs(str(left.proc)), time.time_ns(), [str(left.tmp)]))
    assert len(outputs) == (0 if fstype == "nfs4" and host == "node9" else 1)


def test_log_that_every_node_has_is_sent_by_the_node_whose_shell_works_there(tmp_path: Path):
    path = written(tmp_path / "project" / "train.log", TABLE)
    device = path.stat().st_dev
    with shell_in(tmp_path / "project") as procfs:
        (tmp_path / "proc" / "self").unlink()
        (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "ns" / "mnt").symlink_to(Path("/proc/self/ns/mnt").readlink())
        (tmp_path / "proc" / "self" / "mountinfo").write_text(
            f"30 1 {os.major(device)}:{os.minor(device)} / /data rw shared:1 - lustre mgs:/data rw\n"
        )
        assert [output.job for output in logs_of(procfs)] == ["train.log"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_log_in_a_folder_of_all_users_that_is_of_a_service_is_not_read(left: Left):
    os.chown(written(left.tmp / "train.log", TABLE), log_folders.FIRST_USER - 1, -1)
    assert list(past_logs(ProcFs(str(left.proc)), time.time_ns(), [str(left.tmp)])) == []


def test_log_behind_a_link_is_not_followed(tmp_path: Path):
    written(tmp_path / "elsewhere.log", TABLE)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.log").symlink_to(tmp_path / "elsewhere.log")
    with shell_in(tmp_path / "project") as procfs:
        assert logs_of(procfs) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_log_of_another_user_than_that_of_the_shell_is_not_sent(tmp_path: Path):
    path = written(tmp_path / "project" / "train.log", TABLE)
    os.chown(path, STRANGER, STRANGER)
    with shell_in(tmp_path / "project") as procfs:
        assert logs_of(procfs) == []
