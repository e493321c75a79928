"""`gconsole diagnose FOLDER` on dumps that somebody sent: a harmful file is one line, and the others are judged."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gconsole.cli.output import run_from_folder
from gconsole.monitor.imports import collectives, isolated_files, outputs, py_spy_dumps
from gconsole.monitor.imports import folder as folder_import

GROUP = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
THREAD = {
    "pid": 1, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1, "active": False, "owns_gil": False,
    "frames": [{"name": "step", "filename": "/train.py", "line": 3, "module": None}],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three healthy Flight Recorder dumps and py-spy dumps; tests replace those of rank 1."""
    for rank in range(3):
        entry = {"profiling_name": "nccl:all_reduce", "pg_id": 0, "process_group": ["0", "default_pg"],
                 "collective_seq_id": 7, "state": "scheduled", "record_id": 1}  # fmt: skip
        dump = {"version": "2.10", "pg_config": GROUP, "pg_status": {"0": {}}, "entries": [entry]}
        (tmp_path / f"trace_rank{rank}.json").write_text(json.dumps(dump))
        (tmp_path / f"stack_rank{rank}.json").write_text(json.dumps([{**THREAD, "pid": rank + 1}]))
    return tmp_path


def diagnose(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, set[int]]:
    """(summary, errors, ranks whose stacks are in the report)."""
    report = folder.parent / "report.json"
    run_from_folder(folder, (), output=str(report), quiet=False, fail_on=())
    out, err = capsys.readouterr()
    return out, err, set(json.loads(report.read_text())["captures"][0]["read"])


def _type_error(*_: Any) -> Any:
    return sorted([1, "2"])  # type: ignore[type-var]  # what parsers of mixed types run into


def _dies(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _never_ends(*_: Any) -> Any:
    while True:
        pass


FAILURES = {"exception": (_type_error, "TypeError"), "crash": (_dies, "signal 9"), "loop": (_never_ends, "CPU time")}


@pytest.mark.parametrize(("harm", "reason"), FAILURES.values(), ids=FAILURES)
def test_file_that_breaks_its_parser_is_one_line_and_the_others_are_judged(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    harm: Callable[..., Any], reason: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(isolated_files, "CPU_S", 0.2)
    for module, name in ((collectives, "_of_trace"), (py_spy_dumps, "_dumps")):
        before = getattr(module, name)
        monkeypatch.setattr(module, name, _harmed(before, harm))
    _, err, ranks = diagnose(folder, capsys)
    assert ranks == {0, 2}
    lines = err.splitlines()
    assert len([line for line in lines if "trace_rank1.json" in line and reason in line]) == 1, err
    assert len([line for line in lines if "stack_rank1.json" in line and reason in line]) == 1, err
    assert len(lines) == 2, err


def _harmed(parse: Callable[..., Any], harm: Callable[..., Any]) -> Callable[..., Any]:
    def parse_or_fail(*arguments: Any) -> Any:
        is_rank_1 = any(isinstance(each, Path) and "rank1" in each.name for each in arguments)
        return harm(*arguments) if is_rank_1 else parse(*arguments)

    return parse_or_fail


@pytest.mark.parametrize("value", [[1, "2"], {"1": [1, "2"]}, [[1], "2", None], "\u00b2", 2**70, 1e400])
@pytest.mark.parametrize("key", ["ranks", "pg_id", "process_group", "collective_seq_id", "frames", "pid", "line"])
def test_mixed_types_in_a_dump_do_not_affect_other_files(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, value: Any
) -> None:
    for path in folder.glob("*_rank1.json"):
        path.write_text(json.dumps(_replaced(json.loads(path.read_text()), key, value)))
    _, _, ranks = diagnose(folder, capsys)
    assert ranks >= {0, 2}


def _replaced(document: Any, key: str, value: Any) -> Any:
    if isinstance(document, dict):
        return {name: value if name == key else _replaced(part, key, value) for name, part in document.items()}
    return [_replaced(part, key, value) for part in document] if isinstance(document, list) else document


def test_json_that_needs_much_memory_is_one_line_and_the_others_are_judged(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_files, "MEMORY_BYTES", 64 << 20)
    lists = "[" + "[]," * 3_000_000 + "[]]"  # 9 MB, and 200 MB as Python lists
    (folder / "trace_rank1.json").write_text('{"pg_status": {}, "entries": ' + lists + "}")
    (folder / "stack_rank1.json").write_text(lists)
    _, err, ranks = diagnose(folder, capsys)
    assert ranks == {0, 2}
    assert sorted(line.partition("rank1.json: ")[2] for line in err.splitlines()) == [
        "needs more than 64.0 MiB of memory"] * 2, err  # fmt: skip


def test_results_of_all_files_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_files, "RESULT_BYTES", 2000)
    paths = sorted(folder.glob("trace*"))
    imported = collectives.import_files(paths, "job")
    assert imported.records
    assert "not read: the files before it have" in str(imported.problems[-1])


CRASH = """Traceback (most recent call last):
  File "/home/u/train.py", line 20, in <module>
    main()
ValueError: bad label
"""


@pytest.mark.parametrize(("harm", "reason"), FAILURES.values(), ids=FAILURES)
def test_output_that_breaks_its_parser_is_one_line_and_the_others_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    harm: Callable[..., Any], reason: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(isolated_files, "CPU_S", 0.2)
    monkeypatch.setattr(outputs, "_read", _harmed(outputs._read, harm))
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(CRASH)
    out, err = crash(tmp_path, capsys)
    assert "ValueError: bad label" in out
    assert [line for line in err.splitlines() if line.startswith("gconsole: rank1.log: ") and reason in line], err
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize(("harm", "reason"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("step", [(outputs, "_attempts"), (folder_import, "crashes_of")], ids=["ranks", "diagnosis"])
def test_outputs_that_break_what_judges_them_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    harm: Callable[..., Any], reason: str, step: tuple[Any, str],
) -> None:  # fmt: skip
    monkeypatch.setattr(isolated_files, "CPU_S", 0.2)
    monkeypatch.setattr(*step, harm)
    (tmp_path / "rank0.log").write_text(CRASH)
    _, err = crash(tmp_path, capsys)
    assert len([line for line in err.splitlines() if reason in line]) == 1, err


def test_name_that_is_not_utf_8_hides_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/rank\xff.log")).write_text("step 1\n")
    (tmp_path / "rank0.log").write_text(CRASH)
    out, err = crash(tmp_path, capsys)
    assert "ValueError: bad label" in out
    assert err == ""


def crash(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    run_from_folder(folder, (), output=None, quiet=False, fail_on=())
    out, err = capsys.readouterr()
    return out, "".join(line for line in err.splitlines(keepends=True) if not line.startswith("no failure in"))


def test_no_process_is_left_when_reading_is_abandoned(folder: Path) -> None:
    before = _children()
    files = isolated_files.read_each(sorted(folder.glob("*.json")) * 100, _slow, str)
    next(files)
    files.close()
    assert _children() == before


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def _slow(path: Path) -> str:
    time.sleep(0.01)
    return path.name
