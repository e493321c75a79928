"""NVML in a process of its own: it hangs, crashes, is refused and repaired, and the agent goes on."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from nvml import scenarios
from nvml.library import FUNCTIONS, Scenario, folder, load

from gconsole.records.rows import column_order
from gconsole_remote.agent import doctor, gpu_process, release, rows, sampler_run, sampler_thread
from gconsole_remote.agent.digests import Order
from gconsole_remote.agent.gpu_fork import GpuChild
from gconsole_remote.agent.gpu_process import GpuProcess
from gconsole_remote.agent.rows import ColumnOrder
from gconsole_remote.agent.sampler_run import SamplerRun
from gconsole_remote.agent.sampler_thread import SamplerThread
from gconsole_remote.nvml import call
from gconsole_remote.samplers.base import Context, Unavailable

DEADLINE_S = 60.0
#: Those on a GPU that was opened.
EVERY_CALL = [name for name in FUNCTIONS if name.startswith("nvmlDevice") and "Handle" not in name
              and name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetCount_v2")]  # fmt: skip


class FakeAgent:
    """Collects what the samplers post."""

    def __init__(self):
        self.ended, self.epoch, self.outbox = threading.Event(), time.monotonic(), self
        self.posted, self.missing, self.logged = [], {}, []
        self.digests, self.order, self.rows = None, None, 0
        self.place = SimpleNamespace(root=None)

    def post(self, facts):
        for kind, fields in facts:
            if isinstance(fields, str) and fields.startswith("["):
                self.rows += 1
                kind, fields = rows.object_of(kind, fields)
            self.posted.append((kind, json.loads(fields) if isinstance(fields, str) else fields))

    def miss(self, name, text, try_):
        self.missing[name] = text

    def unmiss(self, name):
        self.missing.pop(name, None)

    def log(self, severity, text, try_=""):
        self.logged.append(text)

    def report_crash(self, what):
        self.logged.append(what)

    def last(self, kind):
        """The fields of the newest record of that kind."""
        return next((fields for posted, fields in reversed(self.posted) if posted == kind), {})

    def until(self, condition, what):
        """Wait until `condition()` holds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < DEADLINE_S, f"not within {DEADLINE_S:g} s: {what}; {self.__dict__}"
            time.sleep(0.02)

    def until_inventory(self, **fields):
        """Wait for an inventory of the GPUs with these fields; returns it."""

        def inventories():
            return [one for kind, one in list(self.posted) if kind == "inventory" and one["of"] == "gpu"]

        self.until(lambda: inventories() and fields.items() <= inventories()[-1].items(), f"inventory with {fields}")
        return inventories()[-1]


@pytest.fixture
def started(tmp_path, monkeypatch):
    """`started(lines)`: a running GPU process over that scenario, with short deadlines."""
    load()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder()))  # where the agent looks for it before it starts a process
    for module, name, value in ((gpu_process, "SLOW_S", 0.3), (gpu_process, "STUCK_S", 0.6),
                                (gpu_process, "PROVEN_S", 1.0),
                                (sampler_run, "HUNG_S", 0.5), (sampler_run, "HUNG_INTERVALS", 1),
                                (sampler_thread, "RETRY_S", 0.2), (gpu_process, "RETRY_FAULT_S", 0.4),
                                (gpu_process, "_PERSISTENCED", str(tmp_path / "none"))):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    kept = []

    def start(lines, loads=None, fork_before=None):
        """`loads`: the file without which the binding cannot be loaded. `fork_before`: as the agent's start does."""

        def import_nvml():
            if loads is not None and not loads.exists():
                text = "the NVIDIA driver's library is there, but pynvml, which calls it, cannot be loaded"
                raise Unavailable(text, "", "gpu_no_binding")
            return pynvml

        scenario = Scenario(tmp_path / "scenario", lines)
        monkeypatch.setenv("NVML_SCENARIO", str(scenario.path))
        context = Context(interval_s=0.2)
        context.sys, context.kmsg, context.proc = str(tmp_path / "sys"), str(tmp_path / "kmsg"), str(tmp_path / "proc")
        context.import_nvml = import_nvml
        agent = FakeAgent()
        sampler = GpuProcess(context, agent, fork_before(context) if fork_before else None)
        run = SamplerRun(sampler, agent)
        thread = SamplerThread(run)
        thread.start()
        kept.append((agent, thread, sampler))
        return SimpleNamespace(agent=agent, scenario=scenario, sampler=sampler, context=context, run=run)

    yield start
    for agent, thread, sampler in kept:
        agent.ended.set()
        thread.join(DEADLINE_S)
        sampler.stop()


