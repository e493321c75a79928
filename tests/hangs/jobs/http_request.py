"""Rank 0 waits for the HTTP response of a tracking server that never answers."""

import json
import urllib.request

from common import join, silent_server, step


def report(loss):
    host, port = silent_server()
    with urllib.request.urlopen(f"http://{host}:{port}/api/runs/17", json.dumps({"loss": loss}).encode()) as reply:
        return reply.read()


rank, _ = join()
if rank == 0:
    report(2.71)
step()
