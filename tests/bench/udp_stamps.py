"""UDP probe client and server that also use kernel transmit stamps; runs on two nodes (see clock_stamps.py).

    python udp_stamps.py answer KERNEL           prints its port, answers until its stdin ends, prints its CPU seconds
    python udp_stamps.py ask ADDRESS PORT KERNEL COUNT PAUSE_S    prints a line of JSON

KERNEL 1: the kernel stamps sent packets (SO_TIMESTAMPING, read from the error queue), and each answer carries the stamp
of the previous one. All stamps are CLOCK_REALTIME, ns.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

_SO_TIMESTAMPNS, _SO_TIMESTAMPING, _MSG_ERRQUEUE = 35, 37, 0x2000
#: SOF_TIMESTAMPING_: TX_SOFTWARE, SOFTWARE, OPT_TSONLY.
_FLAGS = 1 << 1 | 1 << 4 | 1 << 11
_PACKET = struct.Struct("!Iqqq28x")  # number, t2, t3 by user space, the kernel's t3 of the previous answer; 64 bytes


def open_socket(kernel: bool) -> socket.socket:
    udp_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_socket.bind(("", 0))
    udp_socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    if kernel:
        udp_socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _FLAGS)
    return udp_socket


def stamp_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The timestamp in the ancillary data of a received or sent packet, ns."""
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind in (_SO_TIMESTAMPNS, _SO_TIMESTAMPING):
            seconds, ns = struct.unpack_from("@qq", value)
            if seconds:
                return seconds * 1_000_000_000 + ns
    return 0


def sent_at(udp_socket: socket.socket) -> int:
    """The kernel's timestamp of the last sent packet; 0 if it is not available yet."""
    try:
        return stamp_of(udp_socket.recvmsg(256, 256, _MSG_ERRQUEUE | socket.MSG_DONTWAIT)[1])
    except BlockingIOError:
        return 0


def answer(kernel: bool) -> None:
    own, before = open_socket(kernel), 0
    print(own.getsockname()[1], flush=True)
    while True:
        if sys.stdin in select.select([own, sys.stdin], [], [])[0]:
            break
        data, ancillary, _, where = own.recvmsg(256, 256)
        number = _PACKET.unpack(data)[0]
        own.sendto(_PACKET.pack(number, stamp_of(ancillary), time.time_ns(), before), where)
        before = sent_at(own) if kernel else 0
    print(time.process_time(), flush=True)


def ask(where: tuple[str, int], kernel: bool, count: int, pause_s: float) -> None:
    own, rows, cpu_s = open_socket(kernel), [], time.process_time()
    own.settimeout(1.0)
    for number in range(count):
        t1 = time.time_ns()
        own.sendto(_PACKET.pack(number, 0, 0, 0), where)
        kernel_t1 = sent_at(own) if kernel else 0
        data, ancillary, _, _ = own.recvmsg(256, 256)
        _, t2, t3, before = _PACKET.unpack(data)
        if rows:
            rows[-1][5] = before
        rows.append([t1, kernel_t1, t2, t3, stamp_of(ancillary), 0])
        time.sleep(pause_s)
    print(json.dumps({"rows": rows, "cpu_s": time.process_time() - cpu_s}))


if __name__ == "__main__":
    if sys.argv[1] == "answer":
        answer(sys.argv[2] == "1")
    else:
        ask((sys.argv[2], int(sys.argv[3])), sys.argv[4] == "1", int(sys.argv[5]), float(sys.argv[6]))
