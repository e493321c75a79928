"""Without torch: every rank serves requests, and none arrive."""

import socket

from plain import ready

server = socket.create_server(("0.0.0.0", 0))
ready()
while True:
    client, _ = server.accept()
    client.sendall(client.recv(100))
    client.close()
