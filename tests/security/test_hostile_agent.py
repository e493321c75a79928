"""A compromised node sends hostile input: nothing is executed, and other nodes' data are unaffected."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_records import TOUCHED, as_bytes
from injection_checks import assert_safe_cells, assert_safe_page, assert_safe_text
from live_fleet import started_fleet
from program import Run, batch, gconsole
from rig import Node, Rig, pythons
from tmux import Tmux

HERE = Path(__file__).parent
HOSTS = "HOSTS"
LONG = pytest.mark.full
#: Its response to each request verb.
ANSWERS = {
    "doctor": {"ok": [{"name": "\x1b[2J", "state": "ok", "text": "<script>", "try": ""}]},
    "clean": {"ok": {"removed": ["\x1b]0;owned\x07/etc"],
                     "kept": [{"path": "\x9b2J", "why": "x", "users": [{"pid": 1}]}],
                     "ended": [{"label": "\x1b[31m", "console": "\x1b[2J"}]}},
    "release": {"ok": {"left_s": 600, "holders": [{"pid": 7, "uid": 0, "program": "\x1b]0;owned\x07"}]}},
    "capture": {"ok": {"ranks": 2**62, "processes": 1, "samples": 1, "statuses": {"\x1b[2J": 1}, "spread_ns": None,
                       "stopped_since": 0, "last_seq": 5}},
    "job_files": {"ok": {"path": "/a/out", "files": [["../../../../.." + TOUCHED, 3], ["\x1b[2Jname", 3]]}},
    "job_read": {"ok": {"data": "RVZJTA==", "end": False}},
    "offer": {"ok": ["psutil", "\x1b[2J"] * 1000},
    "settled": {"ok": {}},
}  # fmt: skip


def take_over(node: Node, how: str, payload: bytes = b"") -> None:
    """Replace this node's `python3` with the hostile agent from the next connection on."""
    folder = node.folder / "evil"
    folder.mkdir()
    (folder / "agent.py").write_text((HERE / "hostile_agent.py").read_text())
    (folder / "how").write_text(how)
    (folder / "said").write_bytes(payload)
    (folder / "answers.json").write_text(json.dumps(ANSWERS))
    python = node.folder / "bin" / "python3"
    python.unlink()
    python.write_text(f"#!/bin/sh\nexec {pythons.own_python()} {node.inside}/evil/agent.py\n")
    python.chmod(0o755)


@pytest.fixture(scope="module")
def rig(needs_namespaces: None) -> Iterator[Rig]:
    """Two good nodes, and one that sends hostile records of every kind."""
    with Rig(nodes=["node1", "node2", "evil"], name="gcy-lies") as rig:
        take_over(rig.node("evil"), "once", as_bytes())
        yield rig


