"""Expressions evaluated by `sys.remote_exec`: the choice of the way, the file, its folder, and a real Python 3.14."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_evaluate import LOOP, Process

from gconsole_remote.agent import commands
from gconsole_remote.agent.requests import RequestError
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import evaluate, remote_exec, remote_exec_program

PYTHON = shutil.which("python3.14")
needs_python = pytest.mark.skipif(PYTHON is None, reason="no python3.14 on the PATH")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of others")
NEW = SimpleNamespace(number=(3, 14, 1), free_threaded=False)


@pytest.fixture
def agent_of_3_14(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent chooses as one under Python 3.14 does, and starts its process with a real one, if there is one."""
    monkeypatch.setattr(
        remote_exec, "sys", SimpleNamespace(version_info=(3, 14, 9), executable=PYTHON or sys.executable, remote_exec=0)
    )


@pytest.fixture
def no_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "GDB", "/nonexistent/gdb")


@pytest.fixture
def left() -> Iterator[list[Path]]:
    """What is in the shared folders in the end and was not there before; nothing, if all is removed."""

    def entries() -> set[Path]:
        return {path for folder in remote_exec_program.SHARED for path in Path(folder).glob("gconsole-eval-*")}

    before = entries()
    yield []
    assert entries() == before


# -- the choice of the way ---------------------------------------------------------------------------------------------


def test_same_new_version_and_same_files_are_required(agent_of_3_14: None, monkeypatch: pytest.MonkeyPatch) -> None:
    procfs = ProcFs()
    assert remote_exec.is_possible(procfs, os.getpid(), NEW)
    for number in ((3, 13, 0), (3, 15, 0)):
        assert not remote_exec.is_possible(procfs, os.getpid(), SimpleNamespace(number=number))
    monkeypatch.setattr(remote_exec, "sys", SimpleNamespace(version_info=(3, 13, 0), executable=sys.executable))
    assert not remote_exec.is_possible(procfs, os.getpid(), SimpleNamespace(number=(3, 13, 0)))
    assert not remote_exec.is_possible(procfs, os.getpid(), NEW)


def test_rank_with_other_files_is_left_to_the_debugger(agent_of_3_14: None, tmp_path: Path) -> None:
    for pid, root, namespace in (("1", tmp_path, "mnt:[1]"), ("2", Path("/"), "mnt:[2]"), ("3", Path("/"), "mnt:[1]")):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "root").symlink_to(root)
        (tmp_path / pid / "ns" / "mnt").symlink_to(namespace)
    (tmp_path / "self").symlink_to("3")
    procfs = SimpleNamespace(root=str(tmp_path))
    assert [remote_exec.is_possible(procfs, pid, NEW) for pid in (1, 2, 3, 4)] == [False, False, True, False]


# -- the folder and the file -------------------------------------------------------------------------------------------


def test_folder_is_for_its_user_alone_and_its_place_protects_it(tmp_path: Path) -> None:
    loose, sticky, own = tmp_path / "loose", tmp_path / "sticky", tmp_path / "own"
    for folder, mode in ((loose, 0o777), (sticky, 0o1777), (own, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    (tmp_path / "link").symlink_to(sticky)
    assert [remote_exec_program.is_safe(str(tmp_path / name)) for name in ("loose", "sticky", "own", "link", "no")] == [
        False, True, True, False, False
    ]  # fmt: skip
    made = Path(remote_exec_program.make_folder("a", [str(loose), str(tmp_path / "no"), str(sticky)]))
    assert made == sticky / "a"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    with pytest.raises(OSError, match="File exists"):  # a folder of another user is not used
        remote_exec_program.make_folder("a", [str(sticky)])
    with pytest.raises(OSError, match="could be replaced by others"):
        remote_exec_program.make_folder("b", [str(loose)])


@as_root
def test_folder_of_another_user_is_not_safe(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert not remote_exec_program.is_safe(str(tmp_path))


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executes, wait_s: float = 5.0) -> tuple[str, bytes]:
    """The answer of the program with a `sys.remote_exec` of ours, in a folder of ours that is empty in the end."""
    answer = tmp_path / "answer"
    with answer.open("wb") as out:
        monkeypatch.setattr(sys, "remote_exec", executes, raising=False)
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
        make_folder = remote_exec_program.make_folder
        monkeypatch.setattr(remote_exec_program, "make_folder", lambda name: make_folder(name, [str(tmp_path)]))
        remote_exec_program.main(7, "folder", b"pass\n", wait_s, 100)
    assert not (tmp_path / "folder").exists()
    word, _, rest = answer.read_bytes().partition(b"\n")
    return word.decode(), rest


def test_result_is_bounded_and_file_has_mode_0600(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def executes(pid: int, path: str) -> None:
        if path != os.devnull:
            state = Path(path).stat()
            modes.append((stat.S_IMODE(state.st_mode), state.st_uid, Path(path).read_text()))
            (tmp_path / "folder" / "result").write_bytes(b"x" * 200)

    assert program(tmp_path, monkeypatch, executes) == ("done", b"x" * 100)
    assert modes == [(0o600, os.geteuid(), f"RESULT = {str(tmp_path / 'folder' / 'result')!r}\npass\n")]


def test_program_that_was_not_started_in_time_is_replaced_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    answer = program(tmp_path, monkeypatch, lambda pid, path: paths.append(path), wait_s=0.0)
    assert answer == ("timeout", b"")
    assert paths == [str(tmp_path / "folder" / "payload.py"), "/dev/null"]


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_result_that_is_no_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def executes(pid: int, path: str) -> None:
        result = tmp_path / "folder" / "result"
        if path != os.devnull:
            os.mkfifo(result) if kind == "fifo" else result.symlink_to("/etc/hostname")

    word, text = program(tmp_path, monkeypatch, executes)
    assert word == "failed" and text


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (RuntimeError("Remote debugging is not enabled in the remote process"), "eval_disabled"),
        (PermissionError(1, "Operation not permitted"), "no_permission"),
        (RuntimeError("Failed to read debug offsets"), "eval_failed"),
        (ProcessLookupError(3, "No such process"), "eval_failed"),
    ],
)
def test_refusal_of_python_is_an_error_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, name: str
) -> None:
    def executes(pid: int, path: str) -> None:
        raise error

    word, text = program(tmp_path, monkeypatch, executes)
    problem = remote_exec._problem(7, word, text.decode(), 5.0)
    assert problem.name == name
    assert "PYTHON_DISABLE_REMOTE_DEBUG" in problem.text or str(error) in problem.text
    assert "ptrace_scope" in problem.try_ or name != "no_permission"


