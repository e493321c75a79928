"""Last words of real processes: read after their end, and only what they themselves may read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_proc import check

from gconsole_remote.proc.exits import ExitWatch
from gconsole_remote.proc.output_files import TAIL_BYTES, OutputFile
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.outputs import OutputSampler
from gconsole_remote.samplers.process_snapshot import WriterRef

DEADLINE_S = 20.0


class Writers:
    """Processes whose outputs a sampler follows; `tick` returns the records of one instant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = Context()
        self.sampler = OutputSampler(self.context)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.refs: dict[int, WriterRef] = {}
        self.now = 1000.0

    def start(self, code: str, rank: int | None, error_file: str | None = None, **streams: Any) -> int:
        """Run Python code as a rank or a launcher; it begins when it is listed, and goes on when `go` exists."""
        code = f"import os, sys, time\ngo = {str(self.folder / 'go')!r}\n{code}"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, **streams)
        self.processes.append(process)
        fields = {
            "job": "j", "attempt": 0, "rank": rank, "pid": process.pid, "uid": os.getuid(),
            "start_ticks": ProcFs().stat(process.pid).start_ticks, "world_size": 2, "local_world_size": 2,
        }  # fmt: skip
        self.refs[process.pid] = WriterRef(fields, error_file)
        return process.pid

    def tick(self, seconds: float = 0.5) -> list[Any]:
        alive = [process.pid for process in self.processes if process.poll() is None]
        known = self.context.shared.get("writers", ())
        if [ref.pid for ref in known] != alive:
            self.context.shared["writers"] = tuple(self.refs[pid] for pid in alive)
        self.now += seconds
        return [check(kind, fields) for kind, fields in self.sampler.tick(self.now)]

    def go(self) -> None:
        """Let the processes go on, and wait for their end."""
        (self.folder / "go").touch()
        for process in self.processes:
            process.wait(DEADLINE_S)


WAIT = "while not os.path.exists(go): time.sleep(0.01)\n"


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    writers = Writers(tmp_path)
    yield writers
    for process in writers.processes:
        process.kill()
        process.wait()
    writers.sampler.stop()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_output_is_sent_when_its_rank_ends_also_from_a_file_that_was_deleted(writers: Writers, tmp_path: Path):
    log = tmp_path / "rank.log"
    with log.open("w") as file:
        writers.start(WAIT + "raise ValueError('the last words')", 3, stdout=file, stderr=file)
    assert writers.tick() == []
    log.unlink()
    assert writers.tick() == []
    writers.go()

    (record,) = writers.tick()

    assert (record.stream, record.rank, record.status) == ("stderr", 3, "ok")
    assert record.text.endswith("ValueError: the last words\n")
    assert record.size == len(record.text)


