"""Comparison of two sessions: each difference once, no equal values, metrics by their distribution."""

from contextlib import closing

import pytest
from session_builders import a_session

from gconsole.records import End, Finding, Gpu, GpuInfo, Link, Node
from gconsole.session.query import comparison
from gconsole.session.query.comparison import compare_sessions
from gconsole.session.query.worker import QueryWorkerClient


@pytest.fixture
def compare(tmp_path):
    """Compares two sessions of these records."""
    with closing(QueryWorkerClient()) as queries:

        def compare(a, b):
            sessions = []
            for name, records in (("x", a), ("y", b)):
                for seq, record in enumerate(records, 1):
                    record.agent, record.seq, record.rx = name, seq, seq
                sessions.append(a_session(tmp_path, records, name).path)
            return compare_sessions(*sessions, queries)

        yield compare


def node(name, **changes):
    facts = {"kernel": "5.15", "python": "3.10", **changes}
    return Node(node=name, hostname=name, boot_id="b", arch="x86_64", uid=0, pid=1, sample_interval_ms=1000, **facts)


def card(name, **changes):
    return GpuInfo(node=name, index=0, uuid=f"GPU-{name}", name="H100", driver="550.1", **changes)


def nvlink(name, number, **changes):
    ends = {"a": End(kind="gpu", id="GPU-0"), "b": End(kind="nvswitch", id=str(number))}
    return Link(node=name, type="nvlink", **ends, **changes)


def test_comparing_a_session_with_itself_finds_no_difference(compare):
    records = [node("a"), card("a"), Gpu(node="a", index=0, uuid="u", power_w=300.0)]
    found = compare(records, records)
    assert (found.nodes_only_a, found.nodes_only_b, found.changed) == ((), (), ())
    (figure,) = [figure for figure in found.figures if figure.name == "gpu.power_w"]
    assert figure.a == figure.b
    assert figure.a.median == 300.0


def test_nodes_versions_and_links_that_differ_are_named(compare):
    a = [node("a"), node("b"), card("a"), nvlink("a", 1), nvlink("a", 2)]
    links = [nvlink("a", 1), nvlink("a", 2), nvlink("a", 2, gone=True)]
    b = [node("a", kernel="6.1"), node("c"), card("a", vbios="96"), *links]
    found = compare(a, b)
    assert (found.nodes_only_a, found.nodes_only_b) == (("b",), ("c",))
    assert [(one.node, one.what, one.a, one.b) for one in found.changed] == [
        ("a", "gpu0 vbios", None, "96"), ("a", "kernel", "5.15", "6.1"), ("a", "nvlink links", "2", "1")
    ]  # fmt: skip


def test_findings_are_split_into_only_a_only_b_and_both(compare):
    def finding(id, *culprits):
        return Finding(id=id, severity="error", confidence="certain", culprits=culprits, text="x", first_seen=1)

    found = compare([finding("gpu_xid", "a:gpu0"), finding("slow")], [finding("slow"), finding("link_down")])
    assert found.findings_only_a == ("gpu_xid: a:gpu0",)
    assert found.findings_only_b == ("link_down",)
    assert found.findings_both == ("slow",)


def test_metric_spread_has_median_and_tail_percentiles_and_excludes_unknown_samples(compare):
    records = [Gpu(node="a", index=0, uuid="u", power_w=float(watts)) for watts in range(101)]
    records.append(Gpu(node="a", index=0, uuid="u", power_w=None))
    found = compare(records, [node("a")])
    (figure,) = found.figures
    assert (figure.a.samples, figure.a.median, figure.a.p95, figure.a.p99, figure.a.max) == (101, 50, 95, 99, 100)
    assert figure.b is None


def test_long_session_is_downsampled_without_biasing_its_median(compare, monkeypatch):
    monkeypatch.setattr(comparison, "KEPT", 1000)
    records = [Gpu(node="a", index=0, uuid="u", power_w=float(watts)) for watts in range(20_000)]
    (figure,) = compare(records, [node("a")]).figures
    assert (figure.a.samples, figure.a.max) == (20_000, 19_999)
    assert 8_000 < figure.a.median < 12_000
    assert figure.a.median != 9_999
