"""Log folders that torchrun left behind: of failed jobs that are over, and safe whatever is in them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_proc import check
from past_job_files import ERROR, Left, log_dir_of, shell_in

from gconsole_remote.proc import log_folders, torchrun_logs
from gconsole_remote.proc.output_files import TAIL_BYTES
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.torchrun_logs import MOST_FILES, MOST_JOBS, RECENT_S, PastOutput, past_outputs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.past_jobs import PastJobSampler

STRANGER = 65_000


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


def test_log_dir_in_a_folder_of_all_users_is_found(left: Left):
    folder = log_dir_of(left.tmp / "logs")
    [output] = past_outputs(ProcFs(str(left.proc)), [str(left.tmp)], time.time_ns())
    assert output.path == str(folder / "error.json")
