"""The agent is read-only: the programs it starts are on one list, and it writes only to its cache."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import start_ring
from program import batch
from rig import Rig, pythons

import gconsole_remote
from gconsole_remote.agent import commands
from gconsole_remote.history import slurm

SOURCES = Path(gconsole_remote.__file__).parent
#: Names by which Python starts programs, creates processes or executes text.
STARTS = frozenset(
    [
        "Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "system", "popen",
        "startfile", "posix_spawn", "posix_spawnp", "fork", "forkpty", "exec", "eval", "compile", "__import__",
    ]
)  # fmt: skip
UNPACKS = frozenset(["load", "loads", "dumps"])
MODULES = frozenset(["subprocess", "os", "pty", "posix", "multiprocessing", "runpy", "pickle", "marshal", "shelve"])
#: Every call of that kind in the agent, and why it is safe.
PLACES = {
    ("agent/commands.py", "subprocess.Popen"): "the list of commands",
    ("gateway/stream.py", "subprocess.Popen"): "the user's own ssh, or gateway_command, to a node",
    ("jobs/supervisor.py", "subprocess.Popen"): "a job's own commands, from `gconsole run start`",
    ("agent/gpu_fork.py", "os.fork"): "a child that calls NVML, which may hang or crash",
    ("agent/bootstrap.py", "os.fork"): "a child that compiles the agent's own modules",
    ("proc/limited.py", "os.fork"): "a child that parses large input of a user, with limits of memory and CPU time",
    ("jobs/waiting_supervisor.py", "os.fork"): "a child that runs a job's own commands, from `gconsole run start`",
    ("agent/linger.py", "os.fork"): "the agent detaches from its channel",
    ("stacks/eval_program.py", "compile"): "an expression of `gconsole eval`, in the process of a rank",
    ("stacks/eval_program.py", "eval"): "the same, where [agent] allow_eval is on; the agent itself never calls it",
    ("agent/bootstrap.py", "compile"): "the agent's own modules, out of the bundle whose SHA-256 was checked",
    ("agent/bootstrap.py", "exec"): "the same",
    ("agent/bootstrap.py", "marshal.dumps"): "the same, compiled, into a private cache (0700)",
    ("agent/bootstrap.py", "marshal.loads"): "the same, read from the cache",
}
#: What a command's arguments may contain besides fixed words; node names and job numbers are checked first.
PLACEHOLDERS = frozenset(
    ["{blob}", "{pid}", "{python}", "{program}", "{fields}", "{since}", "{matches}", "{node}", "{job}", "{query}"]
)
VERB = re.compile(r"\b(?:commands\.(?:run|run_apart|detach)|starter\.start)\(\s*\"(\w+)\"")


def calls(path: Path) -> Iterator[str]:
    """Dotted names of calls in a module that could start something."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in STARTS - {"run", "call"}:
            yield function.id
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            owner, name = function.value.id, function.attr
            if owner in MODULES and (name in STARTS | UNPACKS or name.startswith(("exec", "spawn"))):
                yield f"{owner}.{name}"


def test_agent_starts_programs_and_executes_code_only_in_listed_places():
    found_calls = {
        (str(path.relative_to(SOURCES)), name) for path in sorted(SOURCES.rglob("*.py")) for name in calls(path)
    }
    assert found_calls == set(PLACES)


def test_agent_never_uses_a_shell():
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.keyword) and node.arg == "shell"), path


def test_agent_command_list_contains_exactly_the_commands_in_use():
    verbs = {name for path in SOURCES.rglob("*.py") for name in VERB.findall(path.read_text())}
    by_variable = {
        "py_spy_dump", "py_spy_locals", "py_spy_native", "py_spy_record", "py_spy_record_slowly",
        "pystack_dump", "pystack_locals", "gdb_call", "gdb_check",
    }  # fmt: skip
    readers = (
        "stacks/py_spy.py", "stacks/pystack.py", "stacks/capture.py", "stacks/profile.py", "stacks/evaluate.py",
    )  # fmt: skip
    text = "".join((SOURCES / name).read_text() for name in readers)
    assert all(f'"{name}"' in text for name in by_variable)
    tables = (
        "clocks/services.py",
        "history/journal.py",
        "history/slurm.py",
        "samplers/history.py",
        "accelerators/tools.py",
    )
    by_table = "".join((SOURCES / name).read_text() for name in tables)
    listed = {name for name in commands.COMMANDS if f'"{name}"' in by_table}
    assert verbs | by_variable | listed == set(commands.COMMANDS)


