"""Watched variables of real processes by the real py-spy: which frame's value is used, and the cost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.locals import WatchedSampler, step_of, value_in, value_of
from gconsole_remote.samplers.process_snapshot import ProcessSnapshot, RankRef
from gconsole_remote.stacks.py_spy import PythonThread

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
SITE = "/opt/venv/lib/python3.11/site-packages/"
LOOP = """
import sys, time
class Model: pass
def train():
    step, loss, name, ready, model, secret = 1700, 0.25, "llama", True, Model(), "nobody asked for this"
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    time.sleep(600)
train()
"""


class Agent:
    """The part of an agent that the sampler uses."""

    def __init__(self, path=PY_SPY, budget=2, lacking=None):
        self.lacking = lacking
        self.config = {"cpu_budget_pct": budget}
        self.blobs = self
        self._path, self.logged = path, []

    def path(self, name):
        return self._path

    def problem(self, name):
        return self.lacking

    def on_end(self, action):
        pass

    def log(self, severity, text, try_=""):
        self.logged.append((severity, text))


def seen(*pids):
    """Snapshot of these ranks as the process sampler publishes it."""
    known = {"job": "j", "attempt": 0, "gpu": None, "ns_pid": None}
    refs = [
        RankRef({**known, "rank": at, "local_rank": at, "pid": pid, "start_ticks": ProcFs().stat(pid).start_ticks})
        for at, pid in enumerate(pids)
    ]
    return ProcessSnapshot(tuple(refs), (), 0, 0, {})


def sampler(names, agent=None, every_s=60.0, pids=()):
    context = Context()
    context.shared["processes"] = seen(*pids)
    agent = agent or Agent()
    agent.config.update(watch_locals=list(names), watch_every_s=every_s)
    made = WatchedSampler(context, agent)
    made.start()
    return made, context


@pytest.fixture
def loop():
    process = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def thread(*frames, tid=1):
    """A thread as parsed from py-spy; frames are (function, file, variables), outermost first."""
    frame_dicts = [
        {"name": name, "filename": file, "line": 1,
         "locals": [{"name": key, "repr": value} for key, value in variables.items()]}
        for name, file, variables in reversed(frames)
    ]  # fmt: skip
    fields = {"thread_id": tid, "os_thread_id": tid, "thread_name": "MainThread", "active": False, "owns_gil": False}
    return PythonThread({**fields, "frames": frame_dicts}, frozenset({"step", "loss"}))


def test_only_requested_variables_of_a_running_process_are_read(loop):
    made, context = sampler(["step", "loss", "name", "ready", "model", "absent"], pids=[loop.pid])
    assert list(made.tick(0.0)) == []
    [(_, values)] = context.shared["watched"].values()
    assert values == {"step": 1700, "loss": 0.25, "name": "llama", "ready": "True", "model": "<Model>"}
    assert context.shared["watch_cpu_pct"] > 0
    assert ProcFs().stat(loop.pid).state == "S"


def test_newer_settings_are_followed_and_end_the_reading(loop):
    agent = Agent()
    made, context = sampler(["step"], agent, pids=[loop.pid])
    made.tick(0.0)
    agent.config.update(watch_locals=["loss"])
    made.tick(1.0)
    assert [values for _, values in context.shared["watched"].values()] == [{"loss": 0.25}]
    agent.config.update(watch_locals=[])
    made.tick(2.0)
    assert context.shared["watched"] == {}
    assert "watch_cpu_pct" not in context.shared


def test_round_that_exceeds_its_cpu_share_delays_the_next_one(loop):
    made, _ = sampler(["step"], Agent(budget=0.1), every_s=1.0, pids=[loop.pid])
    made.tick(0.0)
    spent = sum(cost for _, cost in made._costs)
    assert made._due - made._began >= spent / 0.0005 - 1.0, "half of 0.1 % of a core"


def test_values_of_an_ended_rank_are_removed_without_a_warning(loop):
    agent = Agent()
    made, context = sampler(["step"], agent, every_s=1.0, pids=[loop.pid])
    made.tick(0.0)
    assert context.shared["watched"]
    context.shared["processes"] = seen()
    made.tick(1.0)
    assert context.shared["watched"] == {}
    assert agent.logged == []


def test_unreadable_process_is_reported_once_and_skipped_for_a_while(tmp_path):
    other = subprocess.Popen(["sleep", "600"])
    agent = Agent()
    try:
        made, context = sampler(["step"], agent, every_s=0.1, pids=[other.pid])
        made.tick(0.0)
        made.tick(0.2)
    finally:
        other.kill()
        other.wait()
    assert [severity for severity, _ in agent.logged] == ["warning"]
    assert context.shared["watched"] == {}
    assert len(made._costs) == 1


def test_no_variable_is_read_until_py_spy_is_on_the_node():
    made, context = sampler(["step"], Agent(path=None), pids=[os.getpid()])
    assert list(made.tick(0.0)) == []
    assert context.shared["watched"] == {}


def test_unavailable_py_spy_is_reported_once(loop):
    agent = Agent(path=None, lacking="the console has no py-spy for riscv64")
    made, _ = sampler(["step"], agent, pids=[loop.pid, os.getpid()])
    made.tick(0.0)
    [(severity, text)] = agent.logged
    assert severity == "warning"
    assert text.endswith("cannot be read: the console has no py-spy for riscv64")


def test_innermost_call_of_the_job_code_supplies_the_value():
    read = thread(
        ("main", "/job/train.py", {"step": "0"}),
        ("epoch", "/job/loop.py", {"step": "12"}),
        ("step", SITE + "torch/optim/adam.py", {"step": "<Tensor at 0x7f>"}),
    )
    assert value_in(read, "step") == 12


def test_outermost_call_of_a_library_trainer_supplies_the_value():
    read = thread(
        ("<module>", "/job/train.py", {}),
        ("inner_loop", SITE + "transformers/trainer.py", {"step": "40"}),
        ("step", SITE + "torch/optim/adam.py", {"step": "1"}),
    )
    assert value_in(read, "step") == 40


@pytest.mark.parametrize(
    ("shown", "value"),
    [("7", 7), ("-3", -3), ("0.5", 0.5), ("1e-05", 1e-05), ('"a b"', "a b"), ("None", "None"), ("True", "True"),
     ("nan", "nan"), ("inf", "inf"), (str(2**63), str(2**63)), ("9" * 400, "9" * 40), (str(-(2**63)), -(2**63)),
     ("<Model at 0x7f12ab>", "<Model>"), ("x" * 90, "x" * 40)],
)  # fmt: skip
def test_numbers_are_parsed_and_text_is_truncated(shown, value):
    assert value_of(shown) == value


@given(st.text())
def test_any_variable_value_is_bounded_and_printable(text):
    value = value_of(text)
    assert value is None or isinstance(value, int | float) or (len(value) <= 40 and value.isprintable())


@pytest.mark.parametrize("kind", ["Tensor", "Parameter", "DTensor", "EagerTensor", "ArrayImpl", "numpy.ndarray"])
def test_array_is_shown_as_a_tensor_and_never_as_a_number(kind):
    assert value_of(f"<{kind} at 0x7f12ab>") == "tensor"


def test_step_of_an_attribute_is_found_by_its_last_part():
    assert step_of({"self.loss": 1.0, "Trainer.state.global_step": 9}) == 9
    assert step_of({"self.step": "tensor", "trainer.iteration": 3}) == 3
    assert step_of({"self.stepper": 9}) is None


def test_step_is_found_by_common_loop_variable_names():
    assert step_of({"loss": 1.0, "global_step": 9}) == 9
    assert step_of({"step": "<Tensor>", "iteration": 3}) == 3
    assert step_of({"loss": 1.0}) is None
