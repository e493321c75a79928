"""All kinds of node failures in one fleet: each is reported with its reason, and none delays the other nodes."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Run, batch
from rig import Rig, RigUnavailable

#: kind of node → the stable name of its failure (None: it works), and a word of its text
KINDS = {
    "plain": (None, ""),
    "noisy": (None, ""),
    "python36": (None, ""),
    "readonly_home": (None, ""),
    "noexec_cache": (None, ""),
    "no_python": ("no_python", "python3"),
    "old_python": ("python_too_old", ""),
    "hang_login": ("timeout", "no response"),
    "hang_shell": ("timeout", "no hello from the agent"),
    "throttle": ("throttled", "closed the connection"),
    "refuse": ("refused", "connection refused by"),
    "wrong_key": ("auth", "key refused"),
    "password_only": ("auth_interactive", "not available here"),
}


class FailingFleet:
    """One run over one node of each kind."""

    def __init__(self, run: Run, missing: dict[str, str], seconds: float) -> None:
        self.run, self.missing, self.seconds = run, missing, seconds


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingFleet]:
    with Rig(nodes=0, name="failures") as rig:
        missing = {}
        for kind in KINDS:
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.suppress(RigUnavailable))
                missing[kind] = "not supported by this mode of the rig"
                rig.add_node(kind.replace("_", "-"), kind)
                del missing[kind]
        hosts = tmp_path_factory.mktemp("failures") / "hosts.toml"
        rig.write_hosts_toml(hosts, ssh={"connect_timeout_s": 3})
        began = time.monotonic()
        run = batch(hosts, deadline_s=150)
        yield FailingFleet(run, missing, time.monotonic() - began)


@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_has_a_name_a_reason_and_a_remedy(fleet: FailingFleet, kind: str) -> None:
    if kind in fleet.missing:
        pytest.skip(f"node kind {kind}: {fleet.missing[kind]}")
    line = fleet.run.node(kind.replace("_", "-"))
    name, fragment = KINDS[kind]
    if name is None:
        assert (line["state"], line["error"]) == ("ok", None)
        return
    assert line["state"] == "failed"
    assert line["error"]["name"] == name
    assert fragment in line["error"]["text"]
    assert line["error"]["try"]


def test_partly_failed_fleet_exits_with_status_3(fleet: FailingFleet) -> None:
    assert fleet.run.status == 3, [(f["id"], f["text"]) for f in fleet.run.report["findings"]]
    assert "Traceback" not in fleet.run.stderr + fleet.run.stdout


def test_summary_lists_every_failed_node_with_a_remedy(fleet: FailingFleet) -> None:
    for line in fleet.run.report["nodes"]:
        if line["error"]:
            assert line["node"] in fleet.run.stdout
            assert f"{line['error']['name']}:" in fleet.run.stdout
    assert "try:" in fleet.run.stdout


def test_a_node_with_python_36_runs_the_agent_on_it(fleet: FailingFleet) -> None:
    if "python36" in fleet.missing:
        pytest.skip("node kind python36: not supported by this mode of the rig")
    assert fleet.run.node("python36")["python"].startswith("3.6.")


def test_healthy_nodes_do_not_wait_for_the_others(tmp_path: Path) -> None:
    with Rig(nodes=2, name="wait") as rig:
        rig.add_node("stuck", "hang_login")
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        run = batch(hosts, "--for", "6s")
    assert [run.node(name)["state"] for name in ("node1", "node2", "stuck")] == ["ok", "ok", "failed"]
    assert run.node("stuck")["error"]["name"] == "timeout"
    assert len([line for line in run.report["agent_cost"] if line["node"] != "stuck"]) == 2


def test_unreachable_fleet_exits_with_status_4(tmp_path: Path) -> None:
    with Rig(nodes=0, name="nothing") as rig:
        rig.add_node("gone", "refuse")
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"))
    assert run.status == 4
