"""Stacks of the main thread in the output of py-spy."""

import platform
import subprocess
import sys
import time

import pytest

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import profile

#: A program that blocks in one call of the main thread; `a` and `b` are connected.
BLOCKED = "import os, socket, sys, time; a, b = socket.socketpair(); print('ready', flush=True); "
DEADLINE_S = 60.0

OUT = b"""\
thread (11): Thread-1;run (/a.py:1) 40
thread (10): MainThread;<module> (/t.py:9);step (/t.py:4) 30
thread (10): MainThread;<module> (/t.py:9) 10
process 7;thread (10): MainThread;x 5
thread (12): named;y (/t.py:1) many
py-spy> a message
"""


def test_only_the_main_thread_is_kept_the_most_frequent_stack_first():
    assert profile.parse(OUT, (10, None)) == [["<module> (/t.py:9);step (/t.py:4)", 30], ["<module> (/t.py:9)", 10]]


def test_main_thread_is_known_by_its_number_where_it_has_another_name():
    assert profile.parse(b"thread (7): renamed;f (/t.py:1) 3\n", (7, 3)) == [["f (/t.py:1)", 3]]
    assert profile.parse(b"thread (3): renamed;f (/t.py:1) 3\n", (7, 3)) == [["f (/t.py:1)", 3]]
    assert profile.parse(b"thread (4): renamed;f (/t.py:1) 3\n", (7, 3)) == []


def test_control_characters_and_endless_stacks_do_not_get_into_a_reply():
    ((stack, _),) = profile.parse(b"thread (1): MainThread;a\x1b[31m (/t.py:1) 3\n", (1,))
    assert "\x1b" not in stack
    assert profile.parse(b"thread (1): MainThread;" + b"f;" * 9000 + b"g 3\n", (1,)) == []


def test_number_of_stacks_is_bounded():
    out = b"".join(b"thread (1): MainThread;f%d (/t.py:1) 1\n" % number for number in range(1000))
    assert len(profile.parse(out, (1,))) == profile.MAX_STACKS


def test_lines_forged_by_a_function_name_do_not_end_the_reader():
    forged = "thread (\u00b2): MainThread;f \u00b2\nthread (1): MainThread;g " + "9" * 5000 + "\n"
    assert profile.parse(forged.encode() + b"thread (1): MainThread;h (/t.py:1) 3\n", (1,)) == [["h (/t.py:1)", 3]]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="names of system calls are unknown")
@pytest.mark.parametrize(
    "call, is_network",
    [("a.recv(1)", True), ("os.read(a.fileno(), 1)", True), ("os.read(0, 1)", False), ("time.sleep(600)", False)],
)
def test_main_thread_that_waits_for_the_network_is_known_by_its_system_call(call, is_network):
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED + call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        procfs, deadline, answers = ProcFs(), time.monotonic() + DEADLINE_S, []
        while answers[-5:] != [is_network] * 5 and time.monotonic() < deadline:  # it may not be there yet
            time.sleep(0.05)
            answers.append(profile.waits_for_network(procfs, process.pid))
        if not any(answer is not None for answer in answers):
            pytest.skip("this kernel does not show system calls")
        assert answers[-5:] == [is_network] * 5, answers
    finally:
        process.kill()
        process.communicate()


def test_what_waits_in_a_process_that_is_gone_is_unknown():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert profile.waits_for_network(ProcFs(), process.pid) is None
