"""Keys, revocations and certificate authorities of a host and port from known_hosts."""

from __future__ import annotations

from pathlib import Path

import asyncssh
import pytest

from gconsole.transport.host_keys import HostKeyCheck, KnownHosts

KEY, OTHER = (asyncssh.generate_private_key("ssh-ed25519").convert_to_public() for _ in range(2))


def line(names: str, key: asyncssh.SSHKey) -> str:
    return f"{names} {key.export_public_key('openssh').decode().strip()}\n"


def known(folder: Path, *lines: str) -> KnownHosts:
    path = folder / "known_hosts"
    path.write_text("".join(lines))
    return KnownHosts([path])


@pytest.mark.parametrize("name", ["node1", "10.0.0.1"])
def test_key_revoked_for_a_port_stays_revoked_beside_a_portless_entry(tmp_path: Path, name: str) -> None:
    hosts = known(tmp_path, line("node1", KEY), line(f"@revoked [{name}]:2222", KEY))
    assert KEY in hosts.match("node1", "10.0.0.1", 2222)[2]
    assert KEY not in hosts.match("node1", "10.0.0.1", 22)[2]


def test_host_matched_by_a_certificate_authority_keeps_its_own_key_fingerprint(tmp_path: Path) -> None:
    hosts = known(tmp_path, line("@cert-authority *", OTHER), line("node1", KEY))
    assert hosts.fingerprints("node1", "", 22) == [KEY.get_fingerprint()]


def test_certificate_algorithms_are_offered_only_with_a_known_authority(tmp_path: Path) -> None:
    """A new host without a known authority is verified by its plain key, so that certificates must not be offered."""
    hosts = known(tmp_path, line("@cert-authority *.site", OTHER), line("node1", KEY))
    assert any("cert" in algorithm for algorithm in hosts.algorithms("a.site", "", 22))
    assert not any("cert" in algorithm for algorithm in hosts.algorithms("new", "", 22))
    assert hosts.algorithms("node1", "", 22)[0] == "ssh-ed25519"


def test_accept_new_rejects_an_unsigned_key_of_a_host_with_a_ca(tmp_path: Path) -> None:
    hosts = known(tmp_path, line("@cert-authority *", OTHER))
    check = HostKeyCheck(hosts, "node1", "node1", accept_new=True)
    assert not check.check("", 22, KEY)
    assert check.failure is not None and check.failure.name == "host_key_changed"
    assert hosts.paths[0].read_text() == line("@cert-authority *", OTHER)


def test_accepted_key_starts_a_new_line_after_an_unterminated_last_line(tmp_path: Path) -> None:
    hosts = known(tmp_path, line("node1", KEY).rstrip("\n"))
    hosts.accept("node2", 22, OTHER)
    again = KnownHosts(hosts.paths)
    assert again.fingerprints("node1", "", 22) == [KEY.get_fingerprint()]
    assert again.fingerprints("node2", "", 22) == [OTHER.get_fingerprint()]
