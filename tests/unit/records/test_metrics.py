"""Metric catalogue: every field exists, and names are unambiguous."""

from __future__ import annotations

from collections import Counter

import pytest

from gconsole.records import Gpu, GpuInfo, Host, Node, Record
from gconsole.records.metrics import CATALOGUE, GPU, HEAT, HISTORY, Metric, by_name, fields_for, memory_pct

ROWS = [(struct, metric) for struct, metrics in CATALOGUE.items() for metric in metrics]


@pytest.mark.parametrize(("struct", "metric"), ROWS, ids=lambda row: getattr(row, "name", getattr(row, "__name__", "")))
def test_each_metric_is_a_field_of_its_record_or_derived(struct: type[Record], metric: Metric):
    assert (metric.field in struct.__struct_fields__) != (metric.derive is not None)
    if metric.plot is not None and metric.plot.limit:
        assert metric.plot.limit in GpuInfo.__struct_fields__
    if metric.uses:
        assert metric.field, "only fields are stored, exported and compared"


@pytest.mark.parametrize("struct", CATALOGUE, ids=lambda struct: struct.__name__)
def test_names_filters_and_prometheus_names_occur_once(struct: type[Record]):
    metrics = CATALOGUE[struct]
    filters = [name for metric in metrics if metric.filter for name in (metric.filter.name or metric.name,)]
    series = [(metric.prometheus.name, metric.prometheus.label) for metric in metrics if metric.prometheus]
    for names in ([metric.name for metric in metrics], filters, series):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_derived_metric_is_unknown_when_an_input_is_unknown():
    gpu, info = Gpu(index=0, uuid="GPU-a", mem_used_bytes=20), GpuInfo(index=0, uuid="GPU-a", mem_total_bytes=80)
    memory = by_name(GPU)["mem"]
    assert memory.read(gpu, info) == 25.0
    assert memory.read(gpu, None) is None and memory.read(None, info) is None and memory_pct(None, info) is None
    traffic = by_name(GPU)["nvlink"]
    assert traffic.read(gpu) is None
    gpu.nvlink_rx_bytes_s = 2e9
    assert traffic.read(gpu) == 2.0


def test_the_heat_map_offers_its_metrics_in_a_fixed_order():
    names = ["util", "memory", "power", "temperature", "clock", "nvlink", "pcie", "throttle"]
    assert [metric.heat.name for metric in HEAT if metric.heat] == names


def test_history_keeps_fields_by_kind():
    assert HISTORY["nic"] == ("rx_bytes_s", "tx_bytes_s") and len(HISTORY["gpu"]) == 11
    assert fields_for(Gpu, "stat") == ("util_pct", "mem_used_bytes", "power_w", "temp_c")
    assert fields_for(Host, "trace") == (
        "cpu_pct", "mem_used_bytes", "io_stall_pct", "net_rx_bytes_s", "net_tx_bytes_s",
    )  # fmt: skip
    assert fields_for(Node, "stat") == ()
