"""Prometheus exposition of a store: names, units, and no stale series."""

from __future__ import annotations

import pytest
from full_store import NOW, UUID, everything, with_every_figure
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from gconsole.core.control import ActiveRecording
from gconsole.core.store import Store
from gconsole.records import Gpu, GpuInfo, Host, Inventory, NodeState, Rank, RankStat
from gconsole.web.exposition import OPENMETRICS, PLAIN, labels, wanted_format
from gconsole.web.resources.metrics import MAX_JOBS, STALE_NS, exposition, take_snapshot

SECOND = 10**9
RECORDING = ActiveRecording("evening", NOW, 7, 4096)


def text_of(store: Store, media: str = OPENMETRICS, now: int = NOW) -> str:
    return b"".join(exposition(take_snapshot(store, [RECORDING], now), media)).decode()


def read(store: Store, now: int = NOW) -> dict[str, Metric]:
    return {family.name: family for family in openmetrics(text_of(store, now=now))}


def value(found: dict[str, Metric], name: str, **wanted: str) -> float:
    [sample] = [one for one in found[name].samples if wanted.items() <= one.labels.items()]
    return sample.value


def test_metrics_are_exported_in_base_units() -> None:
    found = read(everything())
    assert value(found, "gconsole_gpu_utilization_ratio") == 0.015, "1.5 %"
    assert value(found, "gconsole_gpu_sm_clock_hertz") == 1.5e6, "1.5 MHz"
    assert value(found, "gconsole_gpu_memory_bytes") == 80 << 30
    assert value(found, "gconsole_clock_offset_seconds") == 2e-9, "2 ns"
    assert value(found, "gconsole_gpu_ecc_errors", type="uncorrected") == 2
    assert found["gconsole_gpu_energy_joules"].samples[0].name == "gconsole_gpu_energy_joules_total"
    assert found["gconsole_gpu_power_watts"].samples[0].labels == {"node": "node1", "gpu": "0", "uuid": UUID}
    assert value(found, "gconsole_recording_bytes", session="evening") == 4096


def test_rank_gpu_and_job_series_share_the_job_name_label() -> None:
    found = read(everything())
    assert value(found, "gconsole_gpu_rank", uuid=UUID, job="train-1", rank="0") == 1
    assert value(found, "gconsole_rank_step", job="train-1", rank="0", node="node1") == 2
    assert value(found, "gconsole_job_state", job="train-1", state="running") == 1


def test_plain_and_openmetrics_formats_have_the_same_series() -> None:
    store = everything()
    new = {sample.name for family in openmetrics(text_of(store)) for sample in family.samples}
    old = {sample.name for family in plain(text_of(store, PLAIN)) for sample in family.samples}
    assert new == old and len(new) > 60
    assert "# EOF" not in text_of(store, PLAIN)


@pytest.mark.parametrize(
    ("accept", "media"),
    [("", PLAIN), ("*/*", PLAIN), ("text/plain", PLAIN), ("application/openmetrics-text; version=1.0.0", OPENMETRICS),
     ("text/plain;q=0.1, Application/OpenMetrics-Text;q=0.9", OPENMETRICS)],
)  # fmt: skip
def test_exposition_format_follows_the_accept_header(accept: str, media: str) -> None:
    assert wanted_format(accept) == media


def test_stale_metrics_are_not_exported_while_the_node_is_up() -> None:
    found = read(everything(), NOW + STALE_NS)
    assert "gconsole_gpu_power_watts" not in found and "gconsole_node_load1" not in found
    assert "gconsole_rank_step" not in found and "gconsole_nic_up" not in found
    assert value(found, "gconsole_node_up") == 1, "its connection state is exported"


def test_lost_node_exports_only_its_up_metric() -> None:
    store = everything()
    store.apply([NodeState(node="node1", state="lost", rx=NOW)])
    found = read(store)
    assert value(found, "gconsole_node_up") == 0
    names = {name for name in found if found[name].samples and "node" in found[name].samples[0].labels}
    assert names == {"gconsole_node_up"}


def test_lost_gpu_is_exported_as_down_without_other_metrics() -> None:
    store = everything()
    store.apply([with_every_figure(GpuInfo, index=0, uuid=UUID, lost="GPU is lost")])
    found = read(store)
    assert value(found, "gconsole_gpu_up") == 0
    assert "gconsole_gpu_power_watts" not in found


