"""asyncssh is loaded without starting programs that search for a library."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

from gconsole.transport.asyncssh_import import find_library

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


def test_newest_loadable_library_of_the_loaders_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    cache = tmp_path / "cache"
    cache.write_bytes(b"ld.so-1.7.0\0/lib/libc.so.6\0/lib/libm.so.6\0libm.so.99\0")
    assert find_library("c", cache) == "libc.so.6"
    assert find_library("m", cache) == "libm.so.6", "the newer one is not there"
    assert find_library("oqs", cache) is None
    assert find_library("lib", cache) is None


def test_library_is_searched_as_usual_where_the_cache_does_not_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert find_library("c", tmp_path / "none") == ctypes.util.find_library("c"), "another loader"
    (tmp_path / "cache").write_bytes(b"\0")
    assert find_library("c", tmp_path / "cache") is None
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert find_library("c", tmp_path / "cache") == ctypes.util.find_library("c")


def test_this_machines_libraries_are_those_of_the_usual_search(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    for name in ("c", "m", "ssl", "nettle", "oqs", "stdc++"):
        assert find_library(name) == ctypes.util.find_library(name)