def test_records_cost_and_links_arrive_from_the_child(started):
    watched = started(scenarios.hgx_h100())

    assert watched.agent.until_inventory(count=8)["missing"] == []
    watched.agent.until(lambda: watched.context.shared.get("gpu_edges") == 8 * 4 + 28 + 8, "edges")
    watched.agent.until(lambda: "gpu_process" in watched.context.shared, "cost")
    assert watched.agent.last("gpu")["util_pct"] == 97
    assert watched.agent.missing == {}


def test_child_that_was_forked_before_the_sampler_is_used_and_replaced_after_a_crash(started):
    before = []

    def fork_before(context):
        before.append(GpuChild(context))
        return before[0]

    watched = started(scenarios.hgx_h100(), fork_before=fork_before)
    watched.agent.until_inventory(count=8)
    watched.agent.until(lambda: watched.context.shared.get("gpu_edges") == 8 * 4 + 28 + 8, "edges")
    assert watched.sampler._pid == before[0].pid
    os.kill(before[0].pid, signal.SIGKILL)

    assert "was killed by signal SIGKILL" in watched.agent.until_inventory(fault="gpu_crashed")["text"]
    watched.agent.until_inventory(count=8)
    assert watched.sampler._pid not in (0, before[0].pid)


def test_child_that_died_before_it_was_needed_is_replaced(started):
    def fork_and_kill(context):
        child = GpuChild(context)
        os.kill(child.pid, signal.SIGKILL)
        return child

    watched = started(scenarios.hgx_h100(), fork_before=fork_and_kill)

    watched.agent.until_inventory(count=8)
    watched.agent.until(lambda: watched.agent.missing == {}, "missing is withdrawn")


def test_child_that_is_not_needed_ends_without_loading_the_driver(tmp_path):
    context = Context()
    context.import_nvml = lambda: (tmp_path / "loaded").touch()

    child = GpuChild(context)
    child.end()  # waits for it

    assert not Path(f"/proc/{child.pid}").exists()
    assert not (tmp_path / "loaded").exists()


def test_driver_that_hangs_at_its_start_is_slow_then_hung_then_repaired(started):
    watched = started(scenarios.hgx_h100() | {"hang.nvmlInitWithFlags": 1})

    assert "nvmlInit" in watched.agent.until_inventory(fault="gpu_starting")["text"]
    watched.agent.until_inventory(fault="gpu_hung")
    watched.scenario.change(drop=("hang.nvmlInitWithFlags",))
    watched.agent.until_inventory(count=8)


def test_call_that_hangs_is_named_with_its_gpu_and_clears_when_it_returns(started):
    watched = started(scenarios.hgx_h100())
    watched.agent.until_inventory(count=8)
    watched.scenario.change({"gpu3.hang.nvmlDeviceGetPowerUsage": 1})

    fault = watched.agent.until_inventory(fault="gpu_hung")
    assert "nvmlDeviceGetPowerUsage of GPU 3 has not returned for" in fault["text"]
    watched.scenario.change(drop=("gpu3.hang.nvmlDeviceGetPowerUsage",))
    watched.agent.until_inventory(count=8)


def test_call_that_never_returns_ends_the_child_and_another_one_takes_over(started, monkeypatch):
    monkeypatch.setattr(gpu_process, "KILL_S", 1.5)
    watched = started(scenarios.hgx_h100())
    watched.agent.until_inventory(count=8)
    first = watched.sampler._pid
    watched.scenario.change({"hang.nvmlDeviceGetFieldValues": 1})

    watched.agent.until(lambda: "gpu_hung" in watched.agent.missing, "reported as missing")
    watched.scenario.change(drop=("hang.nvmlDeviceGetFieldValues",))
    watched.agent.until_inventory(count=8)
    assert watched.sampler._pid not in (0, first)
    assert watched.agent.missing == {}


