"""When the outputs of a job were written, and in which order."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gconsole_remote.jobs import write_times
from gconsole_remote.jobs.write_times import WriteTimes, WriteTimesReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")


def until_entered(folder: Path, path: Path, size: int) -> None:
    deadline = time.monotonic() + 30
    name = str(path.relative_to(folder))
    while f" {size} {name}\n" not in (folder / write_times.NAME).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_outputs_written_in_turn_have_rising_instants_also_in_new_folders(tmp_path: Path) -> None:
    times = WriteTimes(str(tmp_path))
    place = tmp_path / "ranks" / "run_1" / "attempt_0" / "0"
    place.mkdir(parents=True)
    out, err = place / "stdout.log", place / "stderr.log"
    before = time.time_ns()
    for path, text in ((out, "one\n"), (err, "two\n"), (out, "three\nfour\n"), (err, "five\n")):
        with path.open("a") as file:
            file.write(text)
        until_entered(tmp_path, path, path.stat().st_size)
    times.close()
    reader = WriteTimesReader(str(tmp_path))
    reader.read()
    stdout = list(reader.runs(str(out), 0, b"one\nthree\nfour"))
    stderr = list(reader.runs(str(err), 0, b"two\nfive"))
    assert [lines for lines, _ in stdout] == [1, 2]
    order = [stdout[0][1], stderr[0][1], stdout[1][1], stderr[1][1]]
    assert order == sorted(order)
    assert before <= order[0] <= order[-1] <= time.time_ns()


def test_last_output_is_entered_at_the_end_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("before\n")
    times = WriteTimes(str(tmp_path))
    with (tmp_path / "output.log").open("a") as file:
        file.write("after\n")
    (tmp_path / "supervisor.log").write_text("x")
    (tmp_path / "exit.json").write_text("{}")
    times.close()
    entries = (tmp_path / write_times.NAME).read_text().splitlines()
    assert entries[-1].endswith(" 13 output.log")
    assert all(line.endswith(" output.log") for line in entries)


def test_instants_are_unknown_where_entries_are_missing_or_damaged(tmp_path: Path) -> None:
    reader = WriteTimesReader(str(tmp_path))
    reader.read()
    assert list(reader.runs(str(tmp_path / "output.log"), 0, b"a")) == []
    (tmp_path / write_times.NAME).write_bytes(b"x y z\n1\n\xff\xff\xff\n-1 5 output.log\n77 2 output.log\n99")
    reader.read()
    assert list(reader.runs(str(tmp_path / "output.log"), 0, b"a")) == [(1, 77)]
    assert list(reader.runs(str(tmp_path / "output.log"), 2, b"b\nc")) == []
