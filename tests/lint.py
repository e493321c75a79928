"""Lint, types and import rules; each prints its time, and the first that fails ends the run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "ruff": [BIN / "ruff", "check", "--quiet", "."],
    "mypy": [BIN / "mypy", "console"],
    "mypy agent": [BIN / "mypy", "remote"],
    "imports": [BIN / "lint-imports", "--no-cache"],
}


def main() -> int:
    for name, argv in CHECKS.items():
        began = time.monotonic()
        done = subprocess.run([str(word) for word in argv], cwd=ROOT, capture_output=True, text=True, check=False)
        word = "passed" if done.returncode == 0 else "FAILED"
        print(f"{name:10s} {word}  {time.monotonic() - began:6.1f} s", flush=True)
        if done.returncode:
            print(done.stdout + done.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
