"""Watched attributes of real processes, on every Python of this machine: read from memory, or unknown."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_stacks_python_versions import interpreters
from test_watched_variables import Agent, sampler

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.locals import step_of
from gconsole_remote.stacks import objects

JOB = """
import sys, time
class State(object):
    def __init__(self): self.global_step = 0
class Slots(object):
    __slots__ = ("step", "unset")
class Options(dict): pass
class Base(object):
    limit = 5
    @property
    def computed(self): return 1
    def method(self): return 2
class Tensor(object):
    pass
class Parameter(Tensor): pass
class Loss(Parameter): pass
class MyTrainer(Base):
    def __init__(self):
        self.state, self.step, self.loss, self.name = State(), 1700, 0.25, "llama"
        self.large, self.negative, self.zero, self.yes, self.none = 2 ** 61 + 3, -7, 0, True, None
        self.options = {"step": 12}
        self.more = Options(); self.more.step = 13
        self.slots = Slots(); self.slots.step = 14
        self.tensor = Loss()
        self.huge, self.text, self.words = 10 ** 40, "\\u00e9" * 9, "x" * 4000
    def train(self):
        self.state.global_step = 1000007
        shadow = self.options
        sys.stdout.write("ready\\n"); sys.stdout.flush()
        time.sleep(600)
