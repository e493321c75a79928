"""Optional parts of a capture: variables, named processes, native frames, source lines."""

import os
import signal
import sys
import time

from live_ranks import LOCK, READY, SLEEP, capture, main_thread

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import py_spy, source_lines
from gconsole_remote.stacks.readers import PARSERS

CALLS = READY + (
    "import time\ndef recv(src, secret='s3'):\n    time.sleep(600)\ndef send(src):\n    recv(src + 1)\nsend(1)\n"
)


def test_only_requested_variables_are_read(ranks):
    ranks.python(CALLS)
    _, records = capture(ranks.seen(), locals=["src"])
    stack = main_thread(records)
    found = [(stack.frames[local.frame].function, local.name, local.value) for local in stack.locals]
    assert found == [("send", "src", "1"), ("recv", "src", "2")]
    assert "s3" not in str(records)


def test_variable_can_be_requested_for_one_function_only(ranks):
    ranks.python(CALLS)
    _, records = capture(ranks.seen(), locals=["recv:src"])
    assert [local.value for local in main_thread(records).locals] == ["2"]


def test_no_variable_is_read_without_a_request(ranks):
    ranks.python(CALLS)
    assert main_thread(capture(ranks.seen())[1]).locals is None


def test_only_requested_processes_are_captured(ranks):
    ranks.python(SLEEP)
    ranks.python(SLEEP)
    _, records = capture(ranks.seen(), only=[ranks.processes[1].pid])
    assert {record.rank for record in records} == {1}


def test_native_stack_is_read_last_and_the_process_continues(ranks):
    ranks.python(LOCK)
    answer, records = capture(ranks.seen(), native=[ranks.processes[0].pid])
    plain, whole = [record for record in records if record.thread_name == "MainThread"]
    assert (plain.native, plain.mode, whole.native, whole.mode) == (False, "nonblocking", True, "blocking")
    assert whole.sample == plain.sample + 1
    assert whole.began < whole.ended
    assert [frame.function for frame in whole.frames if not frame.native] == ["<module>", "take"]
    assert any("acquire_lock" in frame.function for frame in whole.frames if frame.native)
    assert answer["stopped_since"] == 0
    ranks.until_state(0, "S")


def test_native_capture_does_not_attach_to_a_stopped_process(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    _, records = capture(ranks.seen(), native=[ranks.processes[0].pid])
    assert [record.native for record in records] == [False]
    assert ranks.state(0) == "T"


def test_process_stopped_by_a_reader_is_resumed(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    rank = ranks.seen().ranks[0]
    py_spy.resume(ProcFs(), rank.pid, rank.start_ticks)
    ranks.until_state(0, "S")


def test_source_line_is_sent_for_the_innermost_frame_of_the_job(ranks, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(READY + "import json, threading\ndef rest():\n    threading.Event().wait()\nrest()\n")
    ranks.start([sys.executable, str(script)])
    ranks.until_state(0, "S")
    stack = main_thread(capture(ranks.seen())[1])
    assert [frame.source for frame in stack.frames if frame.source] == ["threading.Event().wait()"]
    assert stack.frames[1].source == "threading.Event().wait()"


def test_a_source_that_cannot_be_read_is_left_out(ranks):
    ranks.python(SLEEP)  # "<string>" is not a file
    assert [frame.source for frame in main_thread(capture(ranks.seen())[1]).frames] == [None, None]


def test_loops_around_the_calls_of_a_job_are_read_for_outer_calls_too(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "def train():\n    while goes_on:\n        step()\n        sleep(1)\n\ndef step():\n    reduce()\n"
    )
    calls = [("train", str(script), 3, False), ("step", str(script), 7, False), ("reduce", "<string>", 1, False)]
    frames = source_lines.SourceLines(ProcFs(), PARSERS).encode_frames(os.getpid(), calls)
    assert [frame.get("loop") for frame in frames] == ["while goes_on:", None, None]


def test_sources_of_a_capture_take_a_bounded_number_of_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(source_lines, "MAX_ALL_BYTES", 25)
    reader = source_lines.SourceLines(ProcFs(), PARSERS)
    shown = []
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"step_{name}()  #")
        shown += reader.encode_frames(os.getpid(), [("f", str(tmp_path / name), 1, False)])
    assert [frame.get("source") for frame in shown] == ["step_a()  #", "step_b()  #", None]


def test_hanging_file_system_delays_the_source_reader_only_once(tmp_path, monkeypatch):
    monkeypatch.setattr(source_lines.SourceLines, "_content_of", lambda self, pid, file: time.sleep(60))
    monkeypatch.setattr(source_lines, "READ_TIMEOUT_S", 0.05)
    reader = source_lines.SourceLines(ProcFs(), PARSERS)
    began = time.monotonic()
    frames = [(f"f{number}", f"/x/{number}.py", 1, False) for number in range(9)]
    for frame in frames:
        reader.encode_frames(os.getpid(), [frame])
    assert time.monotonic() - began < 5
