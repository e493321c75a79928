"""Node sets: expansion, errors, and size limits checked before expansion."""

import os
import subprocess
import sys
import tracemalloc

import pytest
from ClusterShell import NodeSet as clustershell
from ClusterShell.NodeUtils import GroupResolver, GroupSource
from hypothesis import given
from hypothesis import strategies as st

from gconsole.config.nodeset import expand, fold
from gconsole.config.nodeset_parser import BadNodeSet


def names(text: str) -> list[str]:
    return [host.name for host in expand(text)]


def refusal(text: str) -> str:
    with pytest.raises(BadNodeSet) as caught:
        expand(text)
    near = caught.value.nearest
    return caught.value.text + (f" (did you mean {near}?)" if near else "")


@pytest.fixture
def groups():
    """ClusterShell's groups replaced by a table that the test fills."""
    table: dict[str, str] = {}

    class Table(GroupSource):
        def resolv_map(self, group):
            return table.get(group, "")

        def resolv_list(self):
            return list(table)

        def resolv_all(self):
            return ",".join(table.values())

    clustershell.set_std_group_resolver(GroupResolver(Table("table")))
    yield table
    clustershell.set_std_group_resolver(None)


def test_names_are_expanded_in_the_written_order():
    assert names("node[1-3],gpu-a, cpu[08-10/2,7] ") == [
        "node1", "node2", "node3", "gpu-a", "cpu08", "cpu10", "cpu7",
    ]  # fmt: skip


def test_several_ranges_in_one_name_give_their_cartesian_product():
    assert names("rack[1-2]-node[01-02]") == ["rack1-node01", "rack1-node02", "rack2-node01", "rack2-node02"]


def test_exclusions_and_intersections_follow_clustershell():
    assert names("node[1-4]!node[2-3]") == ["node1", "node4"]
    assert names("node[1-4]&node[3-9]") == ["node3", "node4"]
    assert names("node[1-2]^node[2-3]") == ["node1", "node3"]


def test_user_and_port_are_taken_from_the_name():
    (host,) = expand("ops@gpu-a:2222")
    assert (host.name, host.user, host.port, host.text) == ("gpu-a:2222", "ops", 2222, "ops@gpu-a:2222")


def test_ports_of_one_address_make_different_names():
    assert names("127.0.0.1:2201,127.0.0.1:2202") == ["127.0.0.1:2201", "127.0.0.1:2202"]


def test_a_user_alone_does_not_change_the_name():
    (host,) = expand("ops@gpu-a")
    assert (host.name, host.user, host.port) == ("gpu-a", "ops", None)


def test_a_bare_ipv6_address_is_a_name():
    (host,) = expand("fe80::1")
    assert (host.name, host.port) == ("fe80::1", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty node set"),
        ("  ", "empty node set"),
        ("node[]", "the range [] is empty"),
        ("node[1,,2]", "[1,,2] has an empty range"),
        ("node[3-1]", 'invalid range "3-1" (start > end)'),
        ("node[1-4", 'unclosed "[" in "[1-4"'),
        ("node1-4]", 'unmatched "]" in "node1-4]"'),
        ("node[1-[2]]", 'unclosed "[" in "[1-[2]]"'),
        ("node[a-c]", '"a-c" is not a range; use [1-8], [001-064,071] or [0-20/2]'),
        ("node[1-]", '"1-" is not a range; use [1-8], [001-064,071] or [0-20/2]'),
        ("node[001-64]", 'the ends of "001-64" must have the same number of digits'),
        ("node[1-9/0]", '"1-9/0" has a step of 0'),
        ("a,,b", 'a name is missing after "," in "a,,b"'),
        ("a,b,", 'a name is missing after "," in "a,b,"'),
        (",a", 'a name is missing before "," in ",a"'),
        ("a!", 'a name is missing after "!" in "a!"'),
        ("node1 node2", '"node1 node2" contains a space; separate names with ","'),
        ("-oProxyCommand", '"-oProxyCommand" begins with "-"; a name begins with a letter, a digit or "_"'),
        ("a,-v", '"-v" begins with "-"; a name begins with a letter, a digit or "_"'),
        ("a;reboot", '"a;reboot" contains ";", which a node name cannot contain'),
        ("knöten1", '"knöten1" contains "ö", which a node name cannot contain'),
        ("a/b", '"a/b" contains "/", which a node name cannot contain'),
        ("@$(reboot)", '"@$(reboot)" contains "$", which a node name cannot contain'),
        ("@@all", '"@@all" is not a group; use @name or @source:name'),
        ("[::1]:22", '"[::1]:22": IPv6 addresses are not supported here; give the node a name and set address = "…"'),
        ("::1", '"::1": IPv6 addresses are not supported here; give the node a name and set address = "…"'),
        ("gpu-a:ssh", '"gpu-a:ssh" is not a valid [user@]host[:port]'),
        ("gpu-a:0", '"gpu-a:0" is not a valid [user@]host[:port]'),
        ("gpu-a:65536", 'the port of "gpu-a:65536" must be 1 to 65535'),
        ("-x@gpu-a", '"-x@gpu-a" begins with "-"; a name begins with a letter, a digit or "_"'),
        ("x@-gpu", '"x@-gpu" is not a valid [user@]host[:port]'),
        ("node[1-3],node2", 'node2 occurs twice in "node[1-3],node2"'),
        ("node[1-3,2-3]", 'node[2-3] occurs twice in "node[1-3,2-3]"'),
        ("a@gpu,b@gpu", 'gpu occurs twice in "a@gpu,b@gpu"'),
        ("node5[9-10]", '"node5[9-10]": behind a digit, all numbers of a range must have the same number of digits'),
        ("node[1-3/2]5", '"node[1-3/2]5": a range with a step cannot stand before a digit'),
        ("node[1-2][3-4]", '"node[1-2][3-4]": two ranges need a letter, "-" or "." between them'),
        ("node[1-2]!node[1-2]", '"node[1-2]!node[1-2]" names no node'),
    ],
)
def test_invalid_node_set_is_rejected_with_one_sentence(text, message):
    assert refusal(text) == message