@pytest.fixture(scope="module")
def night(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, dict[str, str]]:
    """(folder with a report, records and a session of one batch run, that run, environment of its sessions)."""
    folder = tmp_path_factory.mktemp("night")
    env = {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions")}
    hosts = rig.write_hosts_toml(folder / "hosts.toml")
    run = batch(hosts, "--capture", "--samples", "1", "--records", folder / "night.ndjson",
                "--record", "night", env=env)  # fmt: skip
    return folder, run, env


def test_hostile_agent_does_not_affect_reports_of_other_nodes(night) -> None:
    _, run, _ = night
    states = {line["node"]: line["state"] for line in run.report["nodes"]}
    assert states == {"node1": "ok", "node2": "ok", "evil": "ok"}
    for name in ("node1", "node2"):
        line = run.node(name)
        assert line["hostname"] == name and not line.get("error"), line
        assert not [one for one in run.report["gpus"] if one["node"] == name], "it added a GPU to another node"


def test_text_from_a_hostile_agent_sends_no_control_codes_from_batch(night) -> None:
    _, run, _ = night
    assert run.status in (0, 1, 3), run.stderr
    assert_safe_text(run.stdout, "stdout")
    assert_safe_text(run.stderr, "stderr")


def test_hostile_agent_cannot_send_records_as_another_node(night) -> None:
    folder, _, _ = night
    agents: dict[str, set[str]] = {}
    for line in (folder / "night.ndjson").read_bytes().splitlines():
        record = json.loads(line)
        agents.setdefault(record["agent"], set()).add(record.get("node", ""))
    assert agents["e" * 16] == {"evil"}
    assert "somebody else's" not in agents


@pytest.mark.parametrize("form", ["html", "json", "perfetto", "gswarm"])
def test_exports_of_a_hostile_session_are_safe_to_open(night, tmp_path: Path, form: str) -> None:
    _, _, env = night
    out = tmp_path / f"out.{form}"
    done = gconsole("export", "night", "--format", form, "-o", out, env=env)
    assert done.status == 0, done.stderr
    assert_safe_text(done.stdout + done.stderr, "export")
    if form == "html":
        assert_safe_page(out.read_text(), form)
    if form in ("json", "gswarm"):
        json.loads(out.read_bytes())


def test_csv_export_of_a_hostile_session_has_no_formulas_or_stray_files(night, tmp_path: Path) -> None:
    _, _, env = night
    done = gconsole("export", "night", "--format", "csv", "-o", tmp_path / "figures", env=env)
    assert done.status == 0, done.stderr
    files = list((tmp_path / "figures").rglob("*"))
    assert files and all(file.suffix == ".csv" for file in files)
    for file in files:
        assert_safe_cells(file.read_text(), file.name)


@pytest.mark.parametrize(
    "args",
    [
        ["sessions", "verify", "night"],
        pytest.param(["query", "night", "SELECT node, text FROM log"], marks=LONG),
        pytest.param(["sessions", "list"], marks=LONG),
        pytest.param(["sessions", "compact", "night"], marks=LONG),
        pytest.param(["stat", "night", "--by", "rank"], marks=LONG),
        pytest.param(["diagnose", "night"], marks=LONG),
        pytest.param(["query", "night", "SELECT * FROM ranks_now"], marks=LONG),
        pytest.param(["query", "night", "SELECT node, uuid FROM gpu_info", "--format", "csv"], marks=LONG),
    ],
)
def test_session_commands_handle_a_hostile_session_with_safe_output(night, args: list[str]) -> None:
    _, _, env = night
    done = gconsole(*args, env=env)
    assert done.status in (0, 1), done.stdout + done.stderr
    assert "internal error" not in done.stderr
    assert_safe_text(done.stderr, "stderr")
    if "csv" in args:
        assert_safe_cells(done.stdout, "stdout")
        assert list(csv.reader(done.stdout.splitlines()))
    else:
        assert_safe_text(done.stdout, "stdout")


@pytest.mark.parametrize(
    "args",
    [
        ["ps", HOSTS],
        pytest.param(["doctor", HOSTS], marks=LONG),
        pytest.param(["clean", HOSTS], marks=LONG),
        pytest.param(["release", HOSTS, "--for", "1s"], marks=LONG),
        pytest.param(["run", "status", HOSTS], marks=LONG),
        pytest.param(["topo", HOSTS], marks=LONG),
        pytest.param(["clocks", HOSTS, "--for", "2s"], marks=LONG),
    ],
)
def test_live_commands_print_hostile_text_without_control_codes(rig: Rig, tmp_path: Path, args: list[str]) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    done = gconsole(*(hosts if argument == HOSTS else argument for argument in args))
    assert done.status in (0, 1, 3), done.stdout + done.stderr
    assert "internal error" not in done.stderr
    assert_safe_text(done.stdout, "stdout")
    assert_safe_text(done.stderr, "stderr")
    if args[0] in ("doctor", "clean"):
        assert "node1" in done.stdout or "node[1-2]" in done.stdout


@LONG
def test_hostile_agent_cannot_choose_where_fetched_files_are_written(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    status = json.loads(gconsole("run", "status", hosts, "--json").stdout)
    job = next(one["job"] for one in status["jobs"] if one["ordered"]["node"] == "evil" and one["job"].isprintable())
    out = tmp_path / "back"
    done = gconsole("run", "fetch", hosts, job, "out", "-o", out)
    assert_safe_text(done.stdout + done.stderr, "fetch")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "back/evil" not in str(path)
                and path != hosts], "a file was written elsewhere"  # fmt: skip


def test_text_from_a_hostile_agent_is_never_executed(rig: Rig, night) -> None:
    assert not Path(TOUCHED).exists()
    for node in rig.nodes:
        assert node.output(["sh", "-c", f"ls {TOUCHED} 2>/dev/null; true"]) == ""


@LONG
def test_every_screen_keeps_working_with_a_hostile_node(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    terminal = Tmux(f"{sys.executable} -m gconsole {hosts}", _home(tmp_path), columns=150, rows=45)
    try:
        terminal.until("3/3 nodes")
        for key in "1234567890":
            terminal.press(key)
            terminal.until("3/3 nodes")
        assert "owned" not in terminal._tmux("display-message", "-p", "-t", "it", "#{pane_title}")
        terminal.press("q")
        terminal.until_gone()
    finally:
        terminal.close()


def _home(folder: Path) -> dict[str, str]:
    return {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "DATA", "CONFIG", "CACHE")}


FLOODS = {
    "records": ("again", b'{"kind":"gpu","seq":0,"uuid":"u","index":0}\n'),
    "events": ("again", b'{"kind":"log","seq":0,"source":"agent","text":"NUMBER"}\n'),
    "things": ("again", b'{"kind":"process","seq":0,"pid":NUMBER,"start_ticks":1,"ppid":1,"uid":0,"comm":"x",'
                        b'"role":"child"}\n'),
    "captures": ("again", b'{"kind":"stack","seq":0,"capture":"cNUMBER","sample":0,"job":"j","rank":0,"pid":1,'
                          b'"start_ticks":1,"status":"gone"}\n'),
    "kinds": ("again", b'{"kind":"quarkNUMBER","seq":0}\n'),
    "nonsense": ("again", b'{"kind":"gpu","seq":"x"}\n[1]\n{"re":7,"ok":1}\n'),
    "garbage": ("garbage", b""),
    "endless": ("endless", b""),
    "deaf": ("deaf", b""),
}  # fmt: skip


@LONG
async def test_flooding_nodes_do_not_delay_or_lose_records_of_other_nodes(
    needs_namespaces: None, tmp_path: Path
) -> None:
    with Rig(nodes=["node1", "node2", *FLOODS], name="gcy-flood") as rig:
        for name, (how, payload) in FLOODS.items():
            take_over(rig.node(name), how, payload)
        async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml")) as fleet:
            good = ("node1", "node2")
            await fleet.until(lambda: all(fleet.state(name) == "ok" for name in good), 60)
            await fleet.until(lambda: all(_ticks(fleet, name) >= 4 for name in good), 120)
            for name in good:
                [seqs] = fleet.seqs(name).values()
                assert seqs == list(range(1, len(seqs) + 1))
                assert fleet.gaps(name) == []
            assert fleet.store.captures.values() == []
            assert len([key for key in fleet.store.processes if key[0] == "things"]) <= 65_536
            assert {record.node for record in fleet.records} <= {"", "node1", "node2", *FLOODS}


def _ticks(fleet, node: str) -> int:
    return sum(record.node == node and type(record).__name__ == "AgentCost" for record in fleet.records)
