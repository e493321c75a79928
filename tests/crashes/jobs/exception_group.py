"""Tasks of rank 0 fail together: an ExceptionGroup."""

import asyncio

from common import join, steps


async def fetch(shard):
    await asyncio.sleep(0.1)
    raise LookupError(f"shard {shard} is not in the index")


async def prefetch():
    async with asyncio.TaskGroup() as group:
        for shard in (3, 4):
            group.create_task(fetch(shard))


if join() == 0:
    asyncio.run(prefetch())
steps()
