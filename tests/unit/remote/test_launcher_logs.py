"""What launchers and ranks printed last, in files that shells wrote: of failed jobs that are over, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_proc import check
from past_job_files import TABLE, Left, maps_and_waits, seen_in, shell_in, written

from gconsole_remote.proc import log_folders
from gconsole_remote.proc.launcher_logs import past_logs
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.torchrun_logs import RECENT_S, PastOutput
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.past_jobs import PastJobSampler

STRANGER = 65_000


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def logs_of(procfs: ProcFs) -> list[PastOutput]:
    return list(past_logs(procfs, time.time_ns()))


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
    assert (output.job, output.stream, output.path) == (f"{path.parent.name}/{path.name}", "file", str(path))
    assert output.text.endswith(report + "exit 1\n")


@pytest.mark.parametrize("after", ["", "[rank1]:[W1128 15:41:02 ProcessGroup.cpp:1] Warning: not destroyed\n", "\n"])
def test_log_of_a_rank_that_ends_with_its_exception_is_sent(tmp_path: Path, after: str):
    written(
        tmp_path / "project" / "rank-1.log",
        "step 1\n[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: bad\n[rank1]: shard\n" + after,
    )
    with shell_in(tmp_path / "project") as procfs:
        assert [output.job for output in logs_of(procfs)] == ["project/rank-1.log"]


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
    assert (output.job, output.path) == (f"{path.parent.name}/{path.name}", str(path))


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
        assert [output.job for output in logs_of(procfs)] == ["project/train.log"]


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


@pytest.mark.parametrize(("ago_s", "jobs"), [(50, ["llama", "llama"]), (600, ["llama", "tmp/run.log"])])
def test_log_of_a_launcher_is_of_the_job_whose_run_ended_then(left: Left, ago_s: float, jobs: list[str]):
    left.failed("llama_abcd1234", attempt=1, ago_s=60)
    written(left.tmp / "run.log", TABLE, ago_s)
    sampler = PastJobSampler(Context(proc=str(left.proc)))
    sampler.folders = (str(left.tmp),)
    records = [check(kind, fields) for kind, fields in sampler.tick(0.0)]
    assert [each.job for each in records] == jobs
    assert records[1].attempt == (1 if jobs[1] == "llama" else 0)


def records_of(left: Left) -> list[tuple[str, str]]:
    sampler = PastJobSampler(Context(proc=str(left.proc)))
    sampler.folders = (str(left.tmp),)
    return [(record.stream, record.job) for record in (check(kind, fields) for kind, fields in sampler.tick(0.0))]


def test_logs_of_two_jobs_that_failed_with_a_run_are_jobs_of_their_own(left: Left):
    left.failed("llama_abcd1234", ago_s=60)
    for name in ("a", "b"):
        written(left.tmp / name / "train.log", TABLE, 50)
    assert sorted(records_of(left)) == [("error_file", "llama"), ("file", "a/train.log"), ("file", "b/train.log")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_log_is_not_joined_with_a_run_of_another_user(left: Left):
    left.failed("llama_abcd1234", ago_s=60)
    path = written(left.tmp / "victim" / "train.log", TABLE, 50)
    for each in (path, path.parent):
        os.chown(each, STRANGER, STRANGER)
    for parent in (left.tmp, *left.tmp.parents[:3]):
        parent.chmod(0o755)
    assert sorted(records_of(left)) == [("error_file", "llama"), ("file", "victim/train.log")]


def test_file_that_goes_while_a_folder_is_listed_is_left_out(left: Left, monkeypatch: pytest.MonkeyPatch):
    written(left.tmp / "train.log", TABLE)
    written(left.tmp / "gone.log", TABLE)
    state = log_folders._state

    def state_of(entry: os.DirEntry[str]) -> os.stat_result | None:
        if entry.name == "gone.log":
            (left.tmp / entry.name).unlink(missing_ok=True)
        return state(entry)

    monkeypatch.setattr(log_folders, "_state", state_of)
    assert records_of(left) == [("file", "tmp/train.log")]
