"""Rank 1 waits for an asyncio lock; the task inside of it waits for a server that never answers."""

import asyncio

from common import join, silent_server, step


async def refresh(lock):
    async with lock:
        reader, _ = await asyncio.open_connection(*silent_server())
        await reader.readline()


async def draw_sample(lock):
    async with lock:
        return 1


async def main():
    lock = asyncio.Lock()
    background = asyncio.create_task(refresh(lock), name="refresh")
    await asyncio.sleep(0.1)
    await draw_sample(lock)
    await background


rank, _ = join()
if rank == 1:
    asyncio.run(main())
step()
