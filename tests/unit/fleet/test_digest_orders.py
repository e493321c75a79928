"""Orders of digests: one for each change, none for agents that know nothing of them."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gconsole.config.model import Config
from gconsole.config.sections import AgentConfig, HealthConfig
from gconsole.core.wants import DIGESTED, EVERY_SAMPLE, Want, Wants
from gconsole.fleet.digest_orders import DigestOrders
from gconsole.monitor.digest_rules import digest_rules
from gconsole.records import GpuInfo, Rank
from gconsole.records.process import RankStatus
from gconsole.transport import errors
from gconsole_remote.agent.digests import Order

DEADLINE_S = 30.0


class FakeLink:
    """A node past its first tick; `refusal` is raised for each request."""

    def __init__(self, name: str, refusal: errors.FleetError | None = None, **agent: Any) -> None:
        self.node = SimpleNamespace(name=name, agent=AgentConfig(**{"digest_s": 5.0, **agent}))
        self.agent_id, self.refusal, self.hold_s = "a1", refusal, 0.0
        self.orders: list[dict[str, Any]] = []

    async def request(self, verb: str, args: dict[str, Any], deadline_s: float) -> Any:
        assert verb == "digest"
        self.orders.append(args)
        if self.refusal is not None:
            raise self.refusal
        Order(args)  # as the agent checks it
        return {"kinds": args["kinds"]}

    @property
    def kinds(self) -> list[list[str]]:
        return [order["kinds"] for order in self.orders]


ALL = sorted(DIGESTED)


def orders_for(*links: FakeLink, **health: Any) -> DigestOrders:
    config = Config(cluster="c", nodes=(), health=HealthConfig(**health))
    return DigestOrders(config, lambda: {link.node.name: link for link in links}, digest_rules)


async def until(condition) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE_S
        await asyncio.sleep(0.01)


async def idle(orders: DigestOrders) -> None:
    """Wait until nothing is to be sent."""
    await until(lambda: orders._timer is None and not orders._sending)


def info(**fields: Any) -> GpuInfo:
    return GpuInfo(**{"node": "n1", "index": 0, "uuid": "u0", "max_sm_clock_mhz": 1980.0, **fields})


async def test_each_change_of_a_merge_is_one_order():
    link = FakeLink("n1")
    orders = orders_for(link)
    orders.soon()
    await until(lambda: link.kinds == [ALL])
    await idle(orders)

    for node in ("n2", "n3"):
        orders.wants.put("view", [Want(frozenset({node}), DIGESTED, EVERY_SAMPLE)])
    orders.wants.put("recording a", [Want(None, frozenset({"gpu"}), 1.0)])
    orders.wants.put("scrape", [Want(None, DIGESTED, 0.1)])
    await idle(orders)
    assert link.kinds[1:] == [["gpu_link", "host", "nic"]], "n1 is not on the screen; the scrape is served by digests"
    orders.wants.put("view", [Want(frozenset({"n1"}), DIGESTED, EVERY_SAMPLE)])
    await idle(orders)
    assert link.kinds[2:] == [[]]
    orders.wants.put("view", [])
    orders.wants.put("recording a", [])
    await idle(orders)
    assert link.kinds[3:] == [ALL]
    await orders.stop()


async def test_thresholds_follow_the_limits_of_the_gpus_and_of_the_configuration():
    link = FakeLink("n1")
    orders = orders_for(link, busy_pct=40.0)
    orders.add_info(info(temp_slowdown_c=90.0))
    await until(lambda: link.orders)
    assert link.orders[0]["thresholds"]["temp_c"] == [87.0]
    assert link.orders[0]["thresholds"]["util_pct"] == [40.0, 90.0]
    await idle(orders)
    orders.add_info(info(temp_slowdown_c=90.0, serial="x"))
    await idle(orders)
    assert len(link.orders) == 1
    orders.follow(Config(cluster="c", nodes=(), health=HealthConfig(busy_pct=60.0)))
    await until(lambda: len(link.orders) == 2)
    assert link.orders[1]["thresholds"]["util_pct"] == [60.0, 90.0]
    await orders.stop()


async def test_agent_of_an_earlier_release_is_asked_once_and_keeps_sending_samples(caplog):
    old, new = FakeLink("n1", errors.AgentRefused("unknown_request", "unknown request 'digest'", "")), FakeLink("n2")
    orders = orders_for(old, new)
    orders.soon()
    await until(lambda: new.orders and old.orders)
    await idle(orders)
    orders.wants.put("view", [Want(None, frozenset({"gpu"}), EVERY_SAMPLE)])
    await until(lambda: len(new.orders) == 2)
    await idle(orders)

    assert len(old.orders) == 1
    old.agent_id, old.refusal = "a2", None  # another agent
    orders.soon()
    await until(lambda: len(old.orders) == 2)
    await orders.stop()


async def test_order_is_sent_again_after_a_lost_connection_to_the_same_agent():
    link = FakeLink("n1")
    orders = orders_for(link)
    orders.soon()
    await until(lambda: link.orders)
    await idle(orders)
    orders.soon()
    await idle(orders)
    assert len(link.orders) == 1
    orders.forget("n1")
    orders.soon()
    await until(lambda: len(link.orders) == 2)
    await orders.stop()


@pytest.mark.parametrize("linger_s", [0.0, 60.0])
async def test_agent_that_may_have_an_earlier_order_is_told_that_samples_are_wanted(linger_s):
    link = FakeLink("n1", linger_s=linger_s)
    orders = orders_for(link)
    if not linger_s:
        orders.soon()
        await until(lambda: link.orders)
        await idle(orders)
        orders.forget("n1")  # silent for a while, or connected again
        link.orders.clear()
    orders.wants.put("recording a", [Want(None, DIGESTED, EVERY_SAMPLE)])
    await until(lambda: link.kinds == [[]])
    await idle(orders)
    orders.soon()
    await idle(orders)

    assert link.kinds == [[]]
    await orders.stop()


@pytest.mark.parametrize(
    ("agent", "health"),
    [({"digest_s": 0.0}, {}), ({"sample_interval_ms": 100}, {}), ({}, {"window_s": 6.0})],
    ids=["off", "sampled more often", "shorter window than digests"],
)
async def test_no_order_without_a_use(agent, health):
    link = FakeLink("n1", **agent)
    orders = orders_for(link, **health)
    orders.soon()
    await idle(orders)

    assert link.orders == []
    await orders.stop()


async def test_cluster_in_the_background_sends_digests_also_without_a_period_of_its_own():
    link = FakeLink("n1", digest_s=0.0)
    orders = orders_for(link)
    orders.in_background(True)
    await until(lambda: link.kinds == [sorted(DIGESTED)])
    assert link.orders[0]["period_s"] == 10.0
    await idle(orders)
    assert link.orders[0]["hold_s"] == link.hold_s == 10.0
    orders.in_background(False)
    await until(lambda: link.kinds == [sorted(DIGESTED), []])
    await idle(orders)
    assert link.hold_s == 0.0
    await orders.stop()


def rank(status: RankStatus = "present", agent: str = "a1", pid: int = 7) -> Rank:
    return Rank(node="n1", agent=agent, job="j", rank=0, pid=pid, start_ticks=1, source="environ", status=status)


async def test_hidden_node_with_ranks_holds_nothing_back_and_has_the_shorter_period_until_the_last_has_ended():
    link = FakeLink("n1")
    orders = orders_for(link)
    orders.add_rank(rank())
    orders.add_rank(rank(pid=8))
    orders.in_background(True)
    await until(lambda: link.orders)
    assert (link.orders[0]["period_s"], link.orders[0]["hold_s"]) == (5.0, 0.0)
    await idle(orders)
    orders.add_rank(rank("exited"))
    await idle(orders)
    assert len(link.orders) == 1
    orders.add_rank(rank("withdrawn", pid=8))
    await until(lambda: len(link.orders) == 2)
    assert (link.orders[1]["period_s"], link.orders[1]["hold_s"]) == (10.0, 10.0)
    await idle(orders)
    orders.add_rank(rank(pid=9))
    await until(lambda: len(link.orders) == 3)
    assert link.orders[2]["hold_s"] == 0.0
    await idle(orders)
    link.agent_id = "a2"
    orders.soon()
    await until(lambda: len(link.orders) == 4)
    assert link.orders[3]["hold_s"] == 10.0, "the next agent has not reported ranks"
    await orders.stop()


async def test_longer_period_of_the_configuration_stays_in_the_background():
    link = FakeLink("n1", digest_s=20.0)
    orders = orders_for(link, window_s=240.0)
    orders.in_background(True)
    await until(lambda: link.orders)
    assert (link.orders[0]["period_s"], link.orders[0]["hold_s"]) == (20.0, 10.0)
    await orders.stop()


@pytest.mark.parametrize(("is_hidden", "wanted"), [(True, frozenset({"nic"})), (False, frozenset())])
async def test_only_hidden_nodes_of_which_nothing_is_wanted_hold_records_back(
    is_hidden: bool, wanted: frozenset[str]
) -> None:
    link = FakeLink("n1")
    orders = orders_for(link)
    orders.wants.put("recording a", [Want(None, wanted, 1.0)])
    orders.in_background(is_hidden)
    await until(lambda: link.kinds == [sorted(DIGESTED - wanted)])
    await idle(orders)

    assert link.orders[0]["hold_s"] == link.hold_s == 0.0
    await orders.stop()


async def test_gpus_with_too_many_different_limits_come_in_full():
    link = FakeLink("n1")
    orders = orders_for(link)
    for number in range(40):
        orders.add_info(info(uuid=f"u{number}", temp_slowdown_c=60.0 + number))
    await until(lambda: link.kinds == [["gpu_link", "host", "nic"]])
    await orders.stop()


def test_wants_are_replaced_by_who_wants_and_merged_by_node():
    changes: list[int] = []
    wants = Wants(lambda: changes.append(1))
    wants.put("a", [Want(frozenset({"n1"}), frozenset({"gpu"}), 1.0)])
    wants.put("a", [Want(frozenset({"n1"}), frozenset({"gpu"}), 1.0)])
    wants.put("b", [Want(None, frozenset({"nic"}), 1.0), Want(frozenset(), DIGESTED, 1.0)])
    wants.put("c", [])

    assert len(changes) == 2
    assert wants.kinds_of("n1", 5.0) == {"gpu", "nic"} and wants.kinds_of("n2", 5.0) == {"nic"}
    wants.put("a", [Want(frozenset({"n1"}), frozenset({"gpu"}), 0.2)])
    assert wants.kinds_of("n1", 5.0) == {"nic"}, "a record each 5 s is enough"
