"""Reading `environ` from the memory of another process: C programs with every linkage, and invalid memory."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gconsole_remote.proc.environ import EnvironReader
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.symbols import BadImage, find_symbol

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler on this machine")

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
extern char **environ;
int main(void) {
    char name[32];
    for (int i = 0; i < 2000; i++) { sprintf(name, "FILLER_%d", i); setenv(name, "x", 1); }
    setenv("RANK", "7", 1);
    putenv("WORLD_SIZE=8");
    unsetenv("GONE");
    return environ && puts("ready") && !fflush(stdout) && getchar() == 0;
}
"""


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize(
    ("how", "sees"),
    [
        ("", True),
        ("-no-pie", True),  # the program contains `environ` itself (copy relocation)
        ("-Wl,--hash-style=sysv", True),
        ("-Wl,--hash-style=sysv -no-pie", True),
        ("-static", False),  # no dynamic symbols, so the environment at exec is used
    ],
)
def test_live_environment_is_read_unless_the_program_is_statically_linked(tmp_path, how, sees):
    (tmp_path / "program.c").write_text(PROGRAM)
    command = ["gcc", *how.split(), "-o", tmp_path / "program", tmp_path / "program.c"]
    built = subprocess.run(command, capture_output=True)
    if built.returncode and how == "-static":
        pytest.skip("no static libc on this machine")
    assert built.returncode == 0, built.stderr
    env = {**os.environ, "GONE": "1", "HOME": "/h"}
    with subprocess.Popen([tmp_path / "program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout.readline() == b"ready\n"
        reader = EnvironReader(ProcFs(), ["RANK", "WORLD_SIZE", "GONE", "HOME"])
        live = reader.locate(process.pid)

        now = reader.live(process.pid, live, ProcFs().stat(process.pid).env_start)

        process.stdin.close()
    assert now == ({"RANK": "7", "WORLD_SIZE": "8", "HOME": "/h"} if sees else None)


def test_a_process_reads_its_own_environment_as_libc_sees_it(monkeypatch):
    reader = EnvironReader(ProcFs(), ["GCONSOLE_TEST_LATE", "GCONSOLE_TEST_LONG"])
    live = reader.locate(os.getpid())
    env_start = ProcFs().stat(os.getpid()).env_start
    assert reader.live(os.getpid(), live, env_start) == {}

    monkeypatch.setenv("GCONSOLE_TEST_LATE", "3")
    monkeypatch.setenv("GCONSOLE_TEST_LONG", "x" * 100_000)
    values = reader.live(os.getpid(), live, env_start)

    assert values["GCONSOLE_TEST_LATE"] == "3"
    assert values["GCONSOLE_TEST_LONG"] == "x" * 4096
    monkeypatch.setenv("GCONSOLE_TEST_LATE", "4")
    assert reader.live(os.getpid(), live, env_start)["GCONSOLE_TEST_LATE"] == "4"


def test_a_process_that_is_gone_has_no_live_environment():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    reader = EnvironReader(ProcFs(), ["RANK"])

    live = reader.locate(process.pid)

    assert reader.live(process.pid, live, 0) is None


@pytest.mark.parametrize("head", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01", b"\x7fELF\x02\x02"])
def test_image_that_is_not_little_endian_elf64_is_rejected(head):
    memory = head.ljust(4096, b"\0")

    with pytest.raises(BadImage):
        find_symbol(lambda address, size: memory[address : address + size], 0, b"environ")


def test_corrupt_memory_never_makes_the_symbol_search_loop():
    maps = Path(f"/proc/{os.getpid()}/maps").read_text().splitlines()
    base = next(int(line.partition("-")[0], 16) for line in maps if "/libc" in line)
    noise = random.Random(1)
    fd = os.open("/proc/self/mem", os.O_RDONLY)
    reads = 0

    def torn(address, size):
        nonlocal reads
        reads += 1
        data = bytearray(os.pread(fd, size, address))
        for _ in range(noise.randrange(3)):
            data[noise.randrange(len(data))] = noise.randrange(256)
        return bytes(data)

    for _ in range(300):
        try:
            find_symbol(torn, base, b"environ")
        except (BadImage, OSError, OverflowError):
            pass
    os.close(fd)
    assert reads < 300 * 10_000