def test_name_over_the_host_name_length_limit_is_rejected():
    assert "is longer than a host name can be" in refusal("n" * 254)


@pytest.mark.parametrize(
    "text",
    [
        "node[0-999999999]", "node[0-" + "9" * 90 + "]", "a[0-9999]b[0-9999]c[0-9999]", "node[1-16385]",
        "a[1-16384],b", "node[1-999999999]!node1", "@rack[1-99999]",
    ],
)  # fmt: skip
def test_oversized_node_set_is_rejected_without_being_expanded(text):
    tracemalloc.start()
    try:
        message = refusal(text)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "more than 16,384 nodes" in message
    assert peak_bytes < 100_000


def test_largest_allowed_node_set_is_expanded():
    assert len(expand("node[00001-16384]")) == 16_384


def test_groups_are_resolved_and_support_exclusion_and_intersection(groups):
    groups |= {"rack1": "node[1-4]", "rack2": "node[5-8]", "both": "@rack1,@rack2", "drained": ""}
    assert names("@both!node3,login1") == ["login1", *(f"node{number}" for number in (1, 2, 4, 5, 6, 7, 8))]
    assert names("@rack[1-2]&@rack2") == names("@rack2")
    assert len(names("@rack1!@drained")) == 4


def test_overlapping_groups_are_merged(groups):
    groups |= {"gpu": "node[1-4]", "infiniband": "node[3-8]"}
    assert len(names("@gpu,@infiniband,node1")) == 8


def test_an_unknown_group_is_refused_with_the_nearest_known_one(groups):
    groups |= {"rack1": "node[1-4]"}
    assert refusal("@rakc1") == "unknown group @rakc1 (did you mean @rack1?)"
    assert refusal("login1,@rakc1") == "unknown group @rakc1 (did you mean @rack1?)"


def test_a_group_is_counted_before_it_is_expanded(groups):
    groups |= {"huge": "node[0-999999999]", "many": ",".join(f"@part{part}" for part in range(8))}
    groups |= {f"part{part}": f"p{part}n[1-16000]" for part in range(8)}
    assert refusal("@huge") == '"node[0-999999999]" names more than 16,384 nodes'
    assert "names too many nodes (limit 16,384)" in refusal("@many")


def test_group_that_resolves_to_an_ssh_option_is_rejected(groups):
    groups |= {"evil": "-oProxyCommand=reboot"}
    assert 'contains "="' in refusal("@evil")


def test_group_that_contains_itself_is_rejected(groups):
    groups |= {"a": "@b", "b": "@a"}
    assert refusal("@a") == '"@a" cannot be read (a group contains itself)'


def test_groups_are_loaded_from_clustershell_configuration_files(tmp_path):
    (tmp_path / "groups.conf").write_text("[Main]\ndefault: ours\nautodir: $CFGDIR\n")
    (tmp_path / "ours.yaml").write_text("ours:\n  rack1: 'gpu[01-03]'\n")
    program = "from gconsole.config import load; print(*[node.name for node in load('@rack1', environ={}).nodes])"
    seen = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "CLUSTERSHELL_CFGDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert seen.stdout.split() == ["gpu01", "gpu02", "gpu03"]


def test_folding_produces_padded_ranges():
    assert fold(f"node{number:03}" for number in [*range(1, 65), 71]) == "node[001-064,071]"
    assert fold([]) == ""


def test_names_that_cannot_be_folded_are_listed():
    assert fold(["[weird]", "x y"]) == "[weird],x y"


words = st.text("ab-._", min_size=0, max_size=3)
stems = st.tuples(st.sampled_from("abN_"), words).map("".join)
ranges = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 3), st.sampled_from([0, 3])).map(
    lambda drawn: (
        "-".join(str(number).zfill(drawn[3]) for number in (drawn[0], drawn[0] + drawn[1]))
        + (f"/{drawn[2]}" if drawn[2] > 1 else "")
    )
)
brackets = st.lists(ranges, min_size=1, max_size=2).map(lambda pieces: f"[{','.join(pieces)}]")
operands = st.one_of(
    stems,
    st.tuples(stems, brackets).map("".join),
    st.tuples(stems, brackets, st.sampled_from(["-", ".x"]), brackets).map("".join),
    st.tuples(stems, st.sampled_from(["1", "07"]), brackets).map("".join),
)
texts = st.lists(operands, min_size=1, max_size=3).map(",".join)


@pytest.mark.slow
@given(texts)
def test_plain_node_set_expands_as_in_clustershell(text):
    try:
        found = names(text)
    except BadNodeSet:
        return
    assert sorted(found) == sorted(clustershell.NodeSet(text, resolver=clustershell.RESOLVER_NOGROUP))


host_names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,12}(:[1-9][0-9]{0,3})?", fullmatch=True)


@pytest.mark.slow
@given(st.sets(host_names, min_size=1, max_size=40))
def test_expanding_what_was_folded_gives_the_same_names(given_names):
    assert set(names(fold(given_names))) == given_names


@given(st.text(max_size=30) | st.text("ab1-9[],/!&^@:.* ", max_size=20))
def test_any_text_gives_valid_names_or_one_error(text):
    try:
        found = expand(text)
    except BadNodeSet as error:
        assert error.text
        return
    assert found
    assert all(host.name[0].isalnum() or host.name[0] == "_" for host in found)
