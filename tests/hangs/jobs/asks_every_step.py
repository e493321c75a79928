"""Healthy: in each step every rank asks a server in rank 0 over HTTP, then they reduce."""

import os
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch.distributed as dist
from common import join, step


class Samples(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.05)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"sample")

    def log_message(self, *_):
        pass


rank, _ = join()
port = int(os.environ["MASTER_PORT"]) + 200
if rank == 0:
    server = ThreadingHTTPServer(("0.0.0.0", port), Samples)
    threading.Thread(target=server.serve_forever, daemon=True).start()
dist.barrier()
while True:
    urllib.request.urlopen(f"http://{os.environ['MASTER_ADDR']}:{port}/").read()
    step()
