"""A relay between two UDP ports that delays packets by seeded distributions: a netem replacement."""

from __future__ import annotations

import heapq
import itertools
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Delay of one packet in seconds; None: it is dropped.
Delay = Callable[[random.Random], float | None]


def jitter(middle_s: float, half_s: float) -> Delay:
    return lambda draw: draw.uniform(middle_s - half_s, middle_s + half_s)


def queue(least_s: float, mean_s: float, share: float) -> Delay:
    """With probability `share` a packet gets an additional exponential delay."""
    return lambda draw: least_s + (draw.expovariate(1 / mean_s) if draw.random() < share else 0.0)


def lossy(share: float, delay: Delay) -> Delay:
    return lambda draw: None if draw.random() < share else delay(draw)


@dataclass
class _Direction:
    """One direction: packets received at `source` are sent from `sender` to `target`."""

    source: socket.socket
    sender: socket.socket
    target: tuple[str, int]
    delay: Delay


class Relay(threading.Thread):
    """Relays between two ports on loopback; the near end sends to `near_port`, the far one to `far_port`."""

    def __init__(self, near: int, far: int, forward: Delay, backward: Delay, seed: int) -> None:
        super().__init__(name="relay", daemon=True)
        self._near_side, self._far_side = (self._socket() for _ in range(2))
        self._directions = [
            _Direction(self._near_side, self._far_side, ("127.0.0.1", far), forward),
            _Direction(self._far_side, self._near_side, ("127.0.0.1", near), backward),
        ]
        self._draw = random.Random(seed)
        self._ended = threading.Event()

    @property
    def near_port(self) -> dict[str, object]:
        return self._address(self._near_side)

    @property
    def far_port(self) -> dict[str, object]:
        return self._address(self._far_side)

    def run(self) -> None:
        waiting: list[tuple[float, int, _Direction, bytes]] = []
        count = itertools.count()
        while not self._ended.is_set():
            remaining_s = waiting[0][0] - time.monotonic() if waiting else 0.05
            ready, _, _ = select.select(
                [direction.source for direction in self._directions], [], [], min(0.05, max(0.0, remaining_s))
            )
            now = time.monotonic()
            for direction in self._directions:
                if direction.source in ready:
                    data = direction.source.recv(4096)
                    delay = direction.delay(self._draw)
                    if delay is not None:
                        heapq.heappush(waiting, (now + delay, next(count), direction, data))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, direction, data = heapq.heappop(waiting)
                direction.sender.sendto(data, direction.target)

    def close(self) -> None:
        self._ended.set()
        self.join()
        self._near_side.close()
        self._far_side.close()

    def _socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        return sock

    def _address(self, sock: socket.socket) -> dict[str, object]:
        address, port = sock.getsockname()
        return {"address": address, "port": port}