def test_agent_commands_take_only_fixed_words_and_checked_placeholders():
    for argv in commands.COMMANDS.values():
        assert all(isinstance(argument, str) for argument in argv)
        assert {argument for argument in argv if "{" in argument} <= PLACEHOLDERS
        assert argv[0] not in ("sh", "bash", "env", "/bin/sh")


@pytest.mark.parametrize("name", ["-o", "--help", "a b", "a;id", "a\n", "", "$(id)", "²"])
def test_names_of_nodes_and_jobs_are_no_options_of_slurm_commands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LineStream", lambda *_: pytest.fail("the command was run"))
    with pytest.raises(ValueError):
        slurm.node_state(name)
    with pytest.raises(ValueError):
        slurm.job_state(name)


#: System calls that change files, start programs or trace processes.
TRACED = (
    "openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,"
    "chmod,fchmodat,chown,truncate,mknod,mknodat,execve,socket,listen,kill,mount"
)
_WRITES = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)", [^)]*O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)')
_CHANGES = re.compile(r"(?:creat|mkdir|rename|unlink|rmdir|link|symlink|chmod|chown|truncate|mknod)\w*\((.*)\) = 0")
_EXECUTED = re.compile(r'execve\("([^"]*)", \[(.*?)\].*\) = 0')


@pytest.fixture(scope="module")
def traced(needs_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All such calls of an agent that watched a job, captured its stacks and probed clocks."""
    if shutil.which("strace") is None:
        pytest.skip("no strace on this machine")
    with Rig(nodes=2, name="gcy-trace", is_first_start=True) as rig, start_ring(rig, nproc_per_node=1) as job:
        job.wait_ready()
        node = rig.nodes[0]
        python = node.folder / "bin" / "python3"
        python.unlink()
        traced = f"strace -f -qq -e trace={TRACED} -o {node.inside}/trace {pythons.own_python()}"
        python.write_text(f'#!/bin/sh\nexec {traced} "$@"\n')
        python.chmod(0o755)
        hosts = rig.write_hosts_toml(tmp_path_factory.mktemp("trace") / "hosts.toml")
        run = batch(hosts, "--for", "15s", "--clocks", "--capture", "--samples", "1")
        assert run.node("node1")["state"] == "ok", run.stderr
        return (node.folder / "trace").read_text(errors="replace").splitlines()


@pytest.mark.full
def test_agent_writes_only_to_its_cache_folder(traced: list[str]):
    mine = re.compile(r"(/var/tmp|/tmp)/gconsole-\d+(/|$)|/dev/null$|/proc/(self|\d+)/")
    written = {match[1] for line in traced if "ENOENT" not in line and (match := _WRITES.search(line))}
    changes = [match[1] for line in traced if (match := _CHANGES.search(line))]
    changed = {path for change in changes for path in re.findall(r'"([^"]*)"', change)}
    assert written and changed, "nothing was traced"
    assert {path for path in written | changed if not mine.match(path)} == set()


@pytest.mark.full
def test_agent_executes_only_listed_commands(traced: list[str]):
    first = {argv[0] for argv in commands.COMMANDS.values() if not argv[0].startswith("{")}
    started = [match[1] for line in traced if (match := _EXECUTED.search(line))]
    checked = re.compile(r"/blob/[0-9a-f]{64}$|^/proc/(?:\d+|self)/fd/\d+$")  # binaries whose SHA-256 was just verified
    unlisted = [path for path in started[1:] if Path(path).name not in first and not checked.search(path)]
    assert started and unlisted == []


@pytest.mark.full
def test_agent_opens_no_tcp_listener(traced: list[str]):
    assert not [line for line in traced if re.search(r"\blisten\(", line)]
    assert [line for line in traced if "SOCK_DGRAM" in line], "the clocks were probed"
