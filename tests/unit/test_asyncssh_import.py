"""asyncssh is loaded without starting programs that search for a library."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

from gconsole.transport.asyncssh_import import may_be_loadable

LOAD = """
import pathlib
import sys
pathlib.Path.read_bytes = lambda path: b"no library"
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {events} else None)
import gconsole.transport.{module}
print(*started)
"""


@pytest.mark.parametrize("module", ["ssh", "ssh_keys", "jump_host", "liveness", "host_keys"])
def test_no_program_searches_for_libraries_that_the_loader_lacks(module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    text = LOAD.format(events={"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"}, module=module)
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_search_is_the_usual_one_afterwards():
    assert ctypes.util.find_library.__module__ == "ctypes.util"


def test_library_is_searched_where_the_loader_may_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    cache = tmp_path / "cache"
    assert may_be_loadable("oqs", cache), "unknown without a cache"
    cache.write_bytes(b"\0libc.so.6\0")
    assert not may_be_loadable("oqs", cache)
    cache.write_bytes(b"\0liboqs.so.5\0")
    assert may_be_loadable("oqs", cache) and not may_be_loadable("qs", cache)
    cache.write_bytes(b"\0libc.so.6\0")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert may_be_loadable("oqs", cache)
