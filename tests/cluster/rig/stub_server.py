"""A server that hangs or throttles: run as `python -I -S stub_server.py ADDRESS PORT BEHAVIOUR [...]`.

hangs                      accepts connections and never sends
throttles                  closes each connection, with sshd's error message
throttles N HOST PORT      closes the first N connections, and forwards later ones to HOST:PORT

Prints "listening" once it is.
"""

import socket
import sys
import threading


def main(address, port, behaviour, *options):
    listener = socket.create_server((address, int(port)), backlog=128)
    print("listening", flush=True)
    if behaviour == "hangs":
        hold(listener)
    elif options:
        first, host, behind = options
        throttle(listener, int(first), (host, int(behind)))
    else:
        throttle(listener, None, None)


def hold(listener):
    held = []
    while True:
        held.append(listener.accept())


def throttle(listener, first, behind):
    accepted = 0
    while True:
        client, _ = listener.accept()
        accepted += 1
        if first is None or accepted <= first:
            dismiss(client)
            continue
        server = socket.create_connection(behind)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def dismiss(client):
    try:
        client.sendall(b"Exceeded MaxStartups\r\n")
    except OSError:
        pass  # the client disconnected first
    client.close()


def pump(source, sink):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            end.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
