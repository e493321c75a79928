"""Healthy: a metrics server that nobody asks for minutes, beside jobs."""

import os
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()


def ask_now_and_then(address):
    while True:
        time.sleep(200.0)
        urllib.request.urlopen(address, timeout=60).close()


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=ask_now_and_then, args=(f"http://127.0.0.1:{server.server_port}/",), daemon=True).start()
sys.stdout.write(f"READY rank=0 pid={os.getpid()}\n")
sys.stdout.flush()
server.serve_forever(poll_interval=5.0)
