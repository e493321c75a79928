"""Rank 2 awaits a program that does not end; the others reduce."""

import asyncio

from common import join, step


async def render_preview():
    program = await asyncio.create_subprocess_exec("sleep", "100000")
    await program.wait()


rank, _ = join()
if rank == 2:
    asyncio.run(render_preview())
step()
