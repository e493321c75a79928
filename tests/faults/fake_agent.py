"""A script that replaces a node's agent: well-behaved, or violating the protocol in one way.

Run as `fake_agent.py HOW`, it sends a hello and a tick per second and answers pings. HOW "light" does nothing else;
the other modes begin once a file with the script's name plus `.loud` exists.
"""

import json
import os
import select
import sys
import time

LOUD = sys.argv[0] + ".loud"
KINDS = ("light", "garbage", "endless", "flood", "other_version")


def main(kind):
    agent = os.urandom(8).hex()
    how = loudly(kind)
    low_high = [7, 9] if how == "other_version" else [1, 1]
    say({"gconsole": {"protocol": low_high, "agent": agent, "arch": os.uname().machine, "wanted": []}})
    seq, due, partial = 0, time.monotonic(), b""
    while True:
        if how != kind:
            how = loudly(kind)
            if how == "other_version":
                return  # the next agent is a different one
        if how == "endless":
            os.write(1, b"x" * 65536)
            continue
        if select.select([0], [], [], max(0.0, due - time.monotonic()) if how != "flood" else 0)[0]:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, partial = (partial + data).split(b"\n")
            answer(lines)
        if how == "flood":
            seq = flood(seq)
        elif time.monotonic() >= due:
            due += 1.0
            seq = tick(seq)
            if how == "garbage":
                write(os.urandom(4096) + b"\n" + b'{"kind":"gpu","seq":' + b"9" * 400 + b"}\n" + b"[" * 5000 + b"\n")


def loudly(kind):
    return kind if os.access(LOUD, os.F_OK) else "light"


def answer(lines):
    for line in lines:
        if line.startswith(b'{"ping":'):
            say({"pong": json.loads(line.decode())["ping"], "t": time.time_ns(), "mono": time.monotonic_ns()})


def tick(seq):
    say({"kind": "agent_cost", "seq": seq + 1, "t": time.time_ns(), "mono": time.monotonic_ns(),
         "sample_interval_ms": 1000})  # fmt: skip
    return seq + 1


def flood(seq):
    """Send as fast as the pipe accepts, a thousand records at a time."""
    head = '{"kind":"agent_cost","t":1,"mono":1,"sample_interval_ms":1000,"seq":'
    write("".join(f"{head}{number}}}\n" for number in range(seq + 1, seq + 1001)).encode())
    return seq + 1000


def say(frame):
    write(json.dumps(frame, separators=(",", ":")).encode() + b"\n")


def write(data):
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError:
        sys.exit(0)  # the console exited
