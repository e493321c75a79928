"""Rank 1 asks rank 3 over HTTP; the handler there reads a FIFO without a writer, its main thread is in all_reduce."""

import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch.distributed as dist
from common import dead_pipe, ready, start, step


class Rewards(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(dead_pipe(), "rb") as file:
            self.wfile.write(file.read())


start()
port = int(os.environ["MASTER_PORT"]) + 200
if dist.get_rank() == 3:
    server = ThreadingHTTPServer(("0.0.0.0", port), Rewards)
    threading.Thread(target=server.serve_forever, daemon=True).start()
addresses = [None] * dist.get_world_size()
dist.all_gather_object(addresses, os.popen("hostname -I").read().split()[:1])
ready()
if dist.get_rank() == 1:
    urllib.request.urlopen(f"http://{addresses[3][0]}:{port}/", timeout=3600).read()
step()
