"""An agent that is root reads and parses nothing that another user wrote: children without rights do, one per user."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gconsole_remote.comms import nccl_version, sockets
from gconsole_remote.proc import apart, limited, programs, torchrun_logs
from gconsole_remote.proc.output_files import OutputFile
from gconsole_remote.proc.process_reader import ProcessReader, Request
from gconsole_remote.proc.process_table import ProcessTable
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.processes import ProcessSampler
from gconsole_remote.samplers.settings import SettingSampler
from gconsole_remote.stacks import py_spy, source_lines
from gconsole_remote.stacks.readers import PARSERS
from gconsole_remote.stacks.source_lines import SourceLines

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as which the agent runs")
ATTACKER, VICTIM = 65_533, 65_534
#: What a user chooses the content of.
CHOSEN = re.compile(r"^/proc/(\d+)/(?:task/\d+/)?(?:environ|cmdline|maps|mem|net/unix|smaps|auxv)$")
SLEEPS = "import os, time; os.environ['LATE'] = '1'; print(flush=True); time.sleep(600)"


@contextmanager
def rank_of(uid: int, number: int = 0, **env: str) -> Iterator[int]:
    """A rank of a user."""
    variables = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": f"10.9.8.{uid % 256}", "MASTER_PORT": "29500",
                 "NCCL_ALGO": "Ring", **env}  # fmt: skip
    argv = ["/usr/bin/python3", "-c", SLEEPS]
    with subprocess.Popen(argv, env=variables, user=uid, group=uid, cwd="/", stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def read_by_agent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of what this very process reads from now on; its children have a list of their own."""
    paths: list[str] = []
    for name in ("read", "pread"):
        original = getattr(os, name)

        def noted(fd: int, *args: int, original: object = original) -> bytes:
            paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            return original(fd, *args)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(os, name, noted)
    return paths


def chosen(paths: list[str], pid: int) -> list[str]:
    return [path for path in paths if (match := CHOSEN.match(path)) and int(match[1]) == pid]


def context(**shared: object) -> SimpleNamespace:
    return SimpleNamespace(
        proc="/proc", sys="/sys", process_filter=None, boot_id="boot", shared=dict(shared), interval_s=1.0
    )


def test_rank_of_another_user_is_discovered_without_reading_what_that_user_wrote(read_by_agent: list[str]) -> None:
    with rank_of(VICTIM) as pid, rank_of(0, 1) as own:
        sampler = ProcessSampler(context())  # type: ignore[arg-type]
        sampler.start()
        facts = [fields for now in range(12) for kind, fields in sampler.tick(float(now)) if kind == "rank"]
        settings = SettingSampler(context(processes=sampler.context.shared["processes"]))  # type: ignore[arg-type]
        variables = {
            fields["pid"]: fields.get("environment") for kind, fields in settings.tick(0.0) if kind == "rank_setting"
        }
    assert {fields["pid"]: fields["source"] for fields in facts if fields["pid"] in (pid, own)} == {
        pid: "environ", own: "environ",
    }  # fmt: skip
    assert variables[pid] == variables[own] == {"NCCL_ALGO": "Ring"}
    assert chosen(read_by_agent, pid) == []
    assert chosen(read_by_agent, own), "nothing was noted"


def test_readers_of_a_capture_do_not_read_what_another_user_wrote(read_by_agent: list[str]) -> None:
    procfs = ProcFs()
    with rank_of(VICTIM) as pid:
        request = Request(pid, 1, procfs.stat(pid).env_start)
        reading = ProcessReader(procfs, ["RANK", "LATE"], (b"libc.so",), always=True).get(request)
        version = programs.version_of(procfs, pid)
        programs.folders_of(procfs, pid)
        nccl_version.loaded_version(procfs, pid)
        sockets.find_listeners(procfs, pid, 1)
        torchrun_logs._Living(procfs, {VICTIM})
    assert (reading.env, reading.is_mapped) == ({"RANK": "0"}, True)
    assert reading.live is not None
    assert reading.live.values == {"RANK": "0", "LATE": "1"}
    assert version is not None
    assert chosen(read_by_agent, pid) == []


def test_child_of_one_user_that_dies_hides_no_rank_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ProcessReader._values_of

    def dies(reader: ProcessReader, environ: object, request: Request, inherited: object) -> object:
        if request.pid == hostile:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(reader, environ, request, inherited)  # type: ignore[arg-type]

    monkeypatch.setattr(ProcessReader, "_values_of", dies)
    with ExitStack() as stack:
        hostile, rank = (stack.enter_context(rank_of(uid)) for uid in (ATTACKER, VICTIM))
        procfs = ProcFs()
        table = ProcessTable(procfs, ProcessReader(procfs, ["RANK", "WORLD_SIZE", "MASTER_ADDR"], ()))
        table.scan(0.0)
        assert table.entries[rank].details.claim is not None
        assert table.entries[hostile].facts is None
        assert any(f"process {hostile}:" in text for text in table.failures)
        monkeypatch.undo()
        for now in range(2, 140, 2):
            table.scan(float(now))
        assert table.entries[hostile].details.claim is not None, "it is examined again"


