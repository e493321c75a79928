"""GPUs and network ports in the report."""

from gconsole.core.store import Store
from gconsole.records import Gpu, GpuInfo, GpuProcess, Nic
from gconsole.report import make_report


def report_of(*records):
    store = Store()
    store.apply(records)
    return make_report(store).gpus


def test_gpus_are_sorted_by_node_and_index_with_metrics_and_ranks():
    lines = report_of(
        GpuInfo(node="n10", index=0, uuid="c"),
        GpuInfo(node="n2", index=1, uuid="b", name="H100", mem_total_bytes=80),
        GpuInfo(node="n2", index=0, uuid="z"),
        GpuInfo(node="n2", index=0, uuid="m", parent="z"),
        Gpu(node="n2", index=1, uuid="b", util_pct=97.0),
        GpuProcess(node="n2", index=1, uuid="b", pid=1, type="compute", rank=9),
        GpuProcess(node="n2", index=1, uuid="b", pid=2, type="mps", rank=8),
    )

    assert [(line.node, line.index, line.uuid) for line in lines] == [
        ("n2", 0, "z"), ("n2", 0, "m"), ("n2", 1, "b"), ("n10", 0, "c")]  # fmt: skip
    assert (lines[2].name, lines[2].util_pct, lines[2].ranks, lines[2].power_w) == ("H100", 97.0, [8, 9], None)


def test_network_ports_list_rdma_first_and_omit_removed_ports():
    store = Store()
    store.apply([Nic(node="n2", device=name, port=port, rdma=bool(port)) for name, port in (
        ("eth0", 0), ("mlx5_10", 1), ("mlx5_2", 1), ("mlx5_3", 1))])  # fmt: skip
    store.apply([Nic(node="n2", device="mlx5_3", port=1, rdma=True, state="gone")])

    assert [nic.device for nic in make_report(store).nics] == ["mlx5_2", "mlx5_10", "eth0"]


def test_lost_gpu_has_its_reason_and_no_earlier_metrics():
    (line,) = report_of(
        Gpu(node="n", index=3, uuid="a", util_pct=97.0), GpuInfo(node="n", index=3, uuid="a", lost="GPU is lost")
    )

    assert (line.lost, line.util_pct) == ("GPU is lost", None)