def test_unusable_gpu_is_exported_as_down_without_other_metrics() -> None:
    store = everything()
    store.apply([with_every_figure(GpuInfo, index=0, uuid=UUID, lost=None, unusable="the GPU requires a reset")])
    found = read(store)
    assert value(found, "gconsole_gpu_up") == 0
    assert "gconsole_gpu_power_watts" not in found


def test_node_whose_driver_is_broken_exports_no_usable_gpus_and_the_reason() -> None:
    store = everything()
    assert "gconsole_node_gpus" not in read(store), "its agent has not counted them"
    store.apply([Inventory(node="node1", of="gpu", count=1, installed=2, missing=("0000:17:00.0",), rx=NOW)])
    found = read(store)
    assert value(found, "gconsole_node_gpus", node="node1") == 1
    assert value(found, "gconsole_node_gpus_expected", node="node1") == 2
    assert "gconsole_node_gpu_fault" not in found

    mismatch = {"fault": "gpu_driver_mismatch", "text": "version mismatch", "try_": "reboot the node"}
    store.apply([Inventory(node="node1", of="gpu", count=None, installed=2, rx=NOW, **mismatch)])
    found = read(store)
    assert value(found, "gconsole_nodes", state="ok") == value(found, "gconsole_node_up") == 1, "its connection"
    assert value(found, "gconsole_node_gpus", node="node1") == 0
    assert value(found, "gconsole_node_gpus_expected", node="node1") == 2
    assert value(found, "gconsole_node_gpu_fault", node="node1", fault="gpu_driver_mismatch") == 1


def test_gpu_whose_calls_hang_is_exported_as_down_while_its_node_reports() -> None:
    store = everything()
    store.apply([with_every_figure(Host, rx=NOW + 4 * SECOND)])
    found = read(store, NOW + 4 * SECOND)
    assert value(found, "gconsole_node_up") == 1
    assert value(found, "gconsole_gpu_up") == 0
    assert "gconsole_gpu_power_watts" not in found


def test_exited_rank_exports_no_step_series() -> None:
    store = everything()
    store.apply([Rank(node="node1", job="train-1@10.0.0.1:29500", rank=0, pid=7, start_ticks=5, source="environ",
                      status="exited", rx=NOW)])  # fmt: skip
    assert "gconsole_rank_step" not in read(store)


def test_processes_claiming_the_same_rank_export_one_series() -> None:
    store = everything()
    for pid in (8, 9):
        process = {"job": "train-1@10.0.0.1:29500", "rank": 0, "pid": pid, "start_ticks": 5}
        store.apply([with_every_figure(Rank, source="environ", **process),
                     with_every_figure(RankStat, state="moving", **process)])  # fmt: skip
    assert len(read(store)["gconsole_rank_step"].samples) == 1


@pytest.mark.slow
def test_number_of_exported_jobs_is_bounded() -> None:
    store = everything()
    store.apply([
        with_every_figure(Rank, job=f"job{number}", rank=0, pid=number + 10, start_ticks=1, source="environ")
        for number in range(1000)
    ])  # fmt: skip
    assert len(read(store)["gconsole_job_ranks_found"].samples) <= MAX_JOBS


NAMES = ['a"b', "a\\b", "a\nb", "a\x1b[31mb", "}", "ü", "\u202eevil", "x" * 10_000, '{le="1"}']


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_gpu_name_leaves_the_exposition_parsable(name: str) -> None:
    store = everything()
    store.apply([with_every_figure(GpuInfo, index=0, uuid=UUID, name=name)])
    found = read(store)
    assert len(found["gconsole_gpu"].samples[0].labels["name"]) <= 200
    assert value(found, "gconsole_gpu_power_watts") == 1.5
    assert "\x1b" not in text_of(store) and "\x1b" not in labels(x=name)


def test_unmeasured_metric_is_omitted_and_a_measured_zero_is_exported() -> None:
    store = everything()
    store.apply([Gpu(node="node1", agent="a" * 16, rx=NOW, index=0, uuid=UUID, power_w=0.0)])
    found = read(store)
    assert value(found, "gconsole_gpu_power_watts") == 0.0, "measured"
    assert "gconsole_gpu_temperature_celsius" not in found