@pytest.mark.parametrize(
    "answer",
    [
        {}, [], "text", None, [1, 2, 3], [[], None, False, [1, 2]], [["\ud800"], {}, False, None],
        [[1], {}, False, None],
        [[], {"PATH": "x"}, False, None], [[], {"RANK": 1}, False, None], [[], {"RANK": "1" * 5000}, False, None],
        [[], {}, False, [-1, None, None]], [[], {}, False, [1 << 80, 1, {}]], [[], {}, False, [True, 1, {}]],
        [[], {}, False, [1.5, 1, {}]], [["a" * (1 << 20)], {}, False, None],
    ],
)  # fmt: skip
def test_answer_of_a_child_that_was_taken_over_is_refused(answer: object) -> None:
    with pytest.raises(ValueError):
        ProcessReader(ProcFs(), ["RANK"], ())._checked(answer, None)


@pytest.mark.parametrize("answer", [1, [0], [0, 1, 2], ["0", 1], [1 << 40, None], [True, None]])
def test_outcome_of_a_child_that_was_taken_over_is_an_error(answer: object) -> None:
    assert isinstance(apart.value_of(answer), ValueError)


def test_children_may_open_nothing_but_what_they_were_given(tmp_path: Path) -> None:
    readable = tmp_path / "readable"
    readable.write_text("x")

    def attempt(procfs: ProcFs, pid: int) -> list[object]:
        able = []
        for name, action in (("open", lambda: os.open(readable, os.O_RDONLY)), ("fork", os.pipe),
                             ("kill", lambda: os.kill(os.getppid(), 0))):  # fmt: skip
            try:
                action()
                able.append(name)
            except OSError:
                pass
        return [able, os.getuid(), str(Path.cwd()), len(procfs.read(pid, "environ"))]

    with rank_of(VICTIM) as pid:
        able, uid, folder, size = apart.read(ProcFs(), pid, ("environ",), attempt)
    assert (able, folder) == ([], "/")
    assert uid >= limited._UNUSED_UIDS
    assert size > 20


def test_reading_of_a_process_that_has_ended_is_that_error() -> None:
    with rank_of(VICTIM) as pid:
        pass
    with pytest.raises(FileNotFoundError):
        ProcessReader(ProcFs(), ["RANK"], ()).get(Request(pid, 1, 0))


# -- stacks, sources and outputs ---------------------------------------------------------------------------------------

THREAD = {"thread_id": 1, "os_thread_id": 2, "thread_name": "MainThread", "active": True, "owns_gil": False}
FRAME = {"name": "step", "filename": "/x/train.py", "line": 3, "module": None,
         "locals": [{"name": "step", "addr": 4096, "arg": False, "repr": "<Step at 0x1000>"}]}  # fmt: skip


def test_output_about_a_process_of_another_user_is_parsed_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps([dict(THREAD, frames=[FRAME])])}\nEND\n")
    tool.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o111)
    parse, parsed = py_spy._parse, []
    monkeypatch.setattr(py_spy, "_parse", lambda data, names: [parsed.append(1), parse(data, names)][1])
    with rank_of(VICTIM) as pid, rank_of(0) as own:
        foreign = py_spy.read_threads(str(tool), pid, 60.0, frozenset(["step", "step.x"]))
        assert parsed == []
        same = py_spy.read_threads(str(tool), own, 60.0, frozenset(["step", "step.x"]))
        assert parsed == [1]
    slots = py_spy.PythonThread.__slots__
    assert [[getattr(thread, slot) for slot in slots] for thread in foreign] == [
        [getattr(thread, slot) for slot in slots] for thread in same
    ]


GOOD = [[True, [["step", "/x", 3, False]], False, [], [], "t", [], 1, None, 1]]


@pytest.mark.parametrize(
    "place, value",
    [
        ((), None), ((), {}), ((), []), ((0,), []), ((0, 1), None), ((0, 1, 0), []), ((0, 1, 0, 2), "3"),
        ((0, 1, 0, 2), -1), ((0, 1, 0, 0), "\udfff"), ((0, 1, 0, 1), "x" * 5000), ((0, 3), [[7, "a", "b"]]),
        ((0, 3), [[0, "a"]]), ((0, 4), [["loop", "1"]]), ((0, 5), 1), ((0, 6), [[0, "a", "b", 1 << 70]]),
        ((0, 7), True), ((0, 9), "1"),
    ],
)  # fmt: skip
def test_threads_of_a_child_that_was_taken_over_are_refused(place: tuple[int, ...], value: object) -> None:
    answer = py_spy.ThreadValues([])
    answer.values = json.loads(json.dumps(GOOD))
    assert answer.threads()[0].frames == (("step", "/x", 3, False),)
    if place:
        target = answer.values
        for index in place[:-1]:
            target = target[index]
        target[place[-1]] = value
    else:
        answer.values = value
    with pytest.raises(ValueError):
        answer.threads()


def test_sources_and_ends_of_outputs_of_another_user_are_parsed_in_children(
    tmp_path: Path, read_by_agent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(source_lines, "poll_loop", lambda *_: parsed.append(1))
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o111)
    source, output = tmp_path / "train.py", tmp_path / "output"
    source.write_text("import torch\n  loss.backward()  \n")
    output.write_text("begin\nTraceback\n")
    with rank_of(VICTIM) as pid:
        lines = SourceLines(ProcFs(), PARSERS)
        frames = [("step", str(source), 2, False)]
        assert [frame["source"] for frame in lines.encode_frames(pid, frames)] == ["loss.backward()"]
    file = OutputFile(os.open(output, os.O_RDONLY), str(output))
    try:
        assert file.tail(16, 12) == "Traceback\n"
    finally:
        os.close(file.fd)
    assert [path for path in read_by_agent if path.startswith(str(tmp_path))] == [str(source)], "bytes for the child"
    assert parsed == []
