"""Parsing of py-spy output and of its error messages."""

import json
import os

import pytest
from examples import examples
from fake_proc import check
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.process_snapshot import RankRef
from gconsole_remote.stacks import capture, py_spy
from gconsole_remote.stacks.readers import PARSERS
from gconsole_remote.stacks.source_lines import SourceLines


def test_permission_remedy_depends_on_uid_and_ptrace_scope(monkeypatch):
    monkeypatch.setattr(py_spy.os, "geteuid", lambda: 1000)
    assert "uid 0" in py_spy.permission_remedy(0) and 'run_as = "sudo"' in py_spy.permission_remedy(0)
    monkeypatch.setattr(py_spy, "read_number", lambda path: 1)
    assert "kernel.yama.ptrace_scope=0 (is 1)" in py_spy.permission_remedy(1000)
    monkeypatch.setattr(py_spy.os, "geteuid", lambda: 0)
    assert "SYS_PTRACE" in py_spy.permission_remedy(1000)


@pytest.mark.parametrize(
    ("error_text", "status"),
    [
        ("Error: Failed to find python version from target process\n\nStack backtrace:\n 0: x", "not_python"),
        ("Error: Unsupported version of Python: 3.19.0", "unsupported_python"),
        ("Permission Denied: Try running again with elevated permissions", "no_permission"),
        ("Error: Failed to copy PyThreadState head pointer", "unreadable"),
    ],
)
def test_py_spy_error_texts_map_to_a_status(error_text, status):
    assert py_spy.classify_error(error_text, 1).status == status


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"active": true}]', b"\xff[", b'[{"frames": 3}]'])
def test_output_in_an_unexpected_format_is_rejected(data):
    with pytest.raises(ValueError):
        py_spy.parse(data)


_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_ANY = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
_FRAME = st.fixed_dictionaries({"name": _LEAF, "filename": _LEAF, "line": _LEAF})
_THREAD = st.fixed_dictionaries({
    "thread_id": _LEAF, "os_thread_id": _LEAF, "thread_name": _LEAF, "active": _LEAF, "owns_gil": _LEAF,
    "frames": st.lists(_FRAME | _ANY, max_size=4) | _ANY,
})  # fmt: skip


@pytest.mark.slow
@given(st.lists(_THREAD | _ANY, max_size=3) | _ANY)
@settings(max_examples=examples(300), deadline=None)
def test_any_py_spy_output_is_parsed_into_threads_or_rejected(output):
    """Parsed threads also make valid records."""
    try:
        threads = py_spy.parse(json.dumps(output).encode())
    except ValueError:
        return
    maker = capture.Capture.__new__(capture.Capture)
    maker._paths, maker._sources = {}, SourceLines(ProcFs(), PARSERS)
    maker.request = capture.CaptureRequest({"id": "c", "at": 0, "deadline": 1})
    me = capture.Target(RankRef({
        "job": "j", "attempt": 0, "rank": 0, "local_rank": 0, "pid": os.getpid(), "start_ticks": 1, "gpu": None,
        "ns_pid": None,
    }), "rank")  # fmt: skip
    for thread in threads:
        place = {"capture": "c", "sample": 0, "job": "j", "rank": 0, "pid": 1, "start_ticks": 1, "status": "ok"}
        check("stack", dict(place, **maker._thread_fields(me, thread)))


def test_unterminated_nesting_is_rejected():
    with pytest.raises(ValueError):
        py_spy.parse(b"[" * 100_000)
