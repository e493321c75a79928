"""Demo job without the demo: results of its ranks, and their rendezvous."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gconsole.demo.ring import Ring, join

TOKEN = b"0123456789abcdef"
DEADLINE_S = 60.0


def ring_of(world_size: int) -> list[Ring]:
    """All ranks of a ring, each connected to the next by a socket pair."""
    pairs = [socket.socketpair() for _ in range(world_size)]
    return [Ring(rank, world_size, pairs[rank - 1][1], pairs[rank][0]) for rank in range(world_size)]


def listeners(world_size: int) -> list[socket.socket]:
    return [socket.create_server(("127.0.0.1", 0)) for _ in range(world_size)]


def ports(of: list[socket.socket]) -> list[int]:
    return [listener.getsockname()[1] for listener in of]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_rank_gets_the_sum_over_all_ranks(world_size: int) -> None:
    values = [[float(rank * 100 + index) for index in range(10)] for rank in range(world_size)]
    with ThreadPoolExecutor(world_size) as ranks:
        sums = list(ranks.map(lambda ring: ring.all_reduce(values[ring.rank]), ring_of(world_size), timeout=DEADLINE_S))
    assert sums == [[sum(column) for column in zip(*values, strict=True)]] * world_size


def test_fewer_values_than_ranks_are_summed_too() -> None:
    with ThreadPoolExecutor(5) as ranks:
        sums = list(ranks.map(lambda ring: ring.all_reduce([1.0, 2.0]), ring_of(5), timeout=DEADLINE_S))
    assert sums == [[5.0, 10.0]] * 5


def test_all_reduce_gives_every_rank_bitwise_identical_sums() -> None:
    with ThreadPoolExecutor(7) as ranks:
        sums = list(ranks.map(lambda ring: ring.all_reduce([0.1 * 3**ring.rank] * 20), ring_of(7), timeout=DEADLINE_S))
    assert all(own == sums[0] for own in sums)


def test_ranks_wait_for_a_rank_that_starts_late() -> None:
    sockets = listeners(3)

    def rank(number: int) -> list[float]:
        return join(number, ports(sockets), sockets[number], TOKEN).all_reduce([1.0] * 3)

    with ThreadPoolExecutor(3) as ranks:
        early: list[Future[list[float]]] = [ranks.submit(rank, 0), ranks.submit(rank, 1)]
        with pytest.raises(TimeoutError):
            early[0].result(0.2)
        late = ranks.submit(rank, 2)
        assert [future.result(DEADLINE_S) for future in [*early, late]] == [[3.0] * 3] * 3


def test_foreign_connection_to_a_job_port_is_closed() -> None:
    sockets = listeners(2)
    stranger = socket.create_connection(sockets[0].getsockname())
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    with ThreadPoolExecutor(2) as ranks:
        joined = [ranks.submit(join, rank, ports(sockets), sockets[rank], TOKEN) for rank in range(2)]
        rings = [future.result(DEADLINE_S) for future in joined]
        assert list(ranks.map(lambda ring: ring.all_reduce([1.0]), rings, timeout=DEADLINE_S)) == [[2.0], [2.0]]
    stranger.settimeout(DEADLINE_S)
    with pytest.raises((ConnectionResetError, EOFError)):
        if not stranger.recv(1):
            raise EOFError


def test_rank_whose_neighbour_dies_fails_instead_of_waiting_forever() -> None:
    rings = ring_of(2)
    failed: list[str] = []

    def rank() -> None:
        try:
            rings[0].all_reduce([1.0, 2.0])
        except ConnectionError as error:
            failed.append(str(error))

    thread = threading.Thread(target=rank)
    thread.start()
    rings[1].right.close()
    thread.join(DEADLINE_S)
    assert failed == ["connection closed by neighbour"]
