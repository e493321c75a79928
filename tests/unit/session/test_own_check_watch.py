"""The user's checks while a console runs: on its store, from a file that changes."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import pytest

from gconsole.analysis.checks.result import CheckResult
from gconsole.core.store import Store
from gconsole.monitor.node_checks import NodeCheckCache
from gconsole.records import Capacity, Node, NodeSetting, NodeState
from gconsole.report import make_report
from gconsole.session.query import own_check_watch
from gconsole.session.query.own_check_watch import OwnCheckWatch
from gconsole.session.query.own_checks import OwnCheckFile

DEADLINE_S = 60.0
RULE = """
[[check]]
id = "swappiness"
sql = "SELECT node, 'swappiness is ' || value FROM setting WHERE subject = 'vm.swappiness' AND value <> '%s'"
"""


@pytest.fixture
def store():
    records = []
    for name, value in (("n1", "10"), ("n2", "60")):
        records += [
            NodeState(node=name, state="ok"),
            Node(node=name, hostname=name, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1,
                 sample_interval_ms=1000),
            NodeSetting(node=name, name="sysctl", subject="vm.swappiness", value=value),
            Capacity(node=name, type="file_system", path="/"),
        ]  # fmt: skip
    for number, record in enumerate(records):
        record.seq, record.rx = number, 1 + number
    store = Store()
    store.apply([*records, NodeState(node="n3", state="failed")])
    return store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checks.toml"


@contextlib.asynccontextmanager
async def watching(store, path, warnings=None):
    watch = OwnCheckWatch(store, (warnings if warnings is not None else []).append, path)
    try:
        yield watch
    finally:
        await watch.stop()


async def test_rule_over_settings_and_capacities_of_the_store_fails_its_node(store, path):
    path.write_text(RULE % "10" + '[[check]]\nid = "root_there"\nsql = "SELECT node FROM node WHERE node NOT IN'
                    " (SELECT node FROM capacity WHERE path = '/')\"\n")  # fmt: skip
    async with watching(store, path) as watch:
        await watch.evaluate()

        assert [(result.id, result.state, result.text) for result in watch.of("n2")] == [
            ("swappiness", "fail", "swappiness is 60"), ("root_there", "pass", "")]  # fmt: skip
        assert [result.state for result in watch.of("n1")] == ["pass", "pass"]
        assert watch.of("n3") == ()  # not reached
        shown = NodeCheckCache(store, watch.of).of("n2", time.time_ns())
        assert [(result.id, result.state) for result in shown[-2:]] == [("swappiness", "fail"), ("root_there", "pass")]


async def test_changed_file_takes_effect_at_the_next_pass_and_one_with_a_mistake_leaves_the_old_checks(store, path):
    warnings = []
    path.write_text(RULE % "10")
    async with watching(store, path, warnings) as watch:
        await watch.evaluate()
        path.write_text((RULE % "60") + "severity = 3\n")
        for _ in range(2):
            await watch.evaluate()
        assert [watch.of(name)[0].state for name in ("n1", "n2")] == ["pass", "fail"]
        assert len(warnings) == 1 and warnings[0].severity == "warning"
        assert warnings[0].text.startswith("checks.toml cannot be used, the checks from before stay: ")
        assert "severity" in warnings[0].text
        assert warnings[0].try_ == "correct the file; it is read again every 30 s"

        path.write_text(RULE % "60")
        await watch.evaluate()
        assert [watch.of(name)[0].state for name in ("n1", "n2")] == ["fail", "pass"]

        path.unlink()
        await watch.evaluate()
        assert watch.results == {} and len(warnings) == 1


async def test_pass_follows_pass_and_commands_that_run_end_with_the_console(store, path, tmp_path, monkeypatch):
    monkeypatch.setattr(own_check_watch, "FIRST_S", 0.0)
    monkeypatch.setattr(own_check_watch, "EVERY_S", 0.01)
    pids, script = tmp_path / "pids", tmp_path / "script.py"
    pids.touch()
    script.write_text(f"""import os, time
with open({str(pids)!r}, "a+") as file:
    print(os.getpid(), file=file, flush=True)
    file.seek(0)
    lines = len(file.readlines())
time.sleep(600 if lines > 2 else 0)
""")
    path.write_text(f'[[check]]\nid = "slow"\ncommand = ["{sys.executable}", "{script}"]\ntimeout_s = 600\n')

    async with watching(store, path) as watch:
        watch.start()
        await asyncio.to_thread(wait_until, lambda: len(pids.read_text().split()) > 2)  # two nodes: the second pass

    started = [Path("/proc", pid) for pid in pids.read_text().split()]
    await asyncio.to_thread(wait_until, lambda: not any(process.exists() for process in started))


def wait_until(condition):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE_S
        time.sleep(0.02)


def test_report_has_the_results_of_the_users_checks_after_the_others(store):
    own = CheckResult("mine", "fail", "error", "broken")

    checks = {node.node: node.checks for node in make_report(store, own_checks={"n1": (own,)}).checks}

    assert checks["n1"][-1] == own and len(checks["n1"]) == len(checks["n2"]) + 1
    assert checks["n3"] == ()


def test_file_that_cannot_be_read_leaves_the_old_checks(path, monkeypatch):
    path.write_text(RULE % "10")
    file = OwnCheckFile(path)
    before = file.read()
    path.unlink()
    path.mkdir()

    assert file.read() == before != () and "checks.toml" in file.trouble


async def test_pass_that_fails_is_a_warning_and_the_next_one_is_made(store, path, monkeypatch):
    passes, warnings = [], []
    is_made = asyncio.Event()

    async def fails_once(watch):
        passes.append(watch)
        if len(passes) == 1:
            raise KeyError("bug")
        is_made.set()

    monkeypatch.setattr(OwnCheckWatch, "evaluate", fails_once)
    monkeypatch.setattr(own_check_watch, "FIRST_S", 0.0)
    monkeypatch.setattr(own_check_watch, "EVERY_S", 0.0)
    async with watching(store, path, warnings) as watch:
        watch.start()
        async with asyncio.timeout(DEADLINE_S):
            await is_made.wait()
    assert [warning.text.partition(";")[0] for warning in warnings] == ["internal error: KeyError: 'bug'"]
