"""Host keys behind a bastion: every hop is verified, with keys and certificates."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from program import Run, batch
from rig import Node, Rig
from rig.keys import known_hosts_line, make, public_line, remove
from rig.sandbox import INSIDE


@dataclass(frozen=True)
class JumpHostCluster:
    """A cluster behind a bastion, whose operator signs host keys; `known` is the content of the user's known_hosts."""

    rig: Rig
    known_hosts: str

    def run(self, folder: Path, only: list[str] | None = None, known_hosts: str | None = None, **ssh: str) -> Run:
        path = folder / "known_hosts"
        path.write_text(self.known_hosts if known_hosts is None else known_hosts)
        names = [node.name for node in self.rig.nodes if node.behind] if only is None else only
        text = self.rig.ssh_config_text().replace(str(self.rig.known_hosts), str(path))
        by_name = {name: {"jump": "bastion"} for name in names}  # defined in the ssh configuration
        ssh_too = {"known_hosts": path, **ssh}
        hosts = self.rig.write_hosts_toml(folder / "hosts.toml", only=names, nodes=by_name, ssh=ssh_too)
        run = batch(hosts, home=self.rig.ssh_config(text))
        assert path.read_text() == (self.known_hosts if known_hosts is None else known_hosts), "nothing is written"
        return run


def certify(rig: Rig, node: Node, authority: Path, principal: str, valid: str = "-1h:+1h") -> None:
    """Sign the node's host key, and make its sshd offer the certificate."""
    key = rig.folder / node.name / "host_key.pub"
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-h", "-I", node.name, "-n", principal, "-V", valid, key],
                   check=True, capture_output=True)  # fmt: skip
    node.stop_sshd()
    node.start_sshd()


def copy_key(rig: Rig, source: Node, node: Node) -> None:
    """Give the node a copy of another node's host key pair."""
    node.stop_sshd()
    remove(rig.folder / node.name / "host_key")
    for name in ("host_key", "host_key.pub"):
        shutil.copy(rig.folder / source.name / name, rig.folder / node.name / name)
    node.start_sshd()


def replace_key_type(rig: Rig, node: Node) -> None:
    node.stop_sshd()
    remove(rig.folder / node.name / "host_key")
    path = rig.folder / node.name / "host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", path], check=True, capture_output=True)
    node.start_sshd()


CERTIFIED = ("good", "uncertified", "other-authority", "other-name", "expired", "not-yet", "revoked")
PLAIN = ("plain", "changed", "other-type", "usurped")


@pytest.fixture(scope="module")
def cluster(needs_namespaces: None) -> Iterator[JumpHostCluster]:
    with Rig(nodes=0, name="gch-keys") as rig:
        bastion = rig.add_bastion()
        ours, foreign = make(rig.folder / "authority"), make(rig.folder / "foreign")
        lines = [known_hosts_line([bastion.address], bastion.port, bastion.host_key() or "")]
        for name in CERTIFIED:
            certificate = f"HostCertificate {INSIDE}/host_key-cert.pub"
            node = rig.add_node(name, behind=bastion, sshd_options=(certificate,))
            lines.append("@cert-authority " + known_hosts_line([node.address], node.port, public_line(ours)))
            principal = bastion.address if name == "other-name" else node.address
            valid = {"expired": "-2h:-1h", "not-yet": "+1h:+2h"}.get(name, "-1h:+1h")
            if name != "uncertified":
                certify(rig, node, foreign if name == "other-authority" else ours, principal, valid)
            if name == "revoked":
                lines.append(f"@revoked * {node.host_key()}\n")
        for name in PLAIN:
            node = rig.add_node(name, behind=bastion)
            lines.append(known_hosts_line([node.address], node.port, node.host_key() or ""))
        rig.node("changed").change_host_key()
        replace_key_type(rig, rig.node("other-type"))
        copy_key(rig, bastion, rig.node("usurped"))
        yield JumpHostCluster(rig, "".join(lines))


@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
def test_only_nodes_with_valid_host_keys_are_accepted_behind_a_bastion(
    cluster: JumpHostCluster, tmp_path: Path, transport: str
) -> None:
    run = cluster.run(tmp_path, transport=transport, host_key_policy="accept-new")
    errors = {name: (run.node(name)["error"] or {}).get("name") for name in CERTIFIED + PLAIN}
    good = [name for name, error in errors.items() if error is None]
    assert good == ["good", "plain"], errors
    expected = {"host_key_changed"} | ({"host_key_unknown"} if transport == "openssh" else set())
    assert {errors[name] for name in errors if name not in good} <= expected
    for name in ("changed", "other-type", "usurped", "expired", "other-name", "revoked"):
        assert errors[name] == "host_key_changed", name
    if transport == "asyncssh":
        texts = {name: run.node(name)["error"]["text"] for name in errors if name not in good}
        assert all(texts[name].count("SHA256:") == 2 for name in ("changed", "other-type", "usurped")), texts
        assert "expired" in texts["expired"] and "principal" in texts["other-name"] and "revoked" in texts["revoked"]


@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
def test_bastion_with_a_changed_key_blocks_all_nodes_behind_it(
    cluster: JumpHostCluster, tmp_path: Path, transport: str
) -> None:
    bastion, other = cluster.rig.node("bastion"), cluster.rig.node("good")
    known_hosts = cluster.known_hosts.replace(
        (bastion.host_key() or "").split()[1], (other.host_key() or "").split()[1]
    )
    run = cluster.run(tmp_path, ["good", "plain"], known_hosts, transport=transport, host_key_policy="accept-new")
    for name in ("good", "plain"):
        assert run.node(name)["error"]["name"] == "host_key_changed", run.node(name)


@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
def test_bastion_key_is_not_accepted_for_a_node_behind_it(
    cluster: JumpHostCluster, tmp_path: Path, transport: str
) -> None:
    """A malicious bastion could answer for the node with its own, known key."""
    usurped = cluster.rig.node("usurped")
    known_hosts = "".join(line for line in cluster.known_hosts.splitlines(True) if usurped.address not in line)
    run = cluster.run(tmp_path, ["usurped"], known_hosts, transport=transport)
    assert run.node("usurped")["error"]["name"] == "host_key_unknown", run.node("usurped")
