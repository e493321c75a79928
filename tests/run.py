"""Runs the test groups one after the other, prints each group's time, and counts what was skipped, by reason.

The groups are folders, in the order in which a failure is cheapest to find. `--full` adds what CI has no time for.

What fails is run a second time, alone: real servers and jobs share their cores with whatever else the machine does.
A test that passes only then is named as `unsteady`, which is a fault of that test and to be mended, but it does not
hold up everybody's work; when many fail, something is broken, and nothing is tried again.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
#: Groups whose tests need nothing of the machine but time: a worker for each core.
PARALLEL = ("unit", "tui")
#: With more failures than these, a second run would only tell the same again.
FEW = 5
GROUPS = (
    "unit", "clocks", "tui", "demo", "gpus", "sessions", "cluster", "hangs", "jobs", "http", "security", "faults",
)  # fmt: skip


@dataclass
class Outcome:
    """What one group did."""

    name: str
    seconds: float
    status: int
    passed: int = 0
    failed: int = 0
    names: list[str] = field(default_factory=list)  # of those that passed
    unsteady: list[str] = field(default_factory=list)  # of those that passed at their second run only
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)


def run_group(name: str, full: bool, args: list[str]) -> Outcome:
    """Run one folder of tests, and again what failed in it, if that is little."""
    args = ["-m", "full or not full" if full else "not full", *args]
    with TemporaryDirectory() as scratch:
        workers = ["-n", str(os.cpu_count() or 1)] if name in PARALLEL else []
        outcome = run_pytest(name, Path(scratch), [*workers, *args])
        if outcome.status == 1 and 0 < outcome.failed <= FEW:
            again = run_pytest(name, Path(scratch), ["--last-failed", "--last-failed-no-failures=none", *args])
            if again.passed == outcome.failed and not again.status:
                outcome = replace(outcome, status=0, failed=0, unsteady=again.names)
            outcome = replace(outcome, seconds=outcome.seconds + again.seconds)
    return outcome


def run_pytest(name: str, scratch: Path, args: list[str]) -> Outcome:
    """One run of pytest over one folder; its own exit code 5 (nothing collected) is no failure of the group."""
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    argv = [
        sys.executable, "-m", "pytest", f"tests/{name}", "-q", "--no-header", f"--junitxml={report}",
        "-o", f"cache_dir={scratch}", *args,
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
            outcome.names.append(f"{case.get('classname')}::{case.get('name')}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; repeatable")
    options, args = parser.parse_known_args()
    present = [group for group in GROUPS if list((ROOT / "tests" / group).rglob("test_*.py"))]
    outcomes = [run_group(name, options.full, args) for name in present if name in (options.group or GROUPS)]
    print()
    for outcome in outcomes:
        passed = outcome.passed + len(outcome.unsteady)
        words = f"{passed} passed, {outcome.failed} failed, {sum(outcome.skipped.values())} skipped"
        print(f"{outcome.name:10s} {outcome.seconds:6.1f} s  {words}")
        for reason, number in sorted(outcome.skipped.items()):
            print(f"{'':10s}   skipped {number}: {reason}")
        for test in outcome.unsteady:
            print(f"{'':10s}   unsteady, failed at first and passed alone: {test}")
    passed = sum(outcome.passed + len(outcome.unsteady) for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(sum(outcome.skipped.values()) for outcome in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if any(outcome.status for outcome in outcomes) or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
