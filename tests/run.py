"""Runs the test groups one after the other, prints each group's time, and counts what was skipped, by reason.

The groups are folders, in the order in which a failure is cheapest to find. `--full` adds what CI has no time for.
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
GROUPS = ("unit", "clocks", "tui", "demo", "gpus", "sessions", "cluster", "hangs", "jobs", "security", "faults")


@dataclass
class Outcome:
    """What one group did."""

    name: str
    seconds: float
    status: int
    passed: int = 0
    failed: int = 0
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)


def run_group(name: str, full: bool, args: list[str]) -> Outcome:
    """Run one folder of tests; pytest's own exit code 5 (nothing collected) is no failure of the group."""
    with TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        argv = [
            sys.executable, "-m", "pytest", f"tests/{name}", "-q", "--no-header", f"--junitxml={report}",
            "-m", "full or not full" if full else "not full", *args,
        ]  # fmt: skip
        began = time.monotonic()
        status = subprocess.run(argv, cwd=ROOT, check=False).returncode
        outcome = Outcome(name, time.monotonic() - began, 0 if status == 5 else status)
        if report.exists():
            count(report, outcome)
    return outcome


def count(report: Path, outcome: Outcome) -> None:
    """Add what a junit report says."""
    for case in ET.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            outcome.skipped[re.sub(r"^Skipped: ", "", skipped.get("message") or "no reason given")] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        else:
            outcome.passed += 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; repeatable")
    options, args = parser.parse_known_args()
    present = [group for group in GROUPS if list((ROOT / "tests" / group).rglob("test_*.py"))]
    outcomes = [run_group(name, options.full, args) for name in present if name in (options.group or GROUPS)]
    print()
    for outcome in outcomes:
        words = f"{outcome.passed} passed, {outcome.failed} failed, {sum(outcome.skipped.values())} skipped"
        print(f"{outcome.name:10s} {outcome.seconds:6.1f} s  {words}")
        for reason, number in sorted(outcome.skipped.items()):
            print(f"{'':10s}   skipped {number}: {reason}")
    passed, failed = (sum(getattr(outcome, word) for outcome in outcomes) for word in ("passed", "failed"))
    skipped = sum(sum(outcome.skipped.values()) for outcome in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if any(outcome.status for outcome in outcomes) or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
