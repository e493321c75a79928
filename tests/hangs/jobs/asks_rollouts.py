"""Rank 0, an asyncio learner, awaits the rollouts of all other ranks; the environment of rank 2 never answers."""

import asyncio
import socket

from peers import connect
from plain import RANK, WORLD, ready


async def act(number):
    if RANK == 2 and number == 5:
        reader, _ = await asyncio.open_connection(*silent.getsockname())
        await reader.readline()
    await asyncio.sleep(0.01)


async def roll_out(connection):
    reader, writer = await asyncio.open_connection(sock=connection)
    while request := await reader.readline():
        await act(int(request))
        writer.write(b"done\n")


async def ask(worker, number):
    reader, writer = worker
    writer.write(b"%d\n" % number)
    await reader.readline()


async def learn():
    workers = [await asyncio.open_connection(sock=connections[other]) for other in range(1, WORLD)]
    for number in range(10**9):
        await asyncio.gather(*(ask(worker, number) for worker in workers))


connections = connect()
silent = socket.create_server(("127.0.0.1", 0))
ready()
asyncio.run(learn() if RANK == 0 else roll_out(connections[0]))