def test_child_that_sends_nothing_is_a_fault_that_names_no_call_and_clears(started, monkeypatch):
    monkeypatch.setattr(gpu_process, "SILENT_S", 2.0)
    watched = started(scenarios.hgx_h100())
    watched.agent.until_inventory(count=8)
    os.kill(watched.sampler._pid, signal.SIGSTOP)

    fault = watched.agent.until_inventory(fault="gpu_hung")
    assert fault["text"].startswith("the process that reads the NVIDIA driver has sent nothing for ")
    os.kill(watched.sampler._pid, signal.SIGCONT)
    watched.agent.until_inventory(count=8)


def test_crash_of_the_driver_library_names_signal_and_call_and_clears_once_it_runs_again(started):
    watched = started(scenarios.hgx_h100())
    watched.agent.until_inventory(count=8)
    watched.scenario.change({"gpu5.crash.nvmlDeviceGetPowerUsage": 1})

    fault = watched.agent.until_inventory(fault="gpu_crashed")
    assert "was killed by signal SIGSEGV in nvmlDeviceGetPowerUsage" in fault["text"]
    watched.scenario.change(drop=("gpu5.crash.nvmlDeviceGetPowerUsage",))
    watched.agent.until_inventory(count=8)
    watched.agent.until(lambda: watched.agent.missing == {}, "missing is withdrawn")


@pytest.mark.parametrize(
    ("code", "fault"), [(18, "gpu_driver_mismatch"), (4, "gpu_no_permission"), (999, "gpu_nvml_failed")]
)
def test_driver_that_is_repaired_under_a_running_agent_is_noticed(started, code, fault):
    watched = started(scenarios.hgx_h100() | {"fail.nvmlInitWithFlags": code})

    watched.agent.until_inventory(fault=fault)
    watched.scenario.change(drop=("fail.nvmlInitWithFlags",))
    watched.agent.until_inventory(count=8)
    watched.agent.until(lambda: watched.agent.missing == {}, "missing is withdrawn")


def test_binding_that_cannot_be_loaded_is_a_fault_until_it_can(started, tmp_path):
    loads = tmp_path / "loads"
    run = started(scenarios.hgx_h100(), loads=loads)

    inventory = run.agent.until_inventory(fault="gpu_no_binding")
    assert "pynvml, which calls it, cannot be loaded" in inventory["text"]
    loads.touch()

    assert run.agent.until_inventory(count=8)
    run.agent.until(lambda: run.agent.missing == {}, "no missing capability")


def test_driver_with_a_fault_is_tried_again_soon_and_an_absent_one_seldom(tmp_path):
    context = Context(proc=str(tmp_path))
    context.sys = str(tmp_path)
    sampler = GpuProcess(context, FakeAgent())

    sampler.absence(Unavailable("mismatch", name="gpu_driver_mismatch"))
    assert sampler.retry_most_s < 10
    sampler.absence(Unavailable("none", name="gpu_no_driver"))
    assert sampler.retry_most_s == 60


def test_doctor_names_the_state_of_nvml_without_calling_it(started, monkeypatch):
    monkeypatch.setattr(doctor, "NVML_S", 0.2)
    watched = started(scenarios.hgx_h100() | {"hang.nvmlInitWithFlags": 1})
    agent = SimpleNamespace(context=watched.context, missing=[])
    check = dict(doctor.CHECKS)["gpus"]

    watched.agent.until_inventory(fault="gpu_hung")
    assert check(agent)[0] == "fail"
    assert "nvmlInit has not returned" in check(agent)[1]
    watched.scenario.change(drop=("hang.nvmlInitWithFlags",))
    watched.agent.until_inventory(count=8)
    # A loaded machine can be late once more: the inventory says so then, and corrects itself.
    watched.agent.until(lambda: check(agent) == ("ok", "8 GPUs", ""), "doctor with 8 GPUs")
    # Not the running context, whose GPU process could post at this moment.
    without_answer = SimpleNamespace(context=Context(interval_s=0.2), missing=[])
    assert "NVML has not answered" in check(without_answer)[1]