def test_nothing_of_a_growing_log_is_read_while_all_ranks_live(
    writers: Writers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reads: list[OutputFile] = []
    monkeypatch.setattr(OutputFile, "state", lambda file: reads.append(file))
    monkeypatch.setattr(OutputFile, "tail", lambda file, size, most: reads.append(file))
    with (tmp_path / "log").open("w") as file:
        writers.start(WAIT, 0, stdout=file, stderr=file)
    for _ in range(5):
        writers.tick()
    assert not reads


def test_only_the_last_whole_lines_of_a_long_output_are_sent(writers: Writers, tmp_path: Path):
    with (tmp_path / "log").open("w") as file:
        writers.start("for i in range(5000): print('line', i)\n" + WAIT, 0, stdout=file, stderr=file)
    writers.tick()
    writers.go()
    (record,) = writers.tick()
    assert len(record.text) <= TAIL_BYTES and record.text.startswith("line ") and record.text.endswith("line 4999\n")


def test_output_that_grows_after_the_end_is_sent_again(writers: Writers, tmp_path: Path):
    log = tmp_path / "log"
    with log.open("w") as file:
        writers.start(WAIT, 0, stdout=file, stderr=file)
    writers.tick()
    writers.go()
    assert [record.text for record in writers.tick()] == [""]
    log.write_text("written late\n")
    assert [record.text for record in writers.tick(1.0)] == ["written late\n"]
    assert writers.tick(60.0) == []
    assert not writers.sampler._writers, "its descriptors are closed"


def test_file_that_processes_share_is_sent_once_and_belongs_to_no_rank(writers: Writers, tmp_path: Path):
    with (tmp_path / "log").open("w") as file:
        for rank in (None, 0, 1):
            writers.start(f"print('of', {rank}, flush=True)\n" + WAIT, rank, stdout=file, stderr=file)
    until(lambda: (tmp_path / "log").read_text().count("of") == 3)
    writers.tick()
    writers.go()

    records = writers.tick()

    whole = [record for record in records if record.text is not None]
    assert [(record.stream, record.rank, record.text.count("of")) for record in whole] == [("file", None, 3)]
    assert {record.rank for record in records if record.text is None} == {0, 1}


def test_pipe_is_unreadable_but_its_reader_and_the_file_behind_it_are_named(writers: Writers, tmp_path: Path):
    log = tmp_path / "train.log"
    tee = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        writers.start(WAIT + "raise ValueError('through tee')", 1, stdout=tee.stdin, stderr=tee.stdin)
        until(log.exists)
        writers.tick()
        writers.go()
        until(lambda: "through tee" in log.read_text())
        records = {record.stream: record for record in writers.tick()}
    finally:
        tee.stdin.close()
        tee.wait()
    assert records["stderr"].status == "unreadable"
    assert f"its reader is pid {tee.pid} (tee), which writes {log}" in records["stderr"].reason
    assert (records["file"].rank, records["file"].path) == (1, str(log))
    assert "ValueError: through tee" in records["file"].text


@pytest.mark.parametrize("mode", ["O_PATH", "O_RDONLY"])
def test_file_that_a_process_did_not_open_for_writing_is_not_read(writers: Writers, tmp_path: Path, mode: str):
    secret = tmp_path / "shadow"
    secret.write_text("root:secret\n")
    writers.start(f"os.dup2(os.open({str(secret)!r}, os.{mode}), 1)\nos.dup2(1, 2)\nopen(go + '1', 'w')\n" + WAIT, 0,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    until((tmp_path / "go1").exists)
    writers.tick()
    writers.go()
    assert {(record.status, record.text) for record in writers.tick()} == {("unreadable", None)}


def test_fifo_and_null_device_are_not_opened(writers: Writers, tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    writers.start(f"os.dup2(os.open({str(tmp_path / 'fifo')!r}, os.O_RDWR), 1)\nopen(go + '1', 'w')\n" + WAIT, 0,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    until((tmp_path / "go1").exists)
    writers.tick()
    writers.go()
    reasons = {record.stream: record.reason for record in writers.tick()}
    assert reasons["stdout"].startswith("a FIFO or a device") and reasons["stderr"].startswith("/dev/null")


def test_error_file_is_sent_and_one_of_another_user_is_not(writers: Writers, tmp_path: Path):
    good, bad = tmp_path / "0" / "error.json", tmp_path / "1" / "error.json"
    other = tmp_path / "other.json"
    other.write_text("{}")
    for rank, path in enumerate((good, bad)):
        path.parent.mkdir()
        writers.start(WAIT, rank, str(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    writers.tick()
    good.write_text(json.dumps({"message": "boom"}))
    bad.symlink_to(other)
    writers.go()
    records = [record for record in writers.tick() if record.stream == "error_file"]
    assert {(record.rank, record.status, record.text) for record in records} == {
        (0, "ok", '{"message": "boom"}'), (1, "unreadable", None),
    }  # fmt: skip


def test_outputs_of_earlier_attempts_are_sent_at_once(writers: Writers, tmp_path: Path):
    for attempt in (0, 1):
        (tmp_path / f"none_x/attempt_{attempt}/1").mkdir(parents=True)
    (tmp_path / "none_x/attempt_0/1/stderr.log").write_text("ValueError: first attempt\n")
    (tmp_path / "none_x/attempt_0/1/error.json").write_text('{"message": "x"}')
    path = str(tmp_path / "none_x/attempt_1/1/error.json")
    writers.start(WAIT, 1, path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    records = writers.tick()
    assert {(record.attempt, record.rank, record.stream, record.text) for record in records} == {
        (0, 1, "stderr", "ValueError: first attempt\n"), (0, 1, "error_file", '{"message": "x"}'),
    }  # fmt: skip


def test_outputs_of_living_ranks_are_sent_on_request(writers: Writers, tmp_path: Path):
    with (tmp_path / "log").open("w") as file:
        writers.start("print('alive', flush=True)\n" + WAIT, 0, stdout=file, stderr=file)
    until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    writers.tick()
    writers.context.shared["outputs_wanted"] = frozenset(["j"])
    assert [record.text for record in writers.tick()] == ["alive\n"]


@pytest.mark.parametrize("opener", ["pidfd_open", "system call"])
@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_end_of_a_process_is_learned_while_it_is_a_zombie(
    writers: Writers, code: str, expected: int, opener: str, monkeypatch: pytest.MonkeyPatch
):
    if opener == "system call":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    watch = ExitWatch(ProcFs())
    pid = writers.start(WAIT + code, 0, stderr=subprocess.DEVNULL)
    key = (pid, writers.refs[pid].start_ticks)
    watch.add(key, True)
    before_ns = time.time_ns()
    (writers.folder / "go").touch()

    end = until(lambda: watch.ends.get(key))

    assert end.exit_code == expected
    assert before_ns <= end.hi_ns <= time.time_ns() and end.hi_ns - end.lo_ns > 0
    watch.drop(key)
    assert not watch.ends
