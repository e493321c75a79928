"""`[ssh] record_on`: only the one gateway, and only with agents that outlive a lost connection."""

from pathlib import Path

import pytest

from gconsole.config import ConfigError, load

HOSTS = '[ssh]\ngateway = "{gateway}"\nrecord_on = "login1"\n[agent]\nlinger_s = {linger}\n[[nodes]]\nhosts = "node1"\n'


def test_gateway_that_keeps_is_the_only_one_and_its_agents_linger(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(HOSTS.format(gateway="login1", linger=60))
    assert load(str(path)).nodes[0].ssh.record_on == "login1"
    path.write_text(HOSTS.format(gateway="login[1-2]", linger=60))
    with pytest.raises(ConfigError, match=r"ssh\.record_on: must be the same host as ssh\.gateway"):
        load(str(path))
    path.write_text(HOSTS.format(gateway="login1", linger=0))
    with pytest.raises(ConfigError, match=r"ssh\.record_on: needs \[agent\] linger_s"):
        load(str(path))
