"""Samples are stored in the history at the second they were taken, whichever agent sends them."""

from gconsole.core.store import Store
from gconsole.records import Host, Node

SECOND = 1_000_000_000
NOW_S = 1_700_000_000


def a_node(agent: str, boot_id: str = "first") -> Node:
    return Node(node="node1", agent=agent, seq=1, rx=NOW_S * SECOND, hostname="node1", boot_id=boot_id, kernel="k",
                arch="x", python="3.11", uid=0, pid=1, sample_interval_ms=1000)  # fmt: skip


def a_host(agent: str, up_s: int, came_s: int, cpu_pct: float) -> Host:
    """A sample taken `up_s` after boot and received `came_s` after the start of the test."""
    return Host(node="node1", agent=agent, seq=2, mono=up_s * SECOND, rx=(NOW_S + came_s) * SECOND, cpu_pct=cpu_pct)


def curve(store: Store) -> dict[int, float]:
    """Seconds after the start of the test → value."""
    series = store.history.series["host"]
    values = series.recent("node1", "cpu_pct")
    newest = series._now
    return {newest - len(values) + 1 + at - NOW_S: float(value) for at, value in enumerate(values) if value == value}


def test_delayed_samples_of_an_older_agent_are_placed_at_their_sample_time():
    store = Store(history_bytes=1 << 20)
    store.apply([a_node("agent2"), a_host("agent2", 160, 60, 6.0)])
    store.apply([a_host("agent1", 110, 61, 1.0), a_host("agent1", 140, 61, 4.0), a_host("agent1", 161, 61, 6.5)])
    assert curve(store) == {10: 1.0, 40: 4.0, 60: 6.0, 61: 6.5}


def test_samples_after_a_reboot_are_placed_by_the_new_monotonic_clock():
    store = Store(history_bytes=1 << 20)
    store.apply([a_node("agent1"), a_host("agent1", 9_000, 10, 1.0)])
    store.apply([a_node("agent2", boot_id="second"), a_host("agent2", 30, 70, 2.0)])
    assert curve(store) == {10: 1.0, 70: 2.0}
