"""Fallback to a job's own pystack for Python versions that py-spy does not support."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_ranks import Blobs, Ranks, capture, main_thread

from gconsole_remote.proc import programs
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import py_spy, pystack, readers
from gconsole_remote.stacks.readers import PARSERS

LOOP = """
import sys, threading, time
def feed():
    time.sleep(600)
def train():
    step, loss, secret = 1700, 0.25, "nobody asked for this"
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    time.sleep(600)
threading.Thread(target=feed, daemon=True).start()
train()
"""
NEWER = "Error: Unsupported version of Python: 3.99.0\n"


def newest_python():
    """The newest interpreter of this machine for which pystack has wheels."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in ("3.14", "3.13", "3.12"):
        found = [*sorted(versions.glob(f"{minor}.*/bin/python")), shutil.which(f"python{minor}")]
        if found[0]:
            return str(found[0])
    return sys.executable


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with the real pystack, from PyPI."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([newest_python(), "-m", "venv", folder], check=True, capture_output=True, timeout=120)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pystack>=1.7,<2"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=170)
    if done.returncode != 0:
        pytest.skip(f"pystack cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    folder.chmod(0o755)
    return folder


@pytest.fixture
def ranks():
    ranks = Ranks()
    yield ranks
    ranks.end()


@pytest.fixture
def old_py_spy(tmp_path):
    """A fake py-spy that rejects every Python version with py-spy's error message."""
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\nprintf '{NEWER.strip()}\\n' >&2\nexit 1\n")
    path.chmod(0o755)
    return Blobs(str(path))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_python_unsupported_by_py_spy_is_read_by_its_own_pystack(ranks, environment, old_py_spy):
    ranks.start([str(environment / "bin/python"), "-c", LOOP])
    ranks.until_state(0, "S")
    answer, records = capture(ranks.seen(), samples=2, blobs=old_py_spy, locals=["step"])
    main = main_thread(records)
    assert (main.status, main.engine, main.mode) == ("ok", "pystack", "nonblocking")
    assert [frame.function for frame in main.frames] == ["<module>", "train"]
    assert [(local.name, local.value) for local in main.locals] == [("step", "1700")]
    assert (main.os_thread_id, main.active, main.proc_state) == (main.pid, False, "S")
    assert any(frame.function == "feed" for record in records if record.frames for frame in record.frames), (
        "all threads"
    )
    assert (answer["statuses"], answer["stopped_since"]) == ({"ok": 2}, 0)
    assert ranks.state(0) == "S"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pystack_reads_the_stack_when_py_spy_is_not_on_the_node(ranks, environment):
    ranks.start([str(environment / "bin/python"), "-c", LOOP])
    _, records = capture(ranks.seen(), blobs=Blobs(path=None, problem="too big for the disk"))
    assert main_thread(records).engine == "pystack"


def test_without_pystack_the_reason_and_an_install_hint_are_reported(ranks, old_py_spy, monkeypatch):
    monkeypatch.setattr(pystack, "trusted_path", lambda path: None)
    ranks.python(LOOP)
    _, [record] = capture(ranks.seen(), blobs=old_py_spy)
    assert (record.status, record.reason) == ("unsupported_python", "Unsupported version of Python: 3.99.0")
    assert record.try_.startswith("install pystack in the environment of the job")
    assert f"{Path(sys.executable).parent}/python -m pip install pystack" in record.try_


@pytest.mark.parametrize(
    ("name", "error_text", "status"),
    [("python3.13t", "Failed to find a python interpreter in the .data section", "unsupported_python"),
     ("python3.15", "Failed to find python version from target process", "unsupported_python"),
     ("python3.11", "Failed to find python version from target process", "not_python"),
     ("bash", "Failed to find python version from target process", "not_python")],
)  # fmt: skip
def test_py_spy_error_is_refined_by_the_python_version_of_the_process(proc, name, error_text, status):
    proc.process(41, "/opt/bin/x train.py", exe=f"/opt/nowhere/bin/{name}")
    made = readers.StackReader("/nonexistent", None, ProcFs(str(proc.root)), PARSERS)
    known = made._refine(41, py_spy.classify_error(f"Error: {error_text}", 1))
    assert known.status == status
    assert ("pip install pystack" in known.try_) == (status == "unsupported_python")


def test_python_version_is_read_from_libpython_when_the_executable_name_lacks_it(proc):
    proc.process(41, "/opt/app/train", exe="/opt/app/train")
    (proc.root / "41/maps").write_text("7f0 r-xp 0 00:00 1 /opt/lib/libpython3.14t.so.1.0\n")
    version = programs.version_of(ProcFs(str(proc.root)), 41)
    assert (version.number, version.free_threaded, str(version)) == ((3, 14), True, "Python 3.14t")


class TestPystackPermissions:
    """The agent may be root: it runs only a pystack that no other user could have modified."""

    def program(self, tmp_path, mode=0o755):
        path = tmp_path / "pystack"
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
        tmp_path.chmod(0o755)
        return path

    def test_own_program_is_trusted(self, tmp_path):
        assert pystack.trusted_path(str(self.program(tmp_path)))

    def test_world_writable_program_is_not_trusted(self, tmp_path):
        assert not pystack.trusted_path(str(self.program(tmp_path, 0o777)))

    def test_program_in_a_world_writable_folder_is_not_trusted(self, tmp_path):
        path = self.program(tmp_path)
        tmp_path.chmod(0o777)
        assert not pystack.trusted_path(str(path))

    def test_missing_program_is_not_trusted(self, tmp_path):
        assert not pystack.trusted_path(str(tmp_path / "pystack"))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
    def test_program_owned_by_a_user_is_not_trusted_by_root(self, tmp_path):
        path = self.program(tmp_path)
        os.chown(path, 1234, -1)
        assert not pystack.trusted_path(str(path))


def test_thread_text_with_colons_quotes_and_the_gil_is_parsed():
    text = (
        "Traceback for thread 7 (python) [Has the GIL] (most recent call last):\n"
        '    (Python) File "/a "b".py", line 3, in <module>\n'
        "        x: int = call(y)\n"
        '    (Python) File "/a.py", line 9, in Model.step\n'
        "        Arguments: none\n"
        "      Arguments:\n"
        "        self: <Model at 0x7f>\n"
        "      Locals:\n"
        "        step: 'a: b'\n"
        "\n"
        "The frame stack for thread 9 is empty\n"
    )
    [thread] = pystack.parse(text, 7, frozenset(["step", "x"]))
    assert thread.frames == (("<module>", '/a "b".py', 3, False), ("Model.step", "/a.py", 9, False))
    assert (thread.name, thread.gil, thread.locals) == ("MainThread", True, [(1, "step", "'a: b'")])
    with pytest.raises(ValueError, match="no thread"):
        pystack.parse("The frame stack for thread 9 is empty\n", 9)


_LINES = st.sampled_from([
    "Traceback for thread 7 (python) [Has the GIL,Dropping the GIL] (most recent call last):",
    "Traceback for thread 99999999999999999999 [] (most recent call last):", "",
    '    (Python) File "/a.py", line 3, in f', '    (Python) File "", line 99999999999999999999, in ',
    "      Locals:", "        x: 1", "        : ", '    (C) File "???", line 0, in g (libc.so)',
])  # fmt: skip


@given(st.lists(st.one_of(_LINES, st.text(max_size=40)), max_size=30).map("\n".join))
def test_any_pystack_text_gives_bounded_threads_or_is_rejected(text):
    try:
        threads = pystack.parse(text, 7, frozenset("x"))
    except ValueError:
        return
    for thread in threads:
        assert thread.frames
        assert thread.os_thread_id is None or thread.os_thread_id < 2**63
        assert all(0 <= line < 2**63 and len(file) <= 512 for _, file, line, _ in thread.frames)
