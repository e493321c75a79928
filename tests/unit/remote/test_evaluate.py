"""Expressions evaluated in a live process by gdb: values, refusals, and jobs that go on unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gconsole_remote.agent import commands
from gconsole_remote.agent.requests import RequestError
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import evaluate

pytestmark = [
    pytest.mark.skipif(not os.access(evaluate.GDB, os.X_OK), reason=f"no {evaluate.GDB}: apt-get install gdb"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="eval is for x86_64"),
]

#: A loop that checks itself: threads, timed waits whose system calls a debugger interrupts, and own variables.
LOOP = """
import select, sys, threading, time
def train(mode):
    steps, secret, model = 0, "token=abcdefgh", [1, 2, 3]
    lock = threading.Lock(); lock.acquire()
    while True:
        steps += 1
        began = time.monotonic()
        if mode == "sleep":
            time.sleep(0.1)
        elif mode == "lock":
            assert lock.acquire(timeout=0.1) is False
        else:
            sum(i * i for i in range(2000))
        assert mode == "cpu" or time.monotonic() - began > 0.09
        print(steps, flush=True)
for _ in range(4):
    threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()
train(sys.argv[1])
"""


class Process:
    """A rank, and an agent that has found it."""

    def __init__(self, argv: list[str], user: int | None = None) -> None:
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.pid = self.process.pid
        ticks = ProcFs().stat(self.pid).start_ticks
        self.rank = SimpleNamespace(pid=self.pid, start_ticks=ticks)
        self.logs: list = []
        self.steps: list[int] = []  # numbers that it has written
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._drainer.start()
        self.agent = SimpleNamespace(
            config={"allow_eval": True}, outbox=SimpleNamespace(post=self.logs.extend),
            context=SimpleNamespace(shared={"processes": SimpleNamespace(ranks=[self.rank])}),
        )  # fmt: skip

    def evaluate(self, expression: str, timeout_s: float = 30.0) -> dict:
        return evaluate.run_eval(self.agent, {"pid": self.pid, "start_ticks": self.rank.start_ticks,
                                              "expression": expression, "timeout_s": timeout_s})  # fmt: skip

    def _drain(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append(int(line))

    def makes_steps(self, count: int = 3) -> bool:
        """Whether it writes so many further lines, and all so far had rising numbers."""
        wanted, deadline = len(self.steps) + count, time.monotonic() + 60
        while len(self.steps) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        steps = list(self.steps)
        return len(steps) >= wanted and steps == list(range(steps[0], steps[0] + len(steps)))

    def end(self) -> None:
        self.process.kill()
        self._drainer.join()
        self.process.communicate()


@pytest.fixture
def loop(request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process([sys.executable, "-c", LOOP, getattr(request, "param", "cpu")])
    yield process
    process.end()


@pytest.mark.usefixtures("needs_gdb_calls")
@pytest.mark.parametrize("loop", ["cpu", "sleep", "lock"], indirect=True)
def test_values_come_from_the_jobs_own_frame_and_its_loop_goes_on(loop: Process) -> None:
    first, second = loop.evaluate("steps"), loop.evaluate("[x * steps for x in model]")
    assert (first["outcome"], first["type"], second["type"]) == ("value", "int", "list")
    assert first["place"].endswith((" train", " <genexpr>"))
    assert loop.makes_steps()
    assert loop.evaluate("1 / 0") | {"paused_s": 0} == {
        "outcome": "error", "place": None, "type": "ZeroDivisionError", "text": "division by zero", "way": "gdb",
        "paused_s": 0,
    }  # fmt: skip
    assert loop.evaluate("nosuch")["type"] == "NameError"
    assert loop.evaluate("import os")["type"] == "SyntaxError"
    assert loop.evaluate("steps = 5")["type"] == "SyntaxError"
    assert loop.evaluate("[name for name in __import__('__main__').__dict__ if 'eval' in name]")["text"] == "[]"
    assert loop.evaluate("'x' * 10**6")["text"].startswith("'xxx")
    assert len(loop.evaluate("'x' * 10**6")["text"]) <= evaluate.RESULT_BYTES
    assert loop.makes_steps()
    assert loop.process.poll() is None


@pytest.mark.usefixtures("needs_gdb_calls")
def test_blocked_main_thread_is_a_timeout_and_nothing_is_evaluated_later(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = "import signal, time, ctypes\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nprint(0, flush=True)\n"
    script += (
        "ctypes.CDLL(None).pause()\nfor step in range(10**9):\n    time.sleep(0.01)\n    print(step, flush=True)\n"
    )
    process = Process([sys.executable, "-c", script])
    try:
        with pytest.raises(RequestError) as error:
            process.evaluate(f"open({str(mark)!r}, 'w')", timeout_s=0.3)
        assert error.value.name == "eval_timeout"
        os.kill(process.pid, signal.SIGUSR1)  # it executes bytecode again
        assert process.makes_steps(20)
        assert not mark.exists()
        assert process.evaluate("step")["type"] == "int"
    finally:
        process.end()


def test_refused_where_it_is_off_not_a_rank_traced_or_stopped(loop: Process) -> None:
    def name_of(problem: pytest.ExceptionInfo[RequestError]) -> str:
        return problem.value.name

    loop.agent.config = {}
    with pytest.raises(RequestError) as problem:
        loop.evaluate("steps")
    assert name_of(problem) == "eval_off"
    loop.agent.config = {"allow_eval": True}
    for expression in ("", "x" * 5000, "a\0b"):
        with pytest.raises(RequestError) as problem:
            loop.evaluate(expression)
        assert name_of(problem) == "bad_request"
    os.kill(loop.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, loop.pid, os.WSTOPPED)
    with pytest.raises(RequestError) as problem:
        loop.evaluate("steps")
    assert name_of(problem) == "not_running"
    os.kill(loop.pid, signal.SIGCONT)
    loop.rank.start_ticks += 1
    loop.agent.context.shared["processes"].ranks = []
    with pytest.raises(RequestError) as problem:
        loop.evaluate("steps")
    assert name_of(problem) == "no_rank"
    assert loop.logs == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root evaluates in processes of others")
def test_refusal_without_a_debugger_names_what_to_install(loop: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "GDB", "/nonexistent/gdb")
    for number, try_ in (((3, 11), "install gdb"), ((3, 14), "set [agent] python to the same version")):
        version = SimpleNamespace(number=number, free_threaded=False)
        monkeypatch.setattr(evaluate.programs, "version_of", lambda procfs, pid, version=version: version)
        with pytest.raises(RequestError) as problem:
            loop.evaluate("steps")
        assert problem.value.name == "no_debugger" and try_ in problem.value.try_
    for number, is_free_threaded in (((3, 15), False), ((3, 14), True)):
        version = SimpleNamespace(number=number, free_threaded=is_free_threaded)
        monkeypatch.setattr(evaluate.programs, "version_of", lambda procfs, pid, version=version: version)
        with pytest.raises(RequestError) as problem:
            loop.evaluate("steps")
        assert problem.value.name == "unsupported" and "3.6 to 3.14" in problem.value.try_
    assert loop.logs == []


@pytest.mark.usefixtures("needs_gdb_calls")
def test_debugger_runs_as_the_user_of_the_rank_without_capabilities() -> None:
    process = Process(["/usr/bin/python3", "-c", LOOP, "cpu"], user=65534)
    seen: set[tuple[bytes, bytes, bytes]] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):  # gdb lives longer, and shares two cores with this loop
            for name in ProcFs().names():
                try:
                    if name.isdigit() and ProcFs().argv(name)[:1] == [evaluate.GDB]:
                        status = dict(line.split(b":\t", 1) for line in ProcFs().read(name, "status").splitlines())
                        if status[b"Name"] == b"gdb":
                            seen.add((status[b"Uid"], status[b"CapEff"], status[b"NoNewPrivs"]))
                except (OSError, ValueError, KeyError):
                    pass  # gone

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert process.evaluate("__import__('os').geteuid()")["text"] == "65534"
        assert process.makes_steps()
    finally:
        ended.set()
        watcher.join()
        process.end()
    assert seen == {(b"65534\t65534\t65534\t65534", b"0" * 16, b"1")}


@pytest.mark.parametrize("user", [None, 65534])
def test_debugger_that_cannot_call_functions_does_not_touch_the_rank(
    monkeypatch: pytest.MonkeyPatch, user: int | None
) -> None:
    """A call that fails after gdb has written some registers ends `time.sleep` with an OSError."""
    monkeypatch.setattr(evaluate, "_checked", [])
    fails = 'cat > /dev/null; echo "Couldn\'t write extended state status: Bad address." >&2'
    monkeypatch.setitem(commands.COMMANDS, "gdb_check", ["/bin/sh", "-c", fails])
    monkeypatch.setitem(commands.COMMANDS, "gdb_call", ["/bin/kill", "-9", "{pid}"])
    process = Process(["/usr/bin/python3", "-c", LOOP, "sleep"], user=user)
    try:
        with pytest.raises(RequestError) as problem:
            process.evaluate("steps")
        assert problem.value.name == "debugger_failed"
        assert "extended state" in problem.value.text and "not touched" in problem.value.text
        assert "newer gdb" in problem.value.try_
        assert process.makes_steps()
    finally:
        process.end()
    assert evaluate._checked == []


@pytest.mark.parametrize("loop", ["sleep"], indirect=True)
def test_rank_goes_on_whatever_the_debugger_of_this_machine_can_do(
    loop: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "_checked", [])
    try:
        assert loop.evaluate("steps")["type"] == "int"
    except RequestError as problem:
        assert "not touched" in problem.text
    assert loop.makes_steps()


def test_commands_for_the_debugger_have_no_text_of_a_user() -> None:
    source = evaluate._source("'\\n detach \\n shell id'", time.time(), "into_memory(1)")
    addresses = {b"mmap": 1, b"Py_AddPendingCall": 2, b"PyRun_SimpleString": 3}
    script = evaluate._script(addresses, 0x200000000000, source).decode("ascii")
    assert "shell" not in script
    assert all(line.startswith("set *(unsigned long *) ") for line in script.splitlines()[7:-4])


def test_result_that_a_rank_made_up_has_bounded_fields() -> None:
    for data in (b"", b"\xff\xfe", b"value", b"value\n" + b"p" * 9999 + b"\n" + b"t" * 9999 + b"\n\x1b[2J"):
        memory = SimpleNamespace(read=lambda *_, data=data: evaluate._parsed(data))
        fields = evaluate._result(memory, 1, 2)
        assert fields["outcome"] in ("value", "error")
        assert len(fields["place"] or "") <= 300
        assert len(fields["type"]) <= 100