#: Calls that fail after a start that succeeds, and what `doctor` names.
AFTER_THE_START = [
    ({"gpu3.fail.nvmlDeviceGetMemoryInfo_v2": 16},
     "1 of 8 GPUs cannot be used; GPU 3: the GPU requires a reset", "-i 3"),
    ({f"gpu.fail.{name}": 999 for name in EVERY_CALL},
     "8 of 8 GPUs cannot be used; GPU 0, 1, 2, 3, 4, 5, 6, 7: no NVML call returns a value", "-i 0,1,2,3,4,5,6,7"),
    ({"gpu5.hang.nvmlDeviceGetPowerUsage": 1}, "nvmlDeviceGetPowerUsage of GPU 5 has not returned for", "dmesg"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "words", "remedy"), AFTER_THE_START, ids=["reset", "unknown", "hang"])
def test_doctor_names_gpus_that_open_and_fail_later(started, lines, words, remedy):
    watched = started(scenarios.hgx_h100() | lines)

    agent, results = SimpleNamespace(context=watched.context, missing=[]), []

    def names_it():  # on a loaded machine the start of NVML may be the first that is late
        results.append(dict(doctor.CHECKS)["gpus"](agent))
        return results[-1][1].startswith(words)

    watched.agent.until(names_it, words)
    assert {state for state, _, _ in results} == {"fail"}
    assert remedy in results[-1][2]
    watched.scenario.change(drop=tuple(lines))
    watched.agent.until(lambda: dict(doctor.CHECKS)["gpus"](agent) == ("ok", "8 GPUs", ""), "doctor with 8 GPUs")


def test_doctor_calls_no_gpu_ok_that_was_not_read(monkeypatch):
    monkeypatch.setattr(doctor, "NVML_S", 0.2)
    context = Context(interval_s=0.2)
    context.shared["gpu_inventory"] = {"of": "gpu", "count": 8, "missing": []}

    state, text, _ = dict(doctor.CHECKS)["gpus"](SimpleNamespace(context=context, missing=[]))

    assert (state, text) == ("warn", "NVML lists 8 GPUs, but they were not read within 0 s")


def test_rank_of_the_process_sampler_reaches_the_child(started, monkeypatch):
    monkeypatch.setattr("gconsole_remote.nvml.processes.REFRESH_S", 0.2)
    watched = started(scenarios.hgx_h100() | {"gpu2.compute.0": "4242 1024"})
    rank = SimpleNamespace(pid=1, ns_pid=4242, gpu="2", job="j", attempt=0, rank=7, local_rank=None, start_ticks=1)
    watched.context.shared["processes"] = SimpleNamespace(ranks=[rank])

    watched.agent.until(lambda: watched.agent.last("gpu_process").get("rank") == 7, "rank 7")


def test_refusal_that_arrives_just_after_the_wait_for_it_is_no_crash(tmp_path, monkeypatch):
    load()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder()))
    monkeypatch.setenv(
        "NVML_SCENARIO",
        str(Scenario(tmp_path / "scenario", scenarios.hgx_h100() | {"fail.nvmlInitWithFlags": 18}).path),
    )
    context = Context(interval_s=0.2)
    context.sys, context.kmsg, context.proc = str(tmp_path / "sys"), str(tmp_path / "kmsg"), str(tmp_path / "proc")
    context.import_nvml = lambda: pynvml
    sampler = GpuProcess(context, FakeAgent())
    start_child = sampler._start_child

    class LateWait:
        """The first wait ends without a result just before the child has answered and ended."""

        waits = 0

        def __init__(self, answered):
            self.is_set = answered.is_set

        def wait(self, timeout):
            self.waits += 1
            assert sampler._ended.wait(DEADLINE_S)
            return self.waits > 1

    def start_with_a_late_answer():
        start_child()
        sampler._first = LateWait(sampler._first)

    monkeypatch.setattr(sampler, "_start_child", start_with_a_late_answer)
    with pytest.raises(Unavailable) as refused:
        sampler.start()
    assert refused.value.name == "gpu_driver_mismatch"


def test_released_gpus_are_closed_and_used_again_when_the_time_is_over(started, tmp_path):
    watched = started(scenarios.hgx_h100())
    agent, asked = watched.agent, SimpleNamespace(place=watched.agent.place, context=Context())
    agent.until_inventory(count=8)
    (tmp_path / "run").mkdir()
    agent.place.root, pid = str(tmp_path), watched.sampler._pid
    assert release.release(asked, {"for_s": 600})["left_s"] == 600
    assert agent.until_inventory(fault="gpu_released")["text"] == "gconsole has let the GPUs go (gconsole release)"
    assert not Path(f"/proc/{pid}").exists()
    assert release.release(asked, {"for_s": 0}) == {"left_s": 0, "holders": []}
    agent.until_inventory(count=8)
    assert "fault" not in agent.last("inventory")


