"""Lint, types and import rules in parallel; each check prints its time, failed ones their output."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "mypy": [BIN / "mypy", "console"],
    "mypy agent": [BIN / "mypy", "--cache-dir", ".mypy_cache/agent", "remote"],
    "imports": [BIN / "lint-imports", "--no-cache"],
    "structure": [sys.executable, ROOT / "tests" / "structure.py", "--check"],
    "ruff": [BIN / "ruff", "check", "--quiet", "."],
    "format": [BIN / "ruff", "format", "--quiet", "--check", "."],
}


def run_check(name: str) -> bool:
    """Run one check and print its line; whether it passed."""
    began = time.monotonic()
    argv = [str(argument) for argument in CHECKS[name]]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    result = "passed" if done.returncode == 0 else "FAILED"
    output = done.stdout + done.stderr if done.returncode else ""
    print(f"{name:10s} {result}  {time.monotonic() - began:6.1f} s\n{output}".rstrip(), flush=True)
    return done.returncode == 0


def main() -> int:
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(run_check, CHECKS))) else 1


if __name__ == "__main__":
    sys.exit(main())
