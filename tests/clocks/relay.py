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
class _Way:
    """One direction: packets received at `ear` are sent from `mouth` to `to`."""

    ear: socket.socket
    mouth: socket.socket
    to: tuple[str, int]
    delay: Delay


class Relay(threading.Thread):
    """Relays between two ports on loopback; the near end sends to `near_port`, the far one to `far_port`."""

    def __init__(self, near: int, far: int, there: Delay, back: Delay, seed: int) -> None:
        super().__init__(name="relay", daemon=True)
        self._near_side, self._far_side = (self._socket() for _ in range(2))
        self._ways = [
            _Way(self._near_side, self._far_side, ("127.0.0.1", far), there),
            _Way(self._far_side, self._near_side, ("127.0.0.1", near), back),
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
        waiting: list[tuple[float, int, _Way, bytes]] = []
        count = itertools.count()
        while not self._ended.is_set():
            left = waiting[0][0] - time.monotonic() if waiting else 0.05
            ready, _, _ = select.select([way.ear for way in self._ways], [], [], min(0.05, max(0.0, left)))
            now = time.monotonic()
            for way in self._ways:
                if way.ear in ready:
                    data = way.ear.recv(4096)
                    delay = way.delay(self._draw)
                    if delay is not None:
                        heapq.heappush(waiting, (now + delay, next(count), way, data))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, way, data = heapq.heappop(waiting)
                way.mouth.sendto(data, way.to)

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
