"""The parent of all ranks of a node steps its environments over pipes, in turn; the environment of rank 1 sleeps."""

import multiprocessing
import os
import sys
import time


def work(connection, rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    while True:
        number = connection.recv()
        if number == 10:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()
        if number == 20 and rank == 1 and not os.environ.get("HEALTHY"):
            time.sleep(36000)
        time.sleep(0.005)
        connection.send(number)


if __name__ == "__main__":
    pipes, context = [], multiprocessing.get_context("spawn")
    for rank in range(int(os.environ["PER_NODE"])):
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(theirs, rank)).start()
        theirs.close()
        pipes.append(ours)
    for number in range(10**9):
        for pipe in pipes:
            pipe.send(number)
        for pipe in pipes:
            pipe.recv()
