"""Rank 1 waits in an event loop for an answer that does not come."""

import asyncio

from common import join, silent_server, step


async def ask():
    reader, _ = await asyncio.open_connection(*silent_server())
    return await reader.readline()


rank, _ = join()
if rank == 1:
    asyncio.run(ask())
step()
