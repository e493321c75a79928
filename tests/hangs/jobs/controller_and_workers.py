"""One controller, which is no rank, calls all workers and waits for all answers; the reward service never answers 2."""

import os
import selectors
import socket

from controlled import ADDRESS, METHODS, Worker, receive, take_part, to_message


def drive_workers(count):
    server = socket.create_server(ADDRESS)
    workers = [server.accept()[0] for _ in range(count)]
    for number in range(10**9):
        for method in METHODS:
            invoke_all(workers, method, number)


def invoke_all(workers, method, number):
    pending = selectors.DefaultSelector()
    for worker in workers:
        worker.sendall(to_message((method, number)))
        pending.register(worker, selectors.EVENT_READ)
    while pending.get_map():
        for key, _ in pending.select():
            receive(key.fileobj)
            pending.unregister(key.fileobj)


class Rewarded(Worker):
    def score(self, number):
        super().score(number)
        if number == 30 and os.environ["RANK"] == "2" and not os.environ.get("HEALTHY"):
            from common import silent_server

            socket.create_connection(silent_server()).recv(1)


take_part(__file__, drive_workers, Rewarded())
