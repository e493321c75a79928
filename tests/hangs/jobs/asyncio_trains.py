"""A healthy job whose ranks train in threads of their event loops, and report from another task."""

import asyncio

from common import join, step


async def report_alive():
    while True:  # noqa: ASYNC110 - as in the field
        await asyncio.sleep(0.5)


async def main():
    task = asyncio.create_task(report_alive())
    while not task.done():
        await asyncio.to_thread(step)
        await asyncio.sleep(0.01)


join()
asyncio.run(main())
