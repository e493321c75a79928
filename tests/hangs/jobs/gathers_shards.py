"""Rank 3 gathers shards from four servers over asyncio; one of them never answers."""

import asyncio

from common import join, silent_server, step


async def send_shard(reader, writer):
    writer.write(await reader.readline())
    writer.close()


async def fetch_shard(address):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"shard\n")
    return await reader.read()


async def load_all():
    server = await asyncio.start_server(send_shard, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    return await asyncio.gather(*(fetch_shard(address) for _ in range(3)), fetch_shard(silent_server()))


rank, _ = join()
if rank == 3:
    asyncio.run(load_all())
step()
