"""A process that imitates a rank with diagnostic interfaces: `fake_rank.py KIND WHERE FILE [MORE]`.

KIND `worker` and `tcp_worker`: an HTTP server in a thread named like torch's, at the Unix socket WHERE or at any port,
that responds with FILE. `slow`: accepts connections and never responds. `ras`: NCCL's RAS at the port WHERE, with a
driver library mapped. `pipe`: copies FILE to MORE on a byte from the pipe WHERE. Prints READY when it can be queried.
"""

import ctypes
import mmap
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

PR_SET_NAME = 15
KIND, WHERE, FILE, *MORE = sys.argv[1:]
mapped: list[mmap.mmap] = []


def serve_http(listener: socket.socket) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_workerserver", 0, 0, 0)
    print("READY", flush=True)
    while True:
        link, _ = listener.accept()
        request = link.recv(4096)
        if KIND == "slow":
            time.sleep(600)
        names = b'["fr_trace_json", "ping"]'
        body = names if request.startswith(b"GET /handler/ ") else Path(FILE).read_bytes()
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        link.close()


def serve_ras(listener: socket.socket) -> None:
    library = Path(FILE).with_name("libcuda.so.1")
    library.write_bytes(b"\0" * mmap.PAGESIZE)
    with library.open("rb") as file:
        mapped.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    print("READY", flush=True)
    json_is_known = "nojson" not in MORE
    while True:
        link, _ = listener.accept()
        with link, link.makefile("rwb") as file:
            for line in file:
                command = line.strip().upper()
                if command.startswith(b"CLIENT PROTOCOL"):
                    file.write(b"SERVER PROTOCOL 2\n")
                elif command.startswith(b"TIMEOUT") or (command.startswith(b"SET FORMAT") and json_is_known):
                    file.write(b"OK\n")
                elif command == b"VERBOSE STATUS":
                    file.write(Path(FILE).read_bytes().replace(b"MYPID", b"%d" % os.getpid()))
                    file.flush()
                    break
                else:
                    file.write(b"ERROR: Unknown command\n")
                file.flush()


def write_dumps() -> None:
    os.mkfifo(WHERE)
    pipe = os.open(WHERE, os.O_RDONLY | os.O_NONBLOCK)  # as torch does, so that a writer always has a reader
    print("READY", flush=True)
    while not poked(pipe):
        time.sleep(0.01)
    shutil.copyfile(FILE, MORE[0])
    time.sleep(600)


def poked(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:  # a writer has opened the pipe and not yet written
        return False


def listen(family: int, where: object) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(where)
    listener.listen()
    return listener


match KIND:
    case "worker" | "slow":
        serve = (serve_http, listen(socket.AF_UNIX, WHERE))
    case "tcp_worker":
        serve = (serve_http, listen(socket.AF_INET6, ("::", 0)))
    case "ras":
        serve = (serve_ras, listen(socket.AF_INET, ("127.0.0.1", int(WHERE))))
    case "pipe":
        write_dumps()
threading.Thread(target=serve[0], args=serve[1:], daemon=True).start()
time.sleep(600)
