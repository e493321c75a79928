"""NVLinks under an order of digests: a record of what has changed, and one a minute."""

from __future__ import annotations

from typing import Any

from gconsole_remote.agent.digests import HELD_LINK_S, LINK_S, Digester, Order

LINK = {"uuid": "GPU-1", "index": 0, "link": 3, "up": True, "crc_errors": 0}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def ns(self) -> int:
        return int(self.now_s * 1e9)


def records_of(*readings: dict[str, Any], every_s: float = 10.0, hold_s: float = 0.0) -> list[bool]:
    """For each reading of the link whether it has a record."""
    clock = Clock()
    order = Order({"kinds": ["gpu_link"], "period_s": 5, "hold_s": hold_s})
    digester = Digester(order, clock.ns, clock.ns)
    sent = []
    for reading in readings:
        sent.append(bool(digester.digest([("gpu_link", {**LINK, **reading})], 1.0)))
        clock.now_s += every_s
    return sent


def test_link_in_which_only_the_throughput_changes_has_a_record_a_minute():
    readings = [{"rx_bytes_s": float(number), "tx_bytes_s": 1.0} for number in range(14)]

    assert records_of(*readings) == [number % (LINK_S // 10) == 0 for number in range(14)]


def test_link_of_a_node_that_holds_records_back_has_one_every_five_minutes_and_at_each_change():
    readings: list[dict[str, Any]] = [{"rx_bytes_s": float(number)} for number in range(40)]
    readings[7]["up"] = readings[8]["up"] = False

    sent = records_of(*readings, hold_s=5.0)

    assert [number for number, is_sent in enumerate(sent) if is_sent] == [0, 7, 9, 9 + HELD_LINK_S // 10]


def test_change_of_a_link_has_a_record_at_once():
    states = [{}, {}, {"up": False}, {"up": False}, {"up": True, "crc_errors": 2, "grown": {"crc_errors": 2}}, {}]

    assert records_of(*states) == [True, False, True, False, True, True]


def test_other_links_and_other_kinds_are_sent():
    clock = Clock()
    digester = Digester(Order({"kinds": ["gpu_link"], "period_s": 5}), clock.ns, clock.ns)
    facts = [("gpu_link", LINK), ("gpu_link", {**LINK, "link": 4}), ("gpu", {"uuid": "GPU-1", "util_pct": 5.0})]

    assert digester.digest(facts, 1.0) == facts
    assert digester.digest(facts, 1.0) == facts[2:]
    assert digester.flush() == []
