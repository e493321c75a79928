"""Effect of a changed hosts.toml on a running console."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gconsole.config import Config, ConfigError, load
from gconsole.config.diff import Changes, difference
from gconsole.config.load import more_nodes
from gconsole.config.sections import WatchConfig


def config(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    return load(str(path), environ={})


def changes(tmp_path: Path, old: str, new: str) -> Changes:
    return difference(config(tmp_path, old), config(tmp_path, new))


TWO = '[[nodes]]\nhosts = "a,b"\n'


def test_added_comment_causes_no_changes(tmp_path: Path):
    assert not changes(tmp_path, TWO, "# a comment\n" + TWO)


def test_added_and_removed_nodes_are_reported(tmp_path: Path):
    found = changes(tmp_path, TWO, '[[nodes]]\nhosts = "b,c"\n')
    assert ([node.name for node in found.added], found.removed, found.changed) == (["c"], ("a",), ())


def test_node_with_a_different_ssh_port_is_reported_as_changed(tmp_path: Path):
    new = '[[nodes]]\nhosts = "a"\nport = 2222\n[[nodes]]\nhosts = "b"\n'
    found = changes(tmp_path, TWO, new)
    assert [(node.name, node.ssh.port) for node in found.changed] == [("a", 2222)]
    assert not found.added and not found.removed


def test_global_agent_setting_changes_every_node(tmp_path: Path):
    found = changes(tmp_path, TWO, "[agent]\nsample_interval_ms = 500\n" + TWO)
    assert [node.name for node in found.changed] == ["a", "b"]


def test_settings_that_need_a_restart_are_listed_without_reconnecting_nodes(tmp_path: Path):
    found = changes(tmp_path, TWO, '[cluster]\nname = "x"\n[ssh]\nmax_connecting = 3\n' + TWO)
    assert found == Changes(next_start=("cluster.name", "ssh.max_connecting"))


def test_nodes_added_by_name_inherit_common_settings(tmp_path: Path):
    [one, other] = more_nodes(config(tmp_path, '[ssh]\nuser = "ops"\n' + TWO), "c,root@d:2222")
    assert (one.name, one.ssh.user, other.name, other.ssh.user, other.ssh.port) == ("c", "ops", "d:2222", "root", 2222)


def test_unparsable_node_set_raises_a_config_error(tmp_path: Path):
    with pytest.raises(ConfigError):
        more_nodes(config(tmp_path, TWO), "c[1-")


def test_limit_of_a_stall_is_the_consoles_own_and_changes_no_node(tmp_path: Path):
    assert not changes(tmp_path, TWO, "[watch]\nstall_s = 5\n" + TWO).changed


@pytest.mark.parametrize(("key", "text"), [("locals", '["step", "self.step"]'), ("every_s", "2"), ("stall_s", "5")])
def test_changed_watch_setting_is_followed_without_a_reconnect(tmp_path: Path, key: str, text: str):
    assert changes(tmp_path, TWO, f"[watch]\n{key} = {text}\n" + TWO) == Changes(followed=(f"watch.{key}",))


def test_every_watch_setting_is_followed_or_named_as_one_for_the_next_start(tmp_path: Path):
    old = config(tmp_path, TWO)
    for name in WatchConfig.__struct_fields__:
        value = getattr(old.watch, name)
        other = value + 1 if isinstance(value, float) else not value if isinstance(value, bool) else ("x",)
        found = difference(old, replace(old, watch=replace(old.watch, **{name: other})))
        assert f"watch.{name}" in (*found.followed, *found.next_start)


def test_hang_settings_of_the_console_are_named_as_ones_for_the_next_start(tmp_path: Path):
    found = changes(tmp_path, TWO, "[hang]\nmin_frozen_s = 2\n" + TWO)
    assert found == Changes(next_start=("hang.min_frozen_s",))