@pytest.mark.parametrize("ends_by", ["timeout", "signal"])
def test_killed_program_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, agent_of_3_14: None, left: list[Path], ends_by: str
) -> None:
    made = []

    def killed(name: str, timeout_s: float, **options: Any) -> tuple[int, bytes, bytes]:
        given = options["given"].decode().rsplit("main(", 1)[1]
        folder = Path(remote_exec_program.make_folder(given.split("'")[1]))
        (folder / "payload.py").write_text("")
        made.append(folder)
        if ends_by == "timeout":
            raise commands.CommandTimeout("timed out")
        return -9, b"", b""

    monkeypatch.setattr(commands, "run_apart", killed)
    with pytest.raises(RequestError, match="timed out" if ends_by == "timeout" else "exit status -9"):
        remote_exec.execute(os.getpid(), b"pass", 1.0, 100)
    assert made and not made[0].exists()


# -- with a real Python 3.14 -------------------------------------------------------------------------------------------


def rank(mode: str = "cpu", user: int | None = None, options: tuple[str, ...] = ()) -> Process:
    assert PYTHON is not None
    return Process([PYTHON, *options, "-c", LOOP, mode], user)


@needs_python
@pytest.mark.parametrize("mode", ["cpu", "sleep", "lock"])
def test_values_come_from_the_job_and_its_loop_goes_on(
    mode: str, agent_of_3_14: None, no_debugger: None, left: list[Path]
) -> None:
    process = rank(mode)
    try:
        first, second = process.evaluate("steps"), process.evaluate("[x * steps for x in model]")
        assert (first["outcome"], first["type"], second["type"]) == ("value", "int", "list")
        assert (first["way"], first["paused_s"]) == ("remote_exec", 0.0)
        assert first["place"].endswith((" train", " <genexpr>"))
        assert process.evaluate("1 / 0")["text"] == "division by zero"
        assert process.evaluate("steps = 5")["type"] == "SyntaxError"
        assert len(process.evaluate("'x' * 10**6")["text"]) <= evaluate.RESULT_BYTES
        assert (
            process.evaluate("[name for name in __import__('__main__').__dict__ if 'RESULT' in name]")["text"] == "[]"
        )
        assert process.makes_steps()
        assert process.process.poll() is None
    finally:
        process.end()


@needs_python
@as_root
def test_program_runs_as_the_user_of_the_rank(agent_of_3_14: None, no_debugger: None, left: list[Path]) -> None:
    process = rank(user=65534)
    try:
        assert process.evaluate("__import__('os').geteuid()")["text"] == "65534"
        assert process.makes_steps()
    finally:
        process.end()


@needs_python
def test_disabled_remote_debugging_is_the_reason(agent_of_3_14: None, no_debugger: None, left: list[Path]) -> None:
    process = rank(options=("-X", "disable-remote-debug"))
    try:
        with pytest.raises(RequestError) as problem:
            process.evaluate("steps")
        assert problem.value.name == "eval_disabled" and "disable-remote-debug" in problem.value.text
        assert process.makes_steps()
    finally:
        process.end()


@needs_python
def test_blocked_main_thread_is_a_timeout_and_nothing_is_evaluated_later(
    agent_of_3_14: None, no_debugger: None, left: list[Path], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    script = "import signal, time, ctypes\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nprint(0, flush=True)\n"
    script += (
        "ctypes.CDLL(None).pause()\nfor step in range(10**9):\n    time.sleep(0.01)\n    print(step, flush=True)\n"
    )
    assert PYTHON is not None
    process = Process([PYTHON, "-c", script])
    try:
        with pytest.raises(RequestError) as error:
            process.evaluate(f"open({str(mark)!r}, 'w')", timeout_s=0.3)
        assert error.value.name == "eval_timeout"
        os.kill(process.pid, signal.SIGUSR1)  # it executes bytecode again
        assert process.makes_steps(20)
        assert not mark.exists()
        assert process.evaluate("step")["type"] == "int"
        assert process.process.poll() is None
    finally:
        process.end()
