"""GPUs in the report: coverage, faults of the driver, and figures that no longer arrive."""

from __future__ import annotations

import msgspec
import pytest

from gconsole.core.store import Store
from gconsole.monitor.coverage import is_reported
from gconsole.records import AgentCost, Gpu, GpuInfo, Host, Inventory, Node, NodeState, Record
from gconsole.report import exit_code, make_report

SECOND = 10**9


def a_store(*records: Record, rx: int = 0) -> Store:
    store = Store()
    node = Node(rx=rx, node="n1", agent="a", hostname="n1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11",
                uid=0, pid=1, sample_interval_ms=1000)  # fmt: skip
    store.apply([NodeState(node="n1", state="ok"), node, *records])
    return store


def test_figures_that_no_longer_arrive_are_null_with_their_age():
    store = a_store(
        GpuInfo(node="n1", index=0, uuid="u", name="H100"), Gpu(node="n1", index=0, uuid="u", util_pct=97.0, rx=SECOND)
    )

    store.apply([Host(node="n1", rx=4 * SECOND)])
    assert make_report(store).gpus[0].util_pct == 97
    store.apply([Host(node="n1", rx=5 * SECOND)])
    (line,) = make_report(store).gpus
    assert (line.util_pct, line.stale_s, line.name) == (None, 4.0, "H100")


@pytest.mark.parametrize(("inventories", "code"), [
    ([Inventory(node="n1", of="gpu", count=1), Inventory(node="n1", of="nic", count=0)], 0),
    ([Inventory(node="n1", of="nic", count=0)], 3),  # the GPUs have neither reported nor failed
    ([Inventory(node="n1", of="gpu", fault="gpu_starting", installed=1), Inventory(node="n1", of="nic", count=0)], 3),
    ([], 0),  # recorded by a version without inventories
])  # fmt: skip
def test_node_whose_gpus_are_unknown_makes_the_run_partial(inventories, code):
    info = GpuInfo(node="n1", index=0, uuid="u")

    assert exit_code(make_report(a_store(info, *inventories))) == code


def test_reason_and_coverage_of_a_broken_driver_are_in_the_line_of_its_node():
    fault = Inventory(node="n1", of="gpu", installed=8, fault="gpu_driver_mismatch", text="mismatch", try_="reboot")

    (line,) = make_report(a_store(fault)).nodes
    assert line.gpu_fault is not None
    assert (line.gpu_fault.name, line.gpu_fault.try_) == ("gpu_driver_mismatch", "reboot")
    assert (line.gpus_expected, line.gpus_seen) == (8, 0)
    assert "GPUs" in line.awaits

    (line,) = make_report(a_store(msgspec.structs.replace(fault, installed=0))).nodes
    assert line.gpus_expected is None, "sysfs lists none, as in some containers, and a driver is loaded"


def test_node_has_reported_once_all_its_devices_have_or_its_driver_is_broken():
    none = [Inventory(node="n1", of=of, count=0) for of in ("link", "nic")]
    info, one = GpuInfo(node="n1", index=0, uuid="u"), Inventory(node="n1", of="gpu", count=1)

    def of_gpus(fault: str) -> Inventory:
        return Inventory(node="n1", of="gpu", fault=fault, installed=8)

    assert is_reported(a_store(info, one, *none))
    assert not is_reported(a_store(info, one, none[1])), "its topology links are awaited"
    assert not is_reported(a_store(one, *none)), "its GPU is awaited"
    assert not is_reported(a_store(of_gpus("gpu_starting"), *none))
    assert is_reported(a_store(of_gpus("gpu_driver_mismatch")))
    assert is_reported(a_store(one, NodeState(node="n1", state="lost"))), "nothing more can arrive"
    assert is_reported(a_store()), "of a version without inventories"


def test_node_whose_agent_has_sent_no_full_sample_yet_awaits_its_gpus():
    store = a_store(rx=SECOND)

    assert not is_reported(store)
    assert exit_code(make_report(store)) == 3
    store.apply([AgentCost(node="n1", cpu_pct=0.1, sample_interval_ms=1000, rx=2 * SECOND)])
    assert is_reported(store), "of a version without inventories"


def test_missing_gpus_count_as_expected():
    counted = Inventory(node="n1", of="gpu", count=1, installed=2, missing=("0000:17:00.0",))

    (line,) = make_report(a_store(GpuInfo(node="n1", index=0, uuid="u"), counted)).nodes
    assert (line.gpus_expected, line.gpus_seen) == (2, 1)


def test_lost_and_unusable_gpus_have_reported_and_are_not_seen():
    infos = [GpuInfo(node="n1", index=0, uuid="u"), GpuInfo(node="n1", index=1, uuid="v", lost="GPU is lost"),
             GpuInfo(node="n1", index=2, uuid="w", unusable="the GPU requires a reset")]  # fmt: skip
    (line,) = make_report(a_store(*infos, Inventory(node="n1", of="gpu", count=3))).nodes

    assert (line.gpus_expected, line.gpus_seen) == (3, 1)
    assert "GPU" not in " ".join(line.awaits)


def test_gpus_of_a_driver_that_broke_are_not_seen_any_more():
    broken = Inventory(node="n1", of="gpu", installed=1, fault="gpu_hung", text="no answer")
    (line,) = make_report(a_store(GpuInfo(node="n1", index=0, uuid="u"), broken)).nodes

    assert (line.gpus_expected, line.gpus_seen) == (1, 0)
