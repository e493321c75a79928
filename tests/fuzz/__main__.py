"""Runs each target for a while and prints the number of inputs. Exit code 1 if one failed.

With atheris (`pip install -e .[fuzz]`) libFuzzer chooses the inputs by coverage; without it valid inputs are
mutated at random. A failing input is kept in `.fuzz/NAME/`, beside the corpus that later runs continue from.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from .mutate import varied
from .targets import FOUND, TARGETS, Target

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".fuzz"
SECONDS = 60
RSS_MB = 1500


@dataclass(frozen=True)
class FuzzResult:
    """The result of one target."""

    name: str
    inputs: int
    seconds: float
    how: str  # atheris, or random
    failure: str = ""  # the input that failed, and how


def run(target: Target, seconds: int) -> FuzzResult:
    """Fuzz one target."""
    if importlib.util.find_spec("atheris") is None:
        return at_random(target, seconds)
    folder = PLACE / target.name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed{number}").write_bytes(seed)
    argv = [
        sys.executable, "-m", "tests.fuzz.run_target", target.name, str(corpus), str(FOUND / target.name),
        f"-max_total_time={seconds}", f"-max_len={target.most}", f"-rss_limit_mb={RSS_MB}", "-timeout=20",
        "-print_final_stats=1", f"-dict={Path(__file__).parent / 'dictionary.txt'}", f"-artifact_prefix={folder}/",
    ]  # fmt: skip
    (FOUND / target.name).mkdir(exist_ok=True)
    began = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False,
                          preexec_fn=lambda: os.nice(19))  # fmt: skip
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    failure = "" if done.returncode == 0 else _failure_summary(done.stderr)
    return FuzzResult(target.name, int(counted[1]) if counted else 0, time.monotonic() - began, "atheris", failure)


def _failure_summary(output: str) -> str:
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if "Uncaught" in line or "ERROR" in line), 0)
    kept = next((line for line in lines if "artifact_prefix" in line), "")
    return "\n".join([*lines[start : start + 15], kept])


def at_random(target: Target, seconds: float, most: int | None = None) -> FuzzResult:
    """Mutate valid inputs, and those that once failed, at random; at most that many."""
    draw, inputs, began = random.Random(), 0, time.monotonic()
    seeds = target.seeds() + [path.read_bytes() for path in sorted((FOUND / target.name).glob("*"))]
    while time.monotonic() - began < seconds and (most is None or inputs < most):
        for _ in range(32):  # between looks at the clock
            data = varied(draw.choice(seeds), draw)[: target.most]
            inputs += 1
            try:
                target.read(data)
            except Exception:  # any exception is a failure
                kept = PLACE / target.name
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"failed-{os.getpid()}-{inputs}").write_bytes(data)
                reason = traceback.format_exc(limit=-4)
                return FuzzResult(target.name, inputs, time.monotonic() - began, "random", reason)
    return FuzzResult(target.name, inputs, time.monotonic() - began, "random")


def main() -> int:
    parser = argparse.ArgumentParser("fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"only these of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each target")
    options = parser.parse_args()
    unknown = set(options.names) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target {', '.join(sorted(unknown))}")
    failed = False
    for name, target in TARGETS.items():
        if options.names and name not in options.names:
            continue
        result = run(target, options.seconds)
        failed = failed or bool(result.failure)
        verdict = f"FAILED\n{result.failure}" if result.failure else "nothing found"
        print(
            f"{name:10s} {result.inputs:>10,} inputs in {result.seconds:4.0f} s ({result.how})  {verdict}", flush=True
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
