"""Clock estimation runs only while a consumer requests it."""

import sys

from gconsole.config.model import ClockConfig
from gconsole.core.bus import Hub
from gconsole.monitor.clock_estimator import ClockEstimator
from gconsole.records import AgentCost


async def test_clock_estimator_holds_records_only_while_it_is_running():
    hub, record = Hub(), AgentCost(node="node1", sample_interval_ms=1000)
    clockwork = ClockEstimator(hub, ClockConfig(), "pod")
    before = sys.getrefcount(record)
    hub.publish([record])
    assert sys.getrefcount(record) == before, "records are not held while it is stopped"
    clockwork.start()
    hub.publish([record])
    assert sys.getrefcount(record) > before
    await clockwork.stop()
    hub.publish([record])
    assert sys.getrefcount(record) == before
