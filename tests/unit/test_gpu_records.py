"""GPU records in the store."""

from gconsole.core.store import Store
from gconsole.records import Gpu, GpuEvent, GpuInfo, GpuLink, GpuProcess, Node, decode, encode


def test_store_keeps_current_gpu_links_and_processes_and_lists_gpu_events():
    store = Store()
    store.apply([
        GpuInfo(node="n", index=0, uuid="a", unsupported={"fan_pct": "Not Supported"}),
        GpuLink(node="n", index=0, uuid="a", link=3, up=True),
        GpuProcess(node="n", index=0, uuid="a", pid=7, type="compute", rank=2),
        GpuEvent(node="n", index=0, uuid="a", event="xid", severity="error", text="fell off", xid=79),
    ])  # fmt: skip
    store.apply([GpuLink(node="n", index=0, uuid="a", link=3, up=False)])

    assert store.gpu_links["n", "a", 3].up is False
    assert store.gpu_processes["n", "a", 7].rank == 2
    assert [record.xid for _, record in store.events] == [79]


def test_a_process_that_has_left_a_gpu_is_no_longer_on_it():
    store = Store()
    store.apply([GpuProcess(node="n", index=0, uuid="a", pid=7, type="compute")])
    store.apply([GpuProcess(node="n", index=0, uuid="a", pid=7, type="compute", gone=True)])

    assert len(store.gpu_processes) == 0


def test_new_agent_clears_the_gpu_state_of_its_node():
    def node(agent):
        return Node(node="n", agent=agent, hostname="h", boot_id="b", kernel="k", arch="x", python="3", uid=0, pid=1,
                    sample_interval_ms=1000)  # fmt: skip

    store = Store()
    store.apply([node("1"), Gpu(node="n", index=0, uuid="a"), GpuLink(node="n", index=0, uuid="a", link=0),
                 GpuProcess(node="n", index=0, uuid="a", pid=7, type="mps")])  # fmt: skip
    store.apply([node("2")])

    assert (len(store.gpus), len(store.gpu_links), len(store.gpu_processes)) == (0, 0, 0)


def test_gpu_records_survive_encoding_and_decoding():
    for record in (
        GpuInfo(index=0, uuid="a", unsupported={"fan_pct": "Not Supported"}, mig_devices=("m",), lost="GPU is lost"),
        Gpu(index=0, uuid="a", grown={"pcie_replays": 2}, clocks_event_share_pct={"sw_power_cap": 12.5}),
        GpuLink(index=0, uuid="a", link=17, up=True, grown={"crc_errors": 1}),
        GpuEvent(event="xid", severity="warning", text="t", xid=94, source="kernel"),
        GpuProcess(index=0, uuid="a", pid=1, type="mps", rank_source="ns_pid"),
    ):
        assert decode(encode(record)) == record
