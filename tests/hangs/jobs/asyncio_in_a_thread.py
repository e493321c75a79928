"""Rank 2 waits for a coroutine that runs in the event loop of another thread and waits for a silent server."""

import asyncio
import threading

from common import join, silent_server, step


async def pull_weights():
    reader, _ = await asyncio.open_connection(*silent_server())
    return await reader.readexactly(8)


rank, _ = join()
if rank == 2:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(pull_weights(), loop).result()
step()
