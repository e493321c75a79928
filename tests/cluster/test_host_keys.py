"""Host keys are always verified: strict by default, accept-new on request, changed ones are rejected."""

import stat
from pathlib import Path

from program import batch
from rig import Rig


def test_an_unknown_host_key_is_refused_with_its_fingerprint(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"known_hosts": tmp_path / "empty"})
    run = batch(hosts)
    for line in run.report["nodes"]:
        assert line["error"]["name"] == "host_key_unknown"
        assert "SHA256:" in line["error"]["text"]
        assert "accept-new" in line["error"]["try"]
    assert run.status == 4
    assert not (tmp_path / "empty").exists()


def test_accept_new_saves_host_keys_that_a_later_strict_run_accepts(rig: Rig, tmp_path: Path) -> None:
    known_hosts = tmp_path / "ssh" / "known_hosts"
    ssh = {"known_hosts": known_hosts, "host_key_policy": "accept-new"}
    first = batch(rig.write_hosts_toml(tmp_path / "new.toml", ssh=ssh))
    assert first.status == 0, first.stdout
    assert stat.S_IMODE(known_hosts.stat().st_mode) == 0o600
    assert len(known_hosts.read_text().splitlines()) == len(rig.nodes)
    second = batch(rig.write_hosts_toml(tmp_path / "strict.toml", ssh={"known_hosts": known_hosts}))
    assert second.status == 0, second.stdout


def test_a_changed_host_key_is_refused_under_either_policy_and_nothing_is_written(tmp_path: Path) -> None:
    with Rig(nodes=2, name="changed") as rig:
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(rig.known_hosts.read_text())
        before = known_hosts.read_text()
        rig.nodes[0].change_host_key()
        for policy in ("strict", "accept-new"):
            ssh = {"known_hosts": known_hosts, "host_key_policy": policy}
            run = batch(rig.write_hosts_toml(tmp_path / f"{policy}.toml", ssh=ssh))
            line = run.node("node1")
            assert line["error"]["name"] == "host_key_changed", line
            assert line["error"]["text"].count("SHA256:") == 2
            assert "ssh-keygen -R" in line["error"]["try"]
            assert run.node("node2")["state"] == "ok"
            assert known_hosts.read_text() == before
