"""What the store keeps of windows: the last ones, of edges that are still probed."""

from gconsole.records import ClockWindow
from gconsole.store.clockbook import KEPT_WINDOWS, ClockBook

SECOND = 1_000_000_000


def a_window(number: int, node: str, dst: str) -> ClockWindow:
    return ClockWindow(node=node, dst=dst, window_id=number, centre=1, width_ns=1, stamps="kernel",
                       rx=number * 4 * SECOND)  # fmt: skip


def test_edges_that_others_took_the_place_of_are_forgotten_after_so_many_windows():
    book = ClockBook()
    for number in range(1, 1_000):
        book.add_window(a_window(number, "node1", "node2"), number)  # stays
        book.add_window(a_window(number, "node1", f"peer{number // 10}"), number)  # another one every ten windows
    assert len(book.windows["node1", "node2"]) == KEPT_WINDOWS
    assert ("node1", "peer99") in book.windows
    assert len(book.windows) <= 2 + KEPT_WINDOWS // 10 + 1
    assert sum(len(kept) for kept in book.windows.values()) <= 2 * KEPT_WINDOWS
    assert ("node1", "peer1") in book.windows.changed_since(0), "whoever looks is told that it went"


def test_an_edge_that_is_seldom_probed_keeps_no_more_than_the_others():
    book = ClockBook()
    for number in range(1, 1_000):
        book.add_window(a_window(number, "node1", "node2"), number)
        if number % 10 == 0:
            book.add_window(a_window(number, "node1", "node3"), number)
    assert len(book.windows["node1", "node3"]) <= KEPT_WINDOWS // 10 + 1


def test_a_node_that_is_let_go_of_takes_its_edges_along_and_may_come_back():
    book = ClockBook()
    for number in range(1, 100):
        book.add_window(a_window(number, "node1", "node2"), number)
        book.add_window(a_window(number, "node2", "node3"), number)
    book.forget("node2", 100)
    assert not len(book.windows)
    for number in range(101, 300):
        book.add_window(a_window(number, "node1", "node2"), number)
    assert len(book.windows["node1", "node2"]) == KEPT_WINDOWS
