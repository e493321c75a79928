"""Healthy: rank 0 learns from rollouts that the other ranks send over sockets, each in its own time."""

import json
import os
import random
import socket
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 100)


def learn():
    with socket.create_server(ADDRESS) as server:
        actors = [server.accept()[0].makefile("rw") for _ in range(WORLD - 1)]
    ready()
    while True:
        for actor in actors:
            rollout = json.loads(actor.readline())
            update(rollout)
            actor.write("{}\n")
            actor.flush()


def update(rollout):
    time.sleep(0.02 * len(rollout))


def act():
    learner = dial().makefile("rw")
    ready()
    while True:
        learner.write(json.dumps(play()) + "\n")
        learner.flush()
        learner.readline()


def play():
    """An episode of 1 to 20 s."""
    episode = []
    for _ in range(random.randint(2, 40)):
        time.sleep(0.5)
        episode.append(random.random())
    return episode


def dial():
    while True:
        try:
            return socket.create_connection(ADDRESS)
        except OSError:
            time.sleep(0.2)


def ready():
    sys.stdout.write(f"READY rank={RANK} pid={os.getpid()}\n")
    sys.stdout.flush()


if RANK == 0:
    learn()
else:
    act()
