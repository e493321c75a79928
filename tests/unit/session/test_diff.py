"""Comparison of two sessions: each difference once, no equal values, metrics by their distribution."""

from gconsole.records import End, Finding, Gpu, GpuInfo, Link, Node
from gconsole.session.manage import diff
from gconsole.session.manage.diff import compare


def node(name, **changes):
    facts = {"kernel": "5.15", "python": "3.10", **changes}
    return Node(node=name, hostname=name, boot_id="b", arch="x86_64", uid=0, pid=1, sample_interval_ms=1000, **facts)


def card(name, **changes):
    return GpuInfo(node=name, index=0, uuid=f"GPU-{name}", name="H100", driver="550.1", **changes)


def nvlink(name, number, **changes):
    ends = {"a": End(kind="gpu", id="GPU-0"), "b": End(kind="nvswitch", id=str(number))}
    return Link(node=name, type="nvlink", **ends, **changes)


def test_comparing_a_session_with_itself_finds_no_difference():
    records = [node("a"), card("a"), Gpu(node="a", index=0, uuid="u", power_w=300.0)]
    found = compare("x", records, "y", records)
    assert (found.nodes_only_a, found.nodes_only_b, found.changed) == ((), (), ())
    (figure,) = [figure for figure in found.figures if figure.name == "gpu.power_w"]
    assert figure.a == figure.b
    assert figure.a.median == 300.0


def test_nodes_versions_and_links_that_differ_are_named():
    a = [node("a"), node("b"), card("a"), nvlink("a", 1), nvlink("a", 2)]
    links = [nvlink("a", 1), nvlink("a", 2), nvlink("a", 2, gone=True)]
    b = [node("a", kernel="6.1"), node("c"), card("a", vbios="96"), *links]
    found = compare("x", a, "y", b)
    assert (found.nodes_only_a, found.nodes_only_b) == (("b",), ("c",))
    assert [(one.node, one.what, one.a, one.b) for one in found.changed] == [
        ("a", "gpu0 vbios", None, "96"), ("a", "kernel", "5.15", "6.1"), ("a", "nvlink links", "2", "1")
    ]  # fmt: skip


def test_findings_are_split_into_only_a_only_b_and_both():
    def finding(id, *culprits):
        return Finding(id=id, severity="error", confidence="certain", culprits=culprits, text="x", first_seen=1)

    found = compare("x", [finding("gpu_xid", "a:gpu0"), finding("slow")], "y", [finding("slow"), finding("link_down")])
    assert found.findings_only_a == ("gpu_xid: a:gpu0",)
    assert found.findings_only_b == ("link_down",)
    assert found.findings_both == ("slow",)


def test_metric_spread_has_median_and_tail_percentiles_and_excludes_unknown_samples():
    records = [Gpu(node="a", index=0, uuid="u", power_w=float(watts)) for watts in range(101)]
    records.append(Gpu(node="a", index=0, uuid="u", power_w=None))
    found = compare("x", records, "y", [])
    (figure,) = found.figures
    assert (figure.a.samples, figure.a.median, figure.a.p95, figure.a.p99, figure.a.max) == (101, 50, 95, 99, 100)
    assert figure.b is None


def test_long_session_is_downsampled_without_biasing_its_median(monkeypatch):
    monkeypatch.setattr(diff, "KEPT", 1000)
    sampled = diff.Sampled()
    for value in range(50_000):
        sampled.add(float(value))
    spread = sampled.spread()
    assert (spread.samples, len(sampled.kept)) == (50_000, 1000)
    assert 22_000 < spread.median < 28_000
