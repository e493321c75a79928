"""Each rank awaits rollouts of an inference engine, a process of its own; that of rank 1 is stopped.

A task passes the answers on to the requests, and the event loop serves figures beside them.
"""

import asyncio
import itertools
import os
import signal
import socket
import struct
from multiprocessing import Process

import torch.distributed as dist
from common import ready, start, step

NUMBER = struct.Struct("!I")


def answer_requests(connection, stops_at):
    while True:
        number = connection.recv(NUMBER.size)
        if NUMBER.unpack(number)[0] == stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        connection.sendall(number)


async def read_answers(reader, answers):
    while True:
        (number,) = NUMBER.unpack(await reader.readexactly(NUMBER.size))
        answers.pop(number).set()


async def one_answer(writer, answers, number):
    answers[number] = asyncio.Event()
    writer.write(NUMBER.pack(number))
    await answers[number].wait()


async def train(connection):
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    answers = {}
    task = asyncio.create_task(read_answers(reader, answers))
    figures = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    numbers = itertools.count()
    ready()
    while not task.done():
        await asyncio.gather(*(one_answer(writer, answers, next(numbers)) for _ in range(3)))
        step()
        await asyncio.sleep(0.02)
    figures.close()


start()
ours, theirs = socket.socketpair()
stops_at = 30 if dist.get_rank() == 1 and not os.environ.get("HEALTHY") else None
Process(target=answer_requests, args=(theirs, stops_at), daemon=True).start()
asyncio.run(train(ours))
