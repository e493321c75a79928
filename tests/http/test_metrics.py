"""Prometheus metrics: valid OpenMetrics text, current values only, with bounded memory over many scrapes."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable

import pytest
from api_client import Api, until
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from rig import Rig

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
SCRAPES, CLIENTS = 1000, 4


def scrape(api: Api) -> dict[str, Metric]:
    """Metric families by name, parsed by Prometheus' own OpenMetrics parser."""
    response = api.request("GET", "/metrics", Accept=OPENMETRICS)
    assert response.status == 200 and response.headers["content-type"].startswith("application/openmetrics-text")
    return {family.name: family for family in openmetrics(response.body.decode())}


def label_values(family: Metric | None, label: str) -> set[str]:
    return {sample.labels[label] for sample in family.samples} if family else set()


def test_both_prometheus_formats_parse_to_the_same_metrics(api: Api) -> None:
    until(lambda: len(label_values(scrape(api).get("gconsole_gpu_power_watts"), "uuid")) == 16)
    families = scrape(api)
    power, cpu_seconds = families["gconsole_gpu_power_watts"], families["process_cpu_seconds"]
    assert (power.type, power.unit) == ("gauge", "watts")
    assert power.samples[0].labels.keys() == {"node", "gpu", "uuid"}
    assert (cpu_seconds.type, cpu_seconds.samples[0].name) == ("counter", "process_cpu_seconds_total")
    response = api.request("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    until(lambda: _names(scrape(api).values()) == _names(plain(api.request("GET", "/metrics").body.decode())))


def _names(families: Iterable[Metric]) -> set[str]:
    """Sample names; values differ between scrapes, and new names may appear."""
    return {sample.name for family in families for sample in family.samples}


def test_metric_names_end_with_their_unit_and_ratios_are_0_to_1(api: Api) -> None:
    units = ("ratio", "bytes", "watts", "joules", "celsius", "hertz", "seconds", "bytes_per_second")
    for family in scrape(api).values():
        if family.name.endswith(units) or family.unit:
            assert family.unit and family.name.endswith(family.unit), family.name
        if family.unit == "ratio" and not any(part in family.name for part in ("agent", "rank", "drift")):
            assert all(0 <= sample.value <= 1 for sample in family.samples), family.name


def test_series_of_a_disconnected_node_end_and_resume(changing_api: Api, rig: Rig) -> None:
    api = changing_api
    rig.nodes[3].down()
    try:
        until(lambda: label_values(scrape(api).get("gconsole_gpu_power_watts"), "node") == {"node1", "node2", "node3"})
        up = {sample.labels["node"]: sample.value for sample in scrape(api)["gconsole_node_up"].samples}
        assert up == {"node1": 1, "node2": 1, "node3": 1, "node4": 0}
    finally:
        rig.nodes[3].up()
    api.request("DELETE", "/nodes/node4")
    until(lambda: label_values(scrape(api)["gconsole_node_up"], "node") == {"node1", "node2", "node3"})
    api.post("/nodes", {"nodes": "node4"}, status=202)
    until(lambda: "node4" in label_values(scrape(api).get("gconsole_gpu_power_watts"), "node"))
    api.until_connected(4)


def test_a_thousand_concurrent_scrapes_get_complete_responses(api: Api, record_property: pytest.Function) -> None:
    def scrape_often(number: int) -> Iterable[bytes]:
        return [api.request("GET", "/metrics", Accept=OPENMETRICS).body[-6:] for _ in range(number)]

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        ends = [end for batch in clients.map(scrape_often, [SCRAPES // CLIENTS] * CLIENTS) for end in batch]
    assert ends == [b"# EOF\n"] * SCRAPES
