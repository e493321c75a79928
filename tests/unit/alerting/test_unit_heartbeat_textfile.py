"""The systemd unit, the heartbeat's conditions, the textfile, and what the command refuses."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from http_server import serving
from prometheus_client.parser import text_string_to_metric_families

from gconsole.cli.main import gconsole
from gconsole.monitor.alerting.events import WatchEvent
from gconsole.monitor.alerting.heartbeat import Heartbeat, PassHealth
from gconsole.monitor.alerting.systemd import ServiceNotifier, unit_name, unit_text
from gconsole.monitor.alerting.textfile import WatchGauges, write_textfile
from gconsole.records import Finding

NODES = '[[nodes]]\nhosts = "node1"\n'


def invoke(*args: object, **env: str):
    return CliRunner().invoke(gconsole, [str(argument) for argument in args], env=env)


# -- systemd -----------------------------------------------------------------------------------------------------------


def settings_of(text: str) -> dict[str, str]:
    """The last value of each key of a unit; every line must be a section, a comment or KEY=VALUE."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            key, equals, value = line.partition("=")
            assert equals and key.isalpha(), line
            values[key] = value
    return values


def test_unit_is_printed_installed_and_removed(tmp_path: Path) -> None:
    hosts = tmp_path / "my hosts.toml"
    hosts.write_text(NODES)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    printed = invoke("watch", hosts, "--print", "--set", "watch.stall_s=60", **env)
    assert printed.exit_code == 0, printed.output
    settings = settings_of(printed.output)
    assert shlex.split(settings["ExecStart"])[-4:] == ["watch", str(hosts), "--set", "watch.stall_s=60"]
    assert (settings["Type"], settings["Restart"], settings["RestartPreventExitStatus"]) == (
        "notify",
        "on-failure",
        "2",
    )
    installed = invoke("watch", hosts, "--install", "--set", "watch.stall_s=60", **env)
    (unit,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    assert installed.exit_code == 0 and f"enable --now {unit.name}" in installed.output
    assert unit.read_text() == printed.output
    assert invoke("watch", hosts, "--install", **env).exit_code == 0, "a unit of gconsole is replaced"
    assert "removed" in invoke("watch", hosts, "--uninstall", **env).output
    assert not unit.exists()
    assert invoke("watch", hosts, "--uninstall", **env).exit_code == 0
    unit.write_text("[Unit]\n")
    for option in ("--install", "--uninstall"):
        refused = invoke("watch", hosts, option, **env)
        assert refused.exit_code == 2 and "was not written by gconsole" in refused.output
    assert unit.read_text() == "[Unit]\n"


@pytest.mark.parametrize("target", ["node[1-4]", '/a b/%h/$HOME/"x"\\y/hosts.toml', "slurm:123", "@all", "ü.toml"])
def test_unit_quotes_every_target(target: str, tmp_path: Path) -> None:
    text = unit_text(target, "pod %i\n[Service]\nExecStart=/bin/evil", ["/usr/bin/gconsole", "watch", target], tmp_path)
    settings = settings_of(text)
    assert settings["ExecStart"].startswith("/usr/bin/gconsole watch ")
    expanded = settings["ExecStart"].replace("%%", "%").replace("$$", "$")
    assert shlex.split(expanded)[2] == target
    assert text.count("ExecStart=") == 2 and "\nExecStart=/bin/evil" not in text
    assert unit_name(target) != unit_name(target + "x")
    if shutil.which("systemd-analyze"):
        unit = tmp_path / unit_name("t")
        unit.write_text(text.replace("/usr/bin/gconsole", "/bin/true"))
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--user", unit], capture_output=True, text=True, env=env
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_line_break_in_a_target_is_refused(tmp_path: Path) -> None:
    result = invoke("watch", "node1", "--set", "cluster.name=x", "--print", HOME=str(tmp_path))
    assert result.exit_code == 0
    (tmp_path / "a\nb.toml").write_text(NODES)
    result = invoke("watch", tmp_path / "a\nb.toml", "--print", HOME=str(tmp_path))
    assert result.exit_code == 2 and "line break" in result.output


def test_service_manager_is_notified_and_its_socket_is_not_inherited(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        notifier = ServiceNotifier(environ)
        notifier.send("READY=1", "STATUS=a\nSTOPPING=1")
        assert listener.recv(1000) == b"READY=1\nSTATUS=a STOPPING=1"
        assert (environ, notifier.is_service) == ({}, True)
        notifier.close()
    ServiceNotifier({}).send("READY=1")


# -- heartbeat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "pct", "reason"),
    [
        (PassHealth(4, 4, analysis_age_s=1.0), 100, ""),
        (PassHealth(3, 4, ("n2 (timeout)",), analysis_age_s=1.0), 100, "3 of 4 nodes seen: n2 (timeout)"),
        (PassHealth(3, 4, ("n2",), analysis_age_s=1.0), 75, ""),
        (PassHealth(0, 0, analysis_age_s=1.0), 100, "0 of 0 nodes seen"),
        (PassHealth(4, 4), 100, "the analyses have not run yet"),
        (PassHealth(4, 4, analysis_age_s=31.0), 100, "the analyses last ran 31 s ago"),
        (PassHealth(4, 4, lag_s=5.5, analysis_age_s=1.0), 100, "this process was blocked for 6 s"),
        (PassHealth(4, 4, analysis_age_s=1.0, failing=("skew",)), 100, "analyses failed: skew"),
    ],
)
def test_pass_is_blind_without_nodes_analyses_or_time(health: PassHealth, pct: float, reason: str) -> None:
    assert health.blindness(pct) == reason


def test_heartbeat_is_sent_at_its_interval_and_its_failure_is_reported_once(tmp_path: Path) -> None:
    events: list[WatchEvent] = []
    clock = [0.0]

    async def beats(server, times: list[float]) -> None:
        heartbeat = Heartbeat(events.append, lambda: clock[0])
        heartbeat.follow(f"{server.url}/secret-path", str(tmp_path / "alive"), 60.0)
        for clock[0] in times:
            heartbeat.beat(PassHealth(4, 4), 2)
            if heartbeat._task is not None:
                await asyncio.wait({heartbeat._task})
        await heartbeat.stop()

    with serving() as server:
        asyncio.run(beats(server, [0, 1, 30, 59, 60, 61, 125]))
        assert [path for path, _, _ in server.requests] == ["/secret-path"] * 3
    assert json.loads((tmp_path / "alive").read_text())["nodes_seen"] == 4
    assert events == []
    with serving(lambda number: (500 if number < 2 else 200, {}, b"/secret-path")) as server:
        asyncio.run(beats(server, [0, 60, 120, 180]))
    assert [event.kind for event in events] == ["heartbeat_failed", "heartbeat"]
    assert "secret-path" not in str(events)


# -- textfile ----------------------------------------------------------------------------------------------------------


def test_textfile_is_read_by_prometheus_and_by_other_users(tmp_path: Path) -> None:
    path = tmp_path / "gconsole.prom"
    gauges = WatchGauges('pod"\\\n', 3, 4, False, {"ok": 2, "error": 1}, 1_700_000_000.5)
    finding = Finding(id="gpu_xid", severity="error", confidence="certain", text="x", first_seen=0)
    os.umask(umask := os.umask(0o077))
    write_textfile(path, gauges, [finding, finding])
    assert path.stat().st_mode & 0o777 == 0o644 and umask is not None
    families = {family.name: family for family in text_string_to_metric_families(path.read_text())}
    assert {family.type for family in families.values()} == {"gauge"}
    assert all(family.documentation for family in families.values())
    (sample,) = families["gconsole_watch_findings_open"].samples
    assert (sample.labels, sample.value) == ({"cluster": 'pod"\\\n', "id": "gpu_xid", "severity": "error"}, 2.0)
    assert families["gconsole_watch_nodes_seen"].samples[0].value == 3
    assert {s.labels["state"]: s.value for s in families["gconsole_watch_jobs"].samples} == {"ok": 2, "error": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["gconsole.prom"]


# -- command -----------------------------------------------------------------------------------------------------------


def test_unknown_rule_and_contradicting_options_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(NODES + '[[watch.rule]]\nname = "a"\nkeep = true\n')
    result = invoke("watch", tmp_path / "hosts.toml", "--test-rule", "b")
    assert result.exit_code == 2 and "no rule 'b'" in result.output and ": a" in result.output
    assert invoke("watch", tmp_path / "hosts.toml", "--print", "--for", "3s").exit_code == 2


def fired(folder: Path):
    """`--test-rule`; the exit code is the returned value."""
    argv = ["watch", str(folder / "hosts.toml"), "--test-rule", "a"]
    return CliRunner().invoke(gconsole, argv, standalone_mode=False)


def test_test_rule_posts_a_labelled_finding_without_any_node(tmp_path: Path) -> None:
    with serving() as server:
        (tmp_path / "hosts.toml").write_text(
            f'{NODES}[[watch.rule]]\nname = "a"\nkeep = true\nrun = ["cat"]\npost = "{server.url}/s3cret"\n'
        )
        result = fired(tmp_path)
        assert result.return_value == 0 and "skip    keep" in result.output and "s3cret" not in result.output
        document = json.loads(server.requests[0][2])
    assert (document["event"], document["summary"][:6]) == ("test", "TEST: ")
    with serving(lambda number: (403, {}, b"")) as server:
        (tmp_path / "hosts.toml").write_text(f'{NODES}[[watch.rule]]\nname = "a"\npost = "{server.url}"\n')
        result = fired(tmp_path)
        assert result.return_value == 3 and "failed  post: 127.0.0.1: answered 403" in result.output
