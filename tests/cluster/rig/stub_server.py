"""The front door of a node that does not let in: run as `python -I -S stub_server.py ADDRESS PORT BEHAVIOUR [...]`.

hangs                      accepts, and never speaks
throttles                  closes each connection as it comes, with sshd's last word to it
throttles N HOST PORT      closes the first N connections, and passes every later one on to HOST:PORT

Prints "listening" once it does.
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
    seen = 0
    while True:
        client, _ = listener.accept()
        seen += 1
        if first is None or seen <= first:
            dismiss(client)
            continue
        server = socket.create_connection(behind)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def dismiss(client):
    try:
        client.sendall(b"Exceeded MaxStartups\r\n")
    except OSError:
        pass  # it left first
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
