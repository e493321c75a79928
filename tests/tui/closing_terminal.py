"""A console whose terminal is closed at some instant: end-of-file, EIO and SIGHUP, also during start and quit.

python tests/tui/closing_terminal.py 200 [SEED]      so many random instants; exit code 1 if a console did not end
"""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Literal

#: closed: by the terminal that controls the session, so that the kernel sends SIGHUP as well; gone: only end-of-file
#: and EIO; hangup: only SIGHUP, and nobody reads what the console writes.
Ending = Literal["closed", "gone", "hangup"]
ENDINGS: tuple[Ending, ...] = ("closed", "gone", "hangup")
#: Seconds: in which the console must end, of its own time; a machine that is busy gets more wall-clock time.
LIMIT_S, DEADLINE_S = 5.0, 60.0
#: Seconds. A console is up and has been used for a while after this.
LONGEST_S = 3.0
PROGRAM = """
import asyncio, sys, time
sys.path.insert(0, {here!r})
from clusters import demo

async def stop():
    await asyncio.sleep(0.3)

print("begin", flush=True)
app = demo().app(on_stop=stop)
app.run()
sys.exit(app.return_code)
"""


def seconds_to_end(ending: Ending, after_s: float, *, keys: bytes = b"") -> float | None:
    """Close the terminal `after_s` after the console began, right behind these keys; None if the console never ends."""
    master, worker = pty.openpty()
    termios.tcsetwinsize(master, (24, 80))
    program = PROGRAM.format(here=str(Path(__file__).parent))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=worker, stdout=worker, stderr=worker,
        env={**os.environ, "TERM": "xterm-256color"}, start_new_session=True,
        preexec_fn=None if ending == "gone" else (lambda: _take_terminal(0)),
    )  # fmt: skip
    os.close(worker)
    try:
        _read_for(master, DEADLINE_S, until=b"begin")
        _read_for(master, after_s)
        if keys:
            os.write(master, keys)
            _read_for(master, after_s % 0.4)
        if ending == "hangup":
            process.send_signal(signal.SIGHUP)
        else:
            os.close(master)
            master = -1
        began = time.monotonic()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic() - began
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if master >= 0:
            os.close(master)


def _take_terminal(descriptor: int) -> None:
    import fcntl

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def _read_for(master: int, seconds: float, until: bytes | None = None) -> None:
    """Read what the console writes, for so long or until it wrote this."""
    end, output = time.monotonic() + seconds, b""
    while time.monotonic() < end and (until is None or until not in output):
        if select.select([master], [], [], min(0.05, max(0.0, end - time.monotonic())))[0]:
            try:
                output += os.read(master, 65_536)
            except OSError:
                return


def draw(rng: random.Random) -> tuple[Ending, float, bytes]:
    """A random end: how, when, and the keys right before it."""
    return rng.choice(ENDINGS), rng.uniform(0.0, LONGEST_S), rng.choice([b"", b"", b"2", b"q", b"2q", b"\x03\x03"])


def main() -> int:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng, worst, failed = random.Random(seed), 0.0, 0
    for number in range(count):
        ending, after_s, keys = draw(rng)
        took = seconds_to_end(ending, after_s, keys=keys)
        worst = max(worst, took or 0.0)
        if took is None or took > LIMIT_S:
            failed += 1
            print(f"{number}: {ending} after {after_s:.2f} s and {keys!r}: ended after {took} s", flush=True)
    ended = f"{count - failed} consoles ended within {LIMIT_S:g} s; slowest {worst:.2f} s"
    print(f"{count} terminals closed (seed {seed}): {ended}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
