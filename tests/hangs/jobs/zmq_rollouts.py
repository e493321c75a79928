"""A trainer collects rollouts of all actors over ZeroMQ; actor 2 sleeps in its environment, the others are done."""

import os
import time

import zmq
from plain import RANK, WORLD, ready

address = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 120}"


def reset_environment():
    time.sleep(36000)


def collect():
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(address)
    for number in range(10**9):
        actors = [socket.recv_multipart()[0] for _ in range(WORLD - 1)]
        if number == 20:
            ready()
        for actor in actors:
            socket.send_multipart([actor, b"parameters"])


def act():
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(address)
    for number in range(10**9):
        if number == 21:
            ready()
        if number == 25 and RANK == 2 and not os.environ.get("HEALTHY"):
            reset_environment()
        time.sleep(0.005)
        socket.send(b"rollout")
        socket.recv()


if RANK == 0:
    collect()
else:
    act()
