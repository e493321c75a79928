"""A compromised node's agent. It replaces `python3` on the node and sends what its files contain.

Beside it are `said` (the bytes it sends after its hello), `answers.json` (verb -> response) and `how`, one of:

once      sends the bytes once, then behaves normally: pings and requests are answered
again     sends the bytes repeatedly, as fast as they are read, with increasing sequence numbers
garbage   sends random bytes without end
endless   sends one line without end
deaf      sends a valid hello, then nothing
"""

import json
import random
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent


def main():
    out, lock = sys.stdout.buffer, threading.Lock()
    stdin = sys.stdin.buffer
    header = stdin.readline().split()
    stdin.read(int(header[2]))
    start = json.loads(stdin.readline().decode("utf-8"))["start"]
    how = (HERE / "how").read_text().strip()
    payload = (HERE / "said").read_bytes()
    answers = json.loads((HERE / "answers.json").read_text())
    hello = {"gconsole": {"protocol": start["protocol"], "agent": "e" * 16, "arch": "x86_64\x1b[2J", "wanted": []}}

    def write(data):
        with lock:
            out.write(data)
            out.flush()

    write(b"\x1b]0;owned\x07\x1b[2Jmotd of evil\r\n\x9b31m" + json.dumps(hello).encode() + b"\n")
    if how != "deaf":
        threading.Thread(target=send_payload, args=(how, payload, write), daemon=True).start()
    for line in stdin:
        frame = json.loads(line.decode("utf-8"))
        if "stop" in frame:
            return
        if how in ("once", "again") and "ping" in frame:
            now = time.time_ns()
            write(json.dumps({"pong": frame["ping"], "t": now, "mono": now}).encode() + b"\n")
        if how == "once" and "id" in frame:
            refusal = {"error": {"name": "\x1b[31m", "text": "<b>no</b>\x1b[2J", "try": "$(x)"}}
            write(json.dumps(dict(answers.get(frame.get("do"), refusal), re=frame["id"])).encode() + b"\n")


def send_payload(how, payload, write):
    if how == "once":
        write(payload)
    elif how == "again":
        send_repeatedly(payload, write)
    elif how == "endless":
        while True:
            write(b'{"kind":"log","text":"' + b"A" * 60000)
    elif how == "garbage":
        draw = random.Random(7)
        while True:
            write(bytes(draw.getrandbits(8) for _ in range(20000)))


def send_repeatedly(payload, write):
    lines = payload.splitlines()
    seq = 0
    while True:
        batch = []
        for line in lines:
            seq += 1
            batch.append(line.replace(b'"seq":0', b'"seq":%d' % seq).replace(b"NUMBER", b"%d" % seq))
        write(b"\n".join(batch) + b"\n")


if __name__ == "__main__":
    main()
