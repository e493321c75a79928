"""Runs the test groups, and prints each group's time, its skips by reason, and the ten slowest tests.

Groups are folders, ordered by how early they find a failure. `--quick` runs what fits into a minute, `--full` adds what
CI has no time for.

Failed tests run a second time, alone, because real servers and jobs share the cores with everything else. A test that
passes only then is listed as `unsteady`: a defect of that test, but no reason to fail the run. After more than `FEW`
failures in a group nothing is repeated.
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
    durations: list[tuple[float, str]] = field(default_factory=list)  # seconds, test
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)


#: Tier → which tests of a group it runs.
TIERS = {"quick": "not slow and not full", "test": "not full", "full": "full or not full"}
#: What `make quick` runs: logic, and the boundaries that need neither a cluster nor a job.
QUICK = ("unit",)


def run_group(name: str, tier: str, args: list[str]) -> Outcome:
    """Run one folder of tests, and again what failed in it, if that is little."""
    args = ["-m", TIERS[tier], *args]
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
        outcome.durations.append((float(case.get("time") or 0.0), f"{case.get('classname')}::{case.get('name')}"))
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
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", dest="tier", action="store_const", const="quick", default="test")
    tier.add_argument("--full", dest="tier", action="store_const", const="full")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; repeatable")
    options, args = parser.parse_known_args()
    present = [group for group in GROUPS if list((ROOT / "tests" / group).rglob("test_*.py"))]
    wanted = options.group or (QUICK if options.tier == "quick" else GROUPS)
    outcomes = [run_group(name, options.tier, args) for name in present if name in wanted]
    print()
    for outcome in outcomes:
        passed = outcome.passed + len(outcome.unsteady)
        words = f"{passed} passed, {outcome.failed} failed, {sum(outcome.skipped.values())} skipped"
        print(f"{outcome.name:10s} {outcome.seconds:6.1f} s  {words}")
        for reason, number in sorted(outcome.skipped.items()):
            print(f"{'':10s}   skipped {number}: {reason}")
        for test in outcome.unsteady:
            print(f"{'':10s}   unsteady, failed at first and passed alone: {test}")
    print("\nslowest tests:")
    for seconds, test in sorted((row for outcome in outcomes for row in outcome.durations), reverse=True)[:10]:
        print(f"  {seconds:6.1f} s  {test}")
    passed = sum(outcome.passed + len(outcome.unsteady) for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(sum(outcome.skipped.values()) for outcome in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if any(outcome.status for outcome in outcomes) or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