MyTrainer().train()
"""
VALUES = {
    "self.step": 1700, "self.state.global_step": 1000007, "self.loss": 0.25, "self.name": "llama",
    "self.large": 2**61 + 3, "self.negative": -7, "self.zero": 0, "self.yes": "True", "self.none": "None",
    "self.options.step": 12, "self.more.step": 13, "shadow.step": 12, "self.slots.step": 14, "self.limit": 5,
    "self.tensor": "tensor", "self.state": "<State>",
    "MyTrainer.state.global_step": 1000007, "Base.step": 1700,
}  # fmt: skip
#: Computed, absent, of a length or a kind that is not read.
UNKNOWN = (
    "self.computed", "self.method", "self.absent", "self.slots.unset", "self.step.real", "self.huge", "self.text",
    "self.words", "absent.step", "Absent.step", "self.options.absent", "self.none.step",
)  # fmt: skip
#: A step that is always 7 above a multiple of 1000, among integers that come and go, and an object that does.
CHANGES = """
import sys, time
class State(object): pass
class Loop(object):
    def __init__(self): self.step, self.state = 7, State()
    def run(self):
        sys.stdout.write("ready\\n"); sys.stdout.flush()
        while True:
            self.step += 1000
            self.state = State()
            self.state.step = self.step
            other = list(range(self.step, self.step + 5))
            setattr(self, "x%d" % (self.step // 1000 % 40), other)
            if self.step // 1000 % 50 == 0: time.sleep(0.0005)
Loop().run()
"""


def started(source, interpreter=sys.executable):
    process = subprocess.Popen([interpreter, "-c", source], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process):
    process.kill()
    process.wait()
    process.stdout.close()


def version(interpreter):
    command = [interpreter, "-c", "import sys; print(sys.version_info[0], sys.version_info[1])"]
    return tuple(int(part) for part in subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split())


def read(process, names):
    """The values of these names, at most 16 at once as configured."""
    values = {}
    for at in range(0, len(names), 16):
        agent = Agent()
        made, context = sampler(names[at : at + 16], agent, pids=[process.pid])
        made.tick(0.0)
        assert agent.logged == []
        for _, found in context.shared["watched"].values():
            values.update(found)
    return values


@pytest.mark.parametrize("interpreter", interpreters())
def test_attributes_of_a_running_process_are_read_on_every_python(interpreter):
    job = started(JOB, interpreter)
    try:
        assert read(job, [*VALUES, *UNKNOWN]) == VALUES
        assert ProcFs().stat(job.pid).state == "S"
    finally:
        ended(job)


@pytest.mark.parametrize("interpreter", interpreters())
def test_attribute_that_changes_all_the_time_is_right_or_unknown(interpreter):
    job = started(CHANGES, interpreter)
    steps, last = [], 0
    try:
        deadline = time.monotonic() + 60
        while len(steps) < 20 and time.monotonic() < deadline:
            values = read(job, ["self.step", "self.state.step"])
            steps += [value for value in values.values() if value is not None]
            assert all(isinstance(value, int) and value % 1000 == 7 for value in values.values()), values
            step = step_of(values)
            assert step is None or step >= last
            last = step or last
    finally:
        ended(job)
    assert len(steps) >= 20


@pytest.mark.parametrize("interpreter", interpreters())
def test_arguments_that_a_nested_function_uses_are_read(interpreter):
    source = JOB.replace("def train(self):", "def train(self, counter=31):")
    source = source.replace("shadow = self.options", "more = lambda: (self, counter)")
    job = started(source, interpreter)
    is_known = version(interpreter) >= (3, 11)  # before, py-spy does not see them
    try:
        expected = {"self.step": 1700, "MyTrainer.step": 1700, "counter": 31} if is_known else {}
        assert read(job, ["self.step", "MyTrainer.step", "counter"]) == expected
    finally:
        ended(job)


def test_object_that_is_gone_has_no_attributes():
    """Every address of a heap that is reused, also addresses inside of objects, is no value or a true one."""
    job = started(JOB)
    try:
        maps = ProcFs().read(job.pid, "maps").decode()
        heap = next(line for line in maps.splitlines() if line.endswith("[heap]")).split()[0]
        start, end = (int(part, 16) for part in heap.split("-"))
        with objects.ObjectMemory(ProcFs(), job.pid) as memory:
            values = [memory.value(address, ["step"]) for address in range(start, min(end, start + (1 << 18)), 8)]
            assert memory.value(0, ["step"]) is memory.value(1 << 62, ["step"]) is memory.value(end, ["step"]) is None
        assert {value for value in values if value is not None} <= {"1700", "12", "13", "14"}
    finally:
        ended(job)


def test_python_of_unknown_version_is_reported_once_and_other_variables_are_read(monkeypatch):
    monkeypatch.setattr(objects, "NEWEST", (3, 6))
    monkeypatch.setattr(objects, "OLDEST", (3, 6))
    job = started("step = 1\n" + JOB.replace("shadow = self.options", "step = 8"))
    agent = Agent()
    try:
        made, context = sampler(["step", "self.step"], agent, pids=[job.pid])
        made.tick(0.0)
        assert [values for _, values in context.shared["watched"].values()] == [{"step": 8}]
        [(severity, text)] = agent.logged
        assert severity == "warning"
        assert "attributes are not read in Python 3." in text
    finally:
        ended(job)


def test_memory_of_a_process_that_is_gone_is_unreadable():
    job = started(JOB)
    ended(job)
    with pytest.raises(objects.Unreadable):
        objects.ObjectMemory(ProcFs(), job.pid)


def test_library_frames_count_after_those_of_the_job(tmp_path: Path):
    library = tmp_path / "site-packages" / "lib"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "import sys, time\n"
        "class Optimizer(object):\n"
        "    def step(self): self.inner()\n"
        "    def inner(self):\n"
        "        self.steps = 1; sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(600)\n"
    )
    (tmp_path / "job.py").write_text(
        f"import sys; sys.path.insert(0, {str(library.parent)!r})\n"
        "import lib\n"
        "class Loop(object):\n"
        "    def run(self):\n"
        "        self.steps = 41; lib.Optimizer().step()\n"
        "Loop().run()\n"
    )
    job = started(f"import runpy; runpy.run_path({str(tmp_path / 'job.py')!r})")
    try:
        assert read(job, ["self.steps", "Optimizer.steps"]) == {"self.steps": 41, "Optimizer.steps": 1}
    finally:
        ended(job)
