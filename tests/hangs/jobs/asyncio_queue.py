"""Rank 2 takes batches from an asyncio queue whose producer has ended; a task of its own reports that it is alive."""

import asyncio

from common import join, step


async def report_alive():
    while True:  # noqa: ASYNC110 - as in the field
        await asyncio.sleep(1.0)


async def produce(batches):
    for number in range(5):
        await batches.put(number)
    raise ValueError("the sixth batch is broken")


async def train(batches):
    for _ in range(10):
        await batches.get()


async def main():
    batches = asyncio.Queue()
    tasks = [asyncio.create_task(report_alive()), asyncio.create_task(produce(batches))]
    await train(batches)
    return tasks


rank, _ = join()
if rank == 2:
    asyncio.run(main())
step()
