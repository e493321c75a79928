"""The ranks are processes of one script and meet in a barrier of multiprocessing; rank 2 takes from an empty queue."""

import multiprocessing
import os
import sys


def meet_in_barrier(rank, world, barrier, queue):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    for number in range(10**6):
        barrier.wait()
        if number == 3:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()
            if rank == 2:
                queue.get()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    world = int(os.environ["PER_NODE"])
    barrier, queue = context.Barrier(world), context.Queue()
    workers = [context.Process(target=meet_in_barrier, args=(rank, world, barrier, queue)) for rank in range(world)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
