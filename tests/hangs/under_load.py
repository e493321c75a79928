"""Runs the tests of the labelled jobs beside busy loops: `python -m tests.hangs.under_load [LOOPS]`, 8 by default."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUSY = "while True: sum(range(100_000))"


def main() -> int:
    loops = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        tests = ["-q", "--no-header", "-p", "no:cacheprovider", "-m", "full or not full", "tests/hangs"]
        return subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=ROOT).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
