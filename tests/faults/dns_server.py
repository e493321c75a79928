"""A DNS server with a few names, which stops responding while it is paused."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping


class Names(threading.Thread):
    """Answers A queries on port 53 of a test address; all other queries get an empty answer."""

    def __init__(self, address: str, known: Mapping[str, str]) -> None:
        super().__init__(name="gcf-names", daemon=True)
        self._known = dict(known)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self.gone = False
        self.unanswered = 0

    def know(self, name: str, address: str) -> None:
        """Add a name."""
        self._known = {**self._known, name: address}

    def run(self) -> None:
        while not self._over.is_set():
            try:
                question, asker = self._socket.recvfrom(512)
            except TimeoutError:
                continue
            if self.gone:
                self.unanswered += 1
            else:
                self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: bytes) -> bytes:
        name, end = _name(question)
        kind = struct.unpack_from("!H", question, end)[0]
        address = self._known.get(name) if kind == 1 else None
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
    at, labels = 12, []
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), at + 1
