"""`config show`, `config init` and `hosts list`, and the same through the real program."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gconsole.cli.config import config, hosts
from gconsole.config import ConfigError, edit, load, schema, show
from gconsole.config.schema import init, starter_text

FILE = """\
[ssh]
user = "ops"
[[nodes]]
hosts = "node[001-064]"
[[nodes]]
hosts = "gpu-a,ops@gpu-b:22"
port = 2222
tags = ["rack3"]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(FILE)
    return tmp_path


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_every_value_is_shown_with_its_source(here):
    loaded = load("hosts.toml", environ={"GCONSOLE_AGENT_LINGER_S": "3"}, flags={"agent.run_as": "sudo"})
    shown = rows(show.config_text(loaded))
    assert ["cluster.name", '"hosts"', "default"] in shown
    assert ["ssh.user", '"ops"', "hosts.toml:2"] in shown
    assert ["agent.linger_s", "3", "GCONSOLE_AGENT_LINGER_S"] in shown
    assert ["agent.run_as", '"sudo"', "flag"] in shown
    assert ["ssh.jump", "unset", "default"] in shown
    assert [row[0] for row in shown[: len(schema.all_keys())]] == list(schema.all_keys())


def test_values_of_individual_nodes_are_shown_per_folded_node_set(here):
    text = show.config_text(load("hosts.toml", environ={}))
    assert "66 nodes: gpu-a,gpu-b:22,node[001-064]\n" in text
    assert text.split("\n\n")[2:] == [
        'gpu-a (1 node)\n  ssh.port  2222  hosts.toml:7',
        'gpu-a,gpu-b:22 (2 nodes)\n  nodes.tags  ["rack3"]  hosts.toml:8',
        'gpu-b:22 (1 node)\n  ssh.user  "ops"  hosts.toml:6\n  ssh.port  22     hosts.toml:6',
    ]  # fmt: skip


def test_config_data_is_json_serializable_and_includes_origins(here):
    shown = show.config_data(load("hosts.toml", environ={}))
    assert json.loads(json.dumps(shown)) == shown
    user = {"key": "ssh.user", "value": "ops", "origin": {"kind": "file", "place": "hosts.toml:2"}}
    assert user in shown["settings"]
    assert {"nodes": "gpu-a", "key": "ssh.port", "value": 2222,
            "origin": {"kind": "file", "place": "hosts.toml:7"}} in shown["node_settings"]  # fmt: skip
    assert len(shown["nodes"]) == 66


def test_entries_of_a_file_are_listed_as_folded_node_sets(here):
    assert show.entries_text(edit.entries("hosts.toml")) == (
        "HOSTS           NODES  FROM          OWN VALUES\n"
        "node[001-064]   64     hosts.toml:4\n"
        'gpu-a,gpu-b:22  2      hosts.toml:6  port = 2222, tags = ["rack3"]'
    )


def test_starter_file_loads_with_default_settings(tmp_path):
    init(str(tmp_path / "pod.toml"))
    loaded = load(str(tmp_path / "pod.toml"), environ={})
    bare = load("node[01-04]", environ={})
    assert [node.name for node in loaded.nodes] == ["node01", "node02", "node03", "node04"]
    assert (loaded.ssh, loaded.agent, loaded.console) == (bare.ssh, bare.agent, bare.console)


def test_every_line_of_the_starter_file_may_be_uncommented(tmp_path):
    lines = starter_text().replace('"node[01-04]"', '"node01"').splitlines()
    names = set(schema.overrides()) | {key.name for key in schema.all_keys().values()} | {"[[watch.rule]]"}
    names |= {name for entry in schema.ENTRIES for name in schema.keys(entry)}
    active = [line.removeprefix("# ") if line[2:].partition(" ")[0] in names else line for line in lines]
    (tmp_path / "hosts.toml").write_text("\n".join(active))
    loaded = load(str(tmp_path / "hosts.toml"), environ={})
    unset = [str(s.key) for s in loaded.settings if s.origin.kind == "default"]
    assert unset == []
    assert (loaded.nodes[0].address, loaded.nodes[0].tags) == ("10.1.2.3", ("rack3",))
    assert [placed.rule.name for placed in loaded.rules] == ["page"]


def test_existing_file_is_overwritten_by_init_only_with_force(here):
    with pytest.raises(ConfigError, match=r"^hosts\.toml: already exists; --force overwrites it$"):
        init("hosts.toml")
    assert (here / "hosts.toml").read_text() == FILE
    init("hosts.toml", overwrite=True)
    assert (here / "hosts.toml").read_text() == starter_text()
    with pytest.raises(ConfigError, match=r"^no/hosts\.toml: cannot be written \(No such file or directory\)$"):
        init("no/hosts.toml", overwrite=True)


def test_config_and_hosts_commands_show_init_add_remove_and_list(here):
    runner = CliRunner(env={"GCONSOLE_SSH_PRT": "1"}, catch_exceptions=False)
    shown = runner.invoke(config, ["show", "hosts.toml", "--set", "ssh.user=me"])
    assert ["ssh.user", '"me"', "flag"] in rows(shown.stdout)
    assert "GCONSOLE_SSH_PRT: unknown variable, ignored (did you mean GCONSOLE_SSH_PORT?)" in shown.stderr
    assert json.loads(runner.invoke(config, ["show", "a,b", "--json"]).stdout)["nodes"] == ["a", "b"]
    assert runner.invoke(config, ["init", "new.toml"]).exit_code == 0
    added = runner.invoke(hosts, ["add", "new.toml", "ops@x", "--port", "22", "--tag", "t", "--tag", "u"])
    assert added.stdout == "new.toml: 1 node added\n"
    assert runner.invoke(hosts, ["remove", "new.toml", "node[01-03]"]).stdout == "new.toml: 3 nodes removed\n"
    listed = runner.invoke(hosts, ["list", "new.toml"]).stdout
    assert [row[:2] for row in rows(listed)] == [["HOSTS", "NODES"], ["node04", "1"], ["x", "1"]]


def test_config_error_is_one_line_on_stderr_with_exit_code_2(here):
    (here / "hosts.toml").write_text('[ssh]\nusr = "x"\n')
    seen = subprocess.run(
        [sys.executable, "-c", "from gconsole.cli.main import main; main()", "config", "show", "hosts.toml"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (seen.returncode, seen.stdout) == (2, "")
    assert seen.stderr.endswith("hosts.toml:2: ssh.usr: unknown key (did you mean user?)\n")
    assert seen.stderr.count("\n") == 1