@pytest.mark.parametrize(
    "text", ["", "soon", "99999999999", "-5", "1" * 5000], ids=["empty", "text", "far", "past", "long"]
)
def test_a_file_of_another_boot_or_without_sense_releases_nothing(tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gpus_released").write_text(text)
    assert release.left_s(str(tmp_path)) == 0.0
    assert release.left_s(None) == 0.0


def test_holders_of_a_gpu_are_named(tmp_path):
    for pid, target in ((7, "/dev/nvidia3"), (8, "/dev/nvidiactl"), (9, "/dev/null")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "5").symlink_to(target)
        (tmp_path / str(pid) / "stat").write_bytes(b"%d (a) b) S 1 0 0" % pid)
    assert release.holders(str(tmp_path)) == [(7, 1)]


def test_line_that_a_crash_interrupts_is_no_record():
    """The traceback of a crash follows what another thread had written of its line."""
    agent = FakeAgent()
    process = GpuProcess(Context(), agent)
    output, child = os.pipe()
    whole, broken = b'\tgpu\t{"index":0}\t\n', b'\tgpu\t{"index":1,"uu'
    os.write(child, whole + broken + b"Fatal Python error: Segmentation fault\n" + broken)
    os.close(child)

    process._receive(os.fdopen(output, "rb"), threading.Event(), threading.Event())

    assert agent.posted == [("gpu", {"index": 0})]
    assert "Segmentation fault" in "".join(process._crash)


def test_gpu_process_that_cannot_be_started_leaves_no_descriptor(monkeypatch):
    def fail():
        raise OSError(12, "Cannot allocate memory")

    process = GpuProcess(Context(), FakeAgent())
    monkeypatch.setattr(os, "fork", fail)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(OSError, match="allocate"):
            process._start_child()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_node_without_the_library_starts_no_process_and_says_so(monkeypatch, tmp_path):
    context = Context()
    context.sys = str(tmp_path / "sys")
    sampler = GpuProcess(context, FakeAgent())
    monkeypatch.setattr(call, "is_installed", lambda: False)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was started"))
    with pytest.raises(Unavailable) as refused:
        sampler.start()
    assert refused.value.name == "gpu_no_driver"


def test_digests_are_made_in_the_child_and_end_with_their_order(started):
    watched = started(scenarios.hgx_h100() | {"count": 1})
    watched.agent.until(lambda: watched.agent.last("gpu"), "a first sample")
    order = {"kinds": ["gpu"], "period_s": 2, "thresholds": {"temp_c": [95.0]}, "reasons": ["gpu_idle"]}
    watched.agent.digests = Order(order)
    watched.run.wake()
    watched.agent.until(lambda: watched.agent.last("gpu").get("samples", 1) > 1, "a digest")
    digest = watched.agent.last("gpu")

    assert digest["period_s"] == 2 and digest["first_mono"]
    watched.agent.digests = None
    watched.run.wake()
    watched.agent.until(lambda: "period_s" not in watched.agent.last("gpu"), "samples again")


def test_records_are_rows_while_the_console_takes_them_and_mean_the_same(started):
    watched = started(scenarios.hgx_h100() | {"count": 1})
    watched.agent.until(lambda: watched.agent.last("gpu"), "a first sample")
    names, rows_before = set(watched.agent.last("gpu")), watched.agent.rows
    watched.agent.order = ColumnOrder(column_order())
    watched.run.wake()
    watched.agent.until(lambda: watched.agent.rows > 1, "rows")
    of_row = watched.agent.last("gpu")
    watched.agent.order = None
    watched.run.wake()
    count = len(watched.agent.posted)
    watched.agent.until(lambda: len(watched.agent.posted) > count + 10, "more records")
    ended = watched.agent.rows
    watched.agent.until(lambda: len(watched.agent.posted) > count + 20, "more records")

    assert rows_before == 0
    assert set(of_row) >= names - {"grown"}
    assert watched.agent.rows == ended
    assert all(fields["of"] for kind, fields in watched.agent.posted if kind == "inventory")
