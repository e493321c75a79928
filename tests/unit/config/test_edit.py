"""Edits of hosts.toml preserve comments and order; a failed edit changes nothing."""

import os
import stat
from pathlib import Path

import pytest
import tomli
from ClusterShell import NodeSet as clustershell
from ClusterShell.NodeUtils import GroupResolver, GroupSource
from hypothesis import given
from hypothesis import strategies as st

from gconsole.config import ConfigError, edit, load

FILE = """\
# the pod, as racked in May
[ssh]      # see the wiki
user   = "ops"

# the big ones
[[nodes]]
hosts = "node[001-004]"   # two switches
tags = [ "a",  # first
         "b" ]

# borrowed from team B; do not reboot
[[nodes]]
port = 2222
hosts = 'gpu-a'  # single quotes

# at the end
[agent]
linger_s = 5  # enough
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(FILE)
    return tmp_path


def text() -> str:
    return Path("hosts.toml").read_bytes().decode()


def names() -> list[str]:
    return [node.name for node in load("hosts.toml", environ={}).nodes]


def refusal(call, *arguments) -> str:
    before = text()
    with pytest.raises(ConfigError) as caught:
        call("hosts.toml", *arguments)
    assert text() == before
    assert list(Path().iterdir()) == [Path("hosts.toml")]
    return str(caught.value)


def test_added_entry_is_appended_and_nothing_else_changes(here):
    assert edit.add("hosts.toml", "new[1-2]", {"port": 2200, "tags": ("x", "y"), "user": None, "address": None}) == 2
    assert text() == FILE + '\n[[nodes]]\nhosts = "new[1-2]"\nport = 2200\ntags = ["x", "y"]\n'
    assert names()[-2:] == ["new1", "new2"]


def test_an_entry_with_an_address_keeps_it(here):
    edit.add("hosts.toml", "six", {"address": "::1", "python": "/opt/py/bin/python3"})
    node = load("hosts.toml", environ={}).nodes[-1]
    assert (node.address, node.agent.python) == ("::1", "/opt/py/bin/python3")


def test_the_first_entry_can_be_added_to_a_file_without_any(here):
    (here / "hosts.toml").write_text("# nothing yet")
    edit.add("hosts.toml", "a", {})
    assert text() == '# nothing yet\n\n[[nodes]]\nhosts = "a"\n'


def test_windows_line_ends_are_kept(here):
    (here / "hosts.toml").write_bytes(FILE.replace("\n", "\r\n").encode())
    edit.add("hosts.toml", "new", {"port": 7})
    edit.remove("hosts.toml", "gpu-a")
    assert "\r\n" in text()
    assert "\n" not in text().replace("\r\n", "")
    assert names()[-1] == "new"


def test_removing_one_host_of_a_range_rewrites_only_that_range(here):
    assert edit.remove("hosts.toml", "node002") == 1
    assert text() == FILE.replace('"node[001-004]"', '"node[001,003-004]"')


def test_removing_the_last_host_removes_the_entry_and_leaves_the_comments_around_it(here):
    edit.remove("hosts.toml", "gpu-a")
    assert text() == FILE.replace("[[nodes]]\nport = 2222\nhosts = 'gpu-a'  # single quotes\n", "")


def test_entry_with_a_multi_line_last_value_is_removed_completely(here):
    edit.remove("hosts.toml", "node[001-004]")
    assert text() == FILE[: FILE.index("[[nodes]]")] + FILE[FILE.index("\n# borrowed") :]


def test_hosts_of_several_entries_are_removed_at_once(here):
    edit.add("hosts.toml", "new[1-3]", {})
    assert edit.remove("hosts.toml", "node[002-003],gpu-a,new2") == 4
    assert names() == ["node001", "node004", "new1", "new3"]
    assert [line for line in FILE.splitlines() if "#" in line and line not in text()] == [
        'hosts = "node[001-004]"   # two switches', "hosts = 'gpu-a'  # single quotes",
    ]  # fmt: skip
    assert '"node[001,004]"   # two switches\n' in text()


def test_the_order_of_names_within_an_entry_is_kept(here):
    (here / "hosts.toml").write_text('[[nodes]]\nhosts = "z[1-3], a[1-2],ops@m[1-2]:22"\n')
    edit.remove("hosts.toml", "a1,m1:22")
    assert text() == '[[nodes]]\nhosts = "z[1-3],a2,ops@m2:22"\n'


def test_group_keeps_its_name_and_excludes_the_removed_nodes(here):
    class Table(GroupSource):
        def resolv_map(self, group):
            return "node[001-004]"

    clustershell.set_std_group_resolver(GroupResolver(Table("table")))
    try:
        (here / "hosts.toml").write_text('[[nodes]]\nhosts = "@rack1"\n')
        edit.remove("hosts.toml", "node[002-003]")
        assert text() == '[[nodes]]\nhosts = "@rack1!node[002-003]"\n'
        assert names() == ["node001", "node004"]
    finally:
        clustershell.set_std_group_resolver(None)


def test_entries_written_as_inline_tables_are_edited_too(here):
    (here / "hosts.toml").write_text('nodes = [\n  { hosts = "a[1-2]" },  # first\n  { hosts = "b" },\n]\n# end\n')
    edit.add("hosts.toml", "c", {"port": 7})
    edit.remove("hosts.toml", "a1,b")
    assert names() == ["a2", "c"]
    assert '{ hosts = "a2" },  # first\n' in text()
    assert text().endswith("# end\n")


def test_invalid_entry_is_rejected_and_not_written(here):
    assert refusal(edit.add, "gpu-a", {}) == (
        "hosts.toml:21: nodes.hosts: duplicate node gpu-a (first at hosts.toml:14)"
    )
    assert refusal(edit.add, "n[3-1]", {}) == 'hosts.toml:21: nodes.hosts: invalid range "3-1" (start > end)'
    assert refusal(edit.add, "n", {"port": 0}) == "hosts.toml:22: ssh.port: must be 1 to 65535, is 0"
    assert refusal(edit.add, "n[1-2]", {"address": "::1"}) == (
        "hosts.toml:22: nodes.address: an address belongs to one node, this entry has 2"
    )


def test_removing_unknown_invalid_or_all_nodes_is_rejected(here):
    assert refusal(edit.remove, "node[004-006]") == "hosts.toml: has no node node[005-006]"
    assert refusal(edit.remove, "node[") == 'hosts: unclosed "[" in "["'
    assert refusal(edit.remove, "node[001-004],gpu-a") == (
        "hosts.toml: nodes: no node would be left; remove the file instead"
    )


def test_symlink_and_file_mode_are_kept(here):
    (here / "real").mkdir()
    (here / "hosts.toml").rename(here / "real" / "pod.toml")
    (here / "real" / "pod.toml").chmod(0o640)
    (here / "hosts.toml").symlink_to("real/pod.toml")
    edit.remove("hosts.toml", "gpu-a")
    assert (here / "hosts.toml").is_symlink()
    assert stat.S_IMODE((here / "real" / "pod.toml").stat().st_mode) == 0o640
    assert list((here / "real").iterdir()) == [here / "real" / "pod.toml"]
    assert "gpu-a" not in text()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(here, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert refusal(edit.add, "n", {}) == "hosts.toml: cannot be written (No space left on device)"


def test_a_file_that_does_not_load_is_not_edited(here):
    (here / "hosts.toml").write_text("[ssh]\nusr = 1\n")
    assert refusal(edit.remove, "a") == "hosts.toml:2: ssh.usr: unknown key (did you mean user?)"


comments = st.lists(st.sampled_from(["", "# a", "  # [[nodes]]", "#hosts = 'z'"]), max_size=3)
entries = st.tuples(
    comments,
    st.integers(1, 4),
    st.lists(st.sampled_from(["port = 7 # p", "  user='u'", "tags = [ 'x',\n 'y' ]", "# inside"]), unique=True),
    st.booleans(),
)


@pytest.mark.slow
@given(st.lists(entries, min_size=1, max_size=4), comments, st.data())
def test_removing_any_hosts_keeps_every_comment_outside_the_removed_entries(tmp_path_factory, drawn, tail, data):
    lines, every = ["[ssh]", "port = 1"], []
    for number, (above, count, own, hosts_first) in enumerate(drawn):
        hosts = [f'hosts = "n{number}x[1-{count}]"  # of {number}']
        lines += [*above, "[[nodes]]", *(hosts + own if hosts_first else own + hosts)]
        every += [f"n{number}x{index}" for index in range(1, count + 1)]
    path = tmp_path_factory.getbasetemp() / "edited.toml"
    path.write_text("\n".join([*lines, *tail]))
    leaving = data.draw(st.sets(st.sampled_from(every), min_size=1))
    if len(leaving) == len(every):
        return
    edit.remove(str(path), ",".join(sorted(leaving)))
    assert [node.name for node in load(str(path), environ={}).nodes] == [name for name in every if name not in leaving]
    outside = [line for above, *_ in drawn for line in above if line] + [line for line in tail if line]
    kept = path.read_text().splitlines()
    assert all(kept.count(line) >= outside.count(line) for line in outside)
    assert len(tomli.loads(path.read_text())["nodes"]) <= len(drawn)
