"""Clock tables of the store: recent windows, edges that are still probed, and snapshots of the same time."""

from gconsole.core.store.clocks import KEPT_SNAPSHOTS, KEPT_WINDOWS, ClockTables
from gconsole.records import ClockNode, ClockSnapshot, ClockWindow

SECOND = 1_000_000_000


def a_window(number: int, node: str, dst: str) -> ClockWindow:
    return ClockWindow(node=node, dst=dst, window_id=number, centre=1, width_ns=1, stamps="kernel",
                       rx=number * 4 * SECOND)  # fmt: skip


def test_replaced_edges_are_dropped_after_the_kept_number_of_windows():
    book = ClockTables()
    for number in range(1, 1_000):
        book.add_window(a_window(number, "node1", "node2"), number)  # permanent
        book.add_window(a_window(number, "node1", f"peer{number // 10}"), number)  # replaced every ten windows
    assert len(book.windows["node1", "node2"]) == KEPT_WINDOWS
    assert ("node1", "peer99") in book.windows
    assert len(book.windows) <= 2 + KEPT_WINDOWS // 10 + 1
    assert sum(len(kept) for kept in book.windows.values()) <= 2 * KEPT_WINDOWS
    assert ("node1", "peer1") in book.windows.changed_since(0), "the removal is reported as a change"


def test_rarely_probed_edge_keeps_windows_of_the_same_time_span():
    book = ClockTables()
    for number in range(1, 1_000):
        book.add_window(a_window(number, "node1", "node2"), number)
        if number % 10 == 0:
            book.add_window(a_window(number, "node1", "node3"), number)
    assert len(book.windows["node1", "node3"]) <= KEPT_WINDOWS // 10 + 1


def test_removed_node_loses_its_edges_and_can_be_added_again():
    book = ClockTables()
    for number in range(1, 100):
        book.add_window(a_window(number, "node1", "node2"), number)
        book.add_window(a_window(number, "node2", "node3"), number)
    book.forget("node2", 100)
    assert not len(book.windows)
    for number in range(101, 300):
        book.add_window(a_window(number, "node1", "node2"), number)
    assert len(book.windows["node1", "node2"]) == KEPT_WINDOWS


def a_snapshot(second: int, agent: str = "agent1") -> ClockSnapshot:
    return ClockSnapshot(node="node1", agent=agent, real=1, monotonic=1, raw=1, boot=1, width_ns=1, reads=1,
                         rx=second * SECOND)  # fmt: skip


def kept(book: ClockTables) -> list[int]:
    return [snapshot.rx // SECOND for snapshot in book.snapshots["node1"]]


def test_snapshots_of_twelve_minutes_are_kept_without_clock_probing():
    book = ClockTables()
    for second in range(0, 7_200, 10):
        book.add_snapshot(a_snapshot(second), second)
    assert kept(book) == list(range(7_190 - 720, 7_200, 10))


def test_snapshots_reach_back_to_the_oldest_clock_fit_up_to_their_limit():
    book = ClockTables()
    for second in range(0, 7_200, 10):
        if second % 60 == 0:
            book.add_node(ClockNode(node="node1", window_id=second, reference="node1", at_mono=1, rx=second * SECOND),
                          second)  # fmt: skip
        book.add_snapshot(a_snapshot(second), second)
    oldest = book.nodes["node1"][0].rx // SECOND
    assert kept(book) == list(range(oldest, 7_200, 10))
    for second in range(7_200, 9_000):
        book.add_snapshot(a_snapshot(second), second)
    assert len(kept(book)) == KEPT_SNAPSHOTS
