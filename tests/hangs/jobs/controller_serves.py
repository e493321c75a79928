"""Shared: an asyncio controller that calls all workers."""

import asyncio
import pickle

from controlled import ADDRESS, METHODS, to_message


def drive_workers(count, before=lambda number: None):
    asyncio.run(serve(count, before))


async def serve(count, before):
    workers, complete = [], asyncio.Event()

    async def admit(reader, writer):
        workers.append((reader, writer))
        if len(workers) == count:
            complete.set()

    await asyncio.start_server(admit, *ADDRESS)
    await complete.wait()
    for number in range(10**9):
        before(number)
        for method in METHODS:
            await asyncio.gather(*(remote_call(worker, method, number) for worker in workers))


async def remote_call(worker, method, number):
    reader, writer = worker
    writer.write(to_message((method, number)))
    size = int.from_bytes(await reader.readexactly(4), "big")
    return pickle.loads(await reader.readexactly(size))
