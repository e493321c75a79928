"""A DNS server with a few names, which stops responding while it is paused."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping


class StubDnsServer(threading.Thread):
    """Answers A queries on port 53 of a test address; all other queries get an empty answer."""

    def __init__(self, address: str, addresses: Mapping[str, str]) -> None:
        super().__init__(name="gcf-names", daemon=True)
        self._addresses = dict(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self.paused = False
        self.unanswered = 0

    def add(self, name: str, address: str) -> None:
        """Add a name."""
        self._addresses = {**self._addresses, name: address}

    def run(self) -> None:
        while not self._over.is_set():
            try:
                question, asker = self._socket.recvfrom(512)
            except TimeoutError:
                continue
            if self.paused:
                self.unanswered += 1
            else:
                self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: bytes) -> bytes:
        name, end = _name(question)
        kind = struct.unpack_from("!H", question, end)[0]
        address = self._addresses.get(name) if kind == 1 else None
        head = question[:2] + struct.pack("!HHHHH", 0x8180, 1, 1 if address else 0, 0, 0)
        query = question[12 : end + 4]
        if address is None:
            return head + query
        return head + query + struct.pack("!HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address)

    def close(self) -> None:
        self._over.set()
        self.join()
        self._socket.close()


def _name(question: bytes) -> tuple[str, int]:
    """The queried name, and the offset of the rest of the question."""
    offset, labels = 12, []
    while length := question[offset]:
        labels.append(question[offset + 1 : offset + 1 + length].decode())
        offset += 1 + length
    return ".".join(labels).lower(), offset + 1
