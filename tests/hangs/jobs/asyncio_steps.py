"""All ranks reduce in threads of their event loops; rank 1 awaits a thread that reads from a dead pipe instead."""

import asyncio

from common import dead_pipe, join, step


def read_shard(path):
    with open(path, "rb") as shard:
        return shard.read()


async def main():
    for number in range(10**9):
        if rank == 1 and number == 20:
            await asyncio.to_thread(read_shard, dead_pipe())
        await asyncio.to_thread(step)
        await asyncio.sleep(0.01)


rank, _ = join()
asyncio.run(main())
