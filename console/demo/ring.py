"""The job of `gconsole demo`: each rank fits the same weights to noisy data and averages its gradient around a ring.

Standard library only, so that it runs anywhere; small steps and long pauses, so that it uses little CPU. It is a
program of its own (`python ring.py`), configured as by torchrun: RANK and WORLD_SIZE in the environment. Its launcher
also sets RING_LISTENER (descriptor of an inherited listening socket), RING_PORTS (the port of every rank's socket, in
order), RING_TOKEN (authenticates neighbours of this job) and RING_LAUNCHER (the launcher's pid). With
TORCH_FR_DUMP_TEMP_FILE each rank writes its collectives there (`flight_recorder`).
All sockets listen before the first rank runs, so that a rank that starts late is waited for.

With RING_HANG (one of `HANGS`) SIGUSR1 makes the job hang in that way: `CULPRIT` misbehaves from the next step on, in
`cycle` all ranks do. The ranks then wait for each other without a timeout, also for one that is dead, as a job on GPUs
does.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    from flight_recorder import FlightRecorder  # type: ignore[import-not-found]  # run as a script, from its folder
elif TYPE_CHECKING:
    from .flight_recorder import FlightRecorder

WEIGHTS = 48
#: Seconds of computing per step; with the exchange about four steps a second.
COMPUTE_S = 0.23
LEARNING_RATE = 0.05
#: Seconds. Time limit for the token of a connection: a neighbour sends it at once, a port scanner never.
HELLO_S = 2.0
HANGS = ("absent", "dataloader", "stopped", "dead", "lock", "order", "cycle")
#: Not the first rank, which a wrong analysis might name by default.
CULPRIT = 1
FOR_EVER_S = 86_400.0
#: Types of messages; one of another type than the awaited is dropped.
REDUCE, BROADCAST = 0, 1

# From <sys/prctl.h>
PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = ctypes.c_ulong(-1).value


class Ring:
    """The connections of one rank: it receives from its `left` neighbour and sends to its `right` one."""

    def __init__(
        self, rank: int, world_size: int, left: socket.socket, right: socket.socket, patient: bool = False
    ) -> None:
        """`patient`: wait for a neighbour that is gone instead of failing."""
        self.rank = rank
        self.world_size = world_size
        self.left = left
        self.right = right
        self.patient = patient

    def all_reduce(self, values: list[float]) -> list[float]:
        """The sums of `values` over all ranks, element by element; every rank gets the same bits.

        Each piece goes around once and is added to, then goes around again unchanged. `values` must be small: a piece
        has to fit into a socket's buffer (128 KiB and more), because every rank sends before it receives.
        """
        pieces = [values[piece :: self.world_size] for piece in range(self.world_size)]
        for hop in range(self.world_size - 1):
            self.send(pieces[(self.rank - hop) % self.world_size])
            arriving = (self.rank - hop - 1) % self.world_size
            pieces[arriving] = [mine + theirs for mine, theirs in zip(pieces[arriving], self.receive(), strict=True)]
        for hop in range(self.world_size - 1):
            self.send(pieces[(self.rank + 1 - hop) % self.world_size])
            pieces[(self.rank - hop) % self.world_size] = self.receive()
        sums = [0.0] * len(values)
        for piece, numbers in enumerate(pieces):
            sums[piece :: self.world_size] = numbers
        return sums

    def broadcast(self) -> list[float]:
        """Receive a broadcast of the first rank. Only a rank that calls collectives in the wrong order does."""
        return self.receive(BROADCAST)

    def recv(self, src: int) -> list[float]:
        """Wait for a message of one rank, which must be the left neighbour."""
        assert src == (self.rank - 1) % self.world_size
        return self.receive()

    def send(self, numbers: list[float], about: int = REDUCE) -> None:
        """Send numbers to the right neighbour."""
        try:
            self.right.sendall(struct.pack(f"!BI{len(numbers)}d", about, len(numbers), *numbers))
        except ConnectionError:
            if not self.patient:
                raise

    def receive(self, about: int = REDUCE) -> list[float]:
        """Wait for a message of this type from the left neighbour and return its numbers; others are dropped."""
        while True:
            try:
                kind, count = struct.unpack("!BI", receive_exactly(self.left, 5))
                numbers = list(struct.unpack(f"!{count}d", receive_exactly(self.left, 8 * count)))
            except ConnectionError:
                if not self.patient:
                    raise
                time.sleep(FOR_EVER_S)  # a library without a watchdog does not notice
                continue
            if kind == about:
                return numbers


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """`count` bytes of a connection. Raises ConnectionError if it ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("connection closed by neighbour")
        data += more
    return data


