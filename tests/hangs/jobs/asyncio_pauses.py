"""A healthy job in which rank 1 asks a service from time to time, and its event loop pauses for 11 s before."""

import asyncio
import time

from common import join, step


async def try_again():
    await asyncio.sleep(11)


rank, _ = join()
while True:
    if rank == 1:
        asyncio.run(try_again())
    for _ in range(40):
        step()
        time.sleep(0.02)
