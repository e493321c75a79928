"""Rank 1 waits in an event loop for a response that never arrives."""

import asyncio

from common import join, silent_server, step


async def ask():
    reader, _ = await asyncio.open_connection(*silent_server())
    return await reader.readline()


rank, _ = join()
if rank == 1:
    asyncio.run(ask())
step()