def join(rank: int, ports: list[int], listener: socket.socket, token: bytes, patient: bool = False) -> Ring:
    """Connect to the right neighbour, wait for the left one."""
    if len(ports) == 1:
        return Ring(rank, 1, listener, listener)  # alone: nothing is sent
    right = socket.create_connection(("127.0.0.1", ports[(rank + 1) % len(ports)]))
    right.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    right.sendall(token)
    left = wait_for_neighbour(listener, token)
    return Ring(rank, len(ports), left, right, patient)


def wait_for_neighbour(listener: socket.socket, token: bytes) -> socket.socket:
    """The first connection that sends this job's token; others are closed."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(HELLO_S)
        try:
            if receive_exactly(connection, len(token)) == token:
                connection.settimeout(None)
                return connection
        except (ConnectionError, TimeoutError):
            pass  # closed below, like one with a wrong token
        connection.close()


def compute(weights: list[float], target: list[float], noise: random.Random) -> tuple[float, list[float]]:
    """Loss and gradient of one batch; the pause simulates the work of a GPU."""
    time.sleep(COMPUTE_S * noise.uniform(0.9, 1.1))
    gradient = [weight - wanted + noise.gauss(0, 0.1) for weight, wanted in zip(weights, target, strict=True)]
    return sum(g * g for g in gradient) / len(gradient), gradient


def train(ring: Ring, hang: InjectedHang, recorder: FlightRecorder | None) -> None:
    """Step until the process is ended, or until the hang, which begins in the same step on every rank."""
    noise = random.Random(ring.rank)
    target = [random.Random(index).uniform(-1, 1) for index in range(WEIGHTS)]
    weights = [0.0] * WEIGHTS
    step, loss = 0, 1.0
    while True:
        rate = LEARNING_RATE * min(1.0, loss)  # shorter steps near the goal
        own_loss, gradient = compute(weights, target, noise)
        with recorder.entered(WEIGHTS + 2) if recorder else nullcontext():
            armed_ranks, total_loss, *total = ring.all_reduce([float(hang.is_armed), own_loss, *gradient])
        weights = [weight - rate * g / ring.world_size for weight, g in zip(weights, total, strict=True)]
        loss = total_loss / ring.world_size
        step += 1
        if armed_ranks and (ring.rank == CULPRIT or hang.kind == "cycle"):
            hang.set_in(ring)


class InjectedHang:
    """How this rank hangs once armed by SIGUSR1."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # of HANGS, or "" for a job that never hangs
        self.is_armed = False

    def arm(self, *_: object) -> None:
        """SIGUSR1 handler: hang in the next step."""
        self.is_armed = True

    def set_in(self, ring: Ring) -> None:
        """Hang; never returns."""
        if self.kind == "absent":
            wait_for_schedule()
        elif self.kind == "dataloader":
            next_batch()
        elif self.kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "lock":
            save_metrics()
        elif self.kind == "order":
            ring.broadcast()
        elif self.kind == "cycle":
            ring.recv((ring.rank - 1) % ring.world_size)


def wait_for_schedule() -> None:
    """Sleep, as if polling a service that is not running."""
    time.sleep(FOR_EVER_S)


def next_batch() -> bytes:
    """Wait for data of a worker process."""
    environment = {**os.environ, "RING_LOADER": "1", "RING_LAUNCHER": str(os.getpid())}
    argv = [sys.executable, __file__]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        return worker.stdout.read(1)


def load_shard() -> None:
    """The worker: read from a storage that does not respond."""
    time.sleep(FOR_EVER_S)


def save_metrics() -> None:
    """Take a lock twice."""
    lock = threading.Lock()
    with lock, lock:
        pass


def end_with(launcher: int) -> None:
    """Make the kernel kill this process when its launcher has ended."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it ended before the call
        sys.exit("ring.py: launcher has exited")


def allow_tracing() -> None:
    """Allow py-spy of the same user to read this process under ptrace_scope 1 (Yama)."""
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)


def prctl(option: int, value: int) -> None:
    """prctl(2); errors are ignored: kernels without an option do not need it."""
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def main() -> None:
    """Run one rank, as its environment defines."""
    end_with(int(os.environ["RING_LAUNCHER"]))
    allow_tracing()
    if os.environ.get("RING_LOADER"):
        load_shard()
        return
    hang = InjectedHang(os.environ.get("RING_HANG", ""))
    signal.signal(signal.SIGUSR1, hang.arm)
    ports = [int(port) for port in os.environ["RING_PORTS"].split(",")]
    listener = socket.socket(fileno=int(os.environ["RING_LISTENER"]))
    token = os.environ["RING_TOKEN"].encode()
    rank, dump = int(os.environ["RANK"]), os.environ.get("TORCH_FR_DUMP_TEMP_FILE")
    recorder = FlightRecorder(Path(f"{dump}{rank}"), len(ports)) if dump else None
    train(join(rank, ports, listener, token, patient=bool(hang.kind)), hang, recorder)


if __name__ == "__main__":
    main()
