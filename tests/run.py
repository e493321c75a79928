"""Run the test groups side by side and print what each of them cost.

A group is a folder of `tests/`. Its files are distributed over as many pytest processes as `GROUPS` gives it (xdist
would collect the whole group in each of them). They start in the order of `GROUPS` while there are free slots, three
per core, because most tests wait for SSH servers, jobs and timers. `lint` (ruff, mypy, import rules) is one more group.

Tiers: `--quick` runs in a minute, `--full` adds the tests that are too long for CI and one slice of the campaign
(tests/campaign.py); without either, everything that is not marked `full` runs.

Failed tests run a second time, alone, after all groups have ended, if a group has at most `MAX_REPEATED` of them; the
parameters of a test count as one, because they share its fixtures. A test that passes only then is listed as unsteady.
It is a failure of `--full`, and no failure of the other tiers.

Output is in build/tests/GROUP.log, or GROUP-2.log and so on; where tests failed it is printed, too. If one group is
chosen with `--group`, it runs in one process, and its output is printed as it comes. Other arguments are passed on to
pytest.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for `tests.campaign`
LOGS = ROOT / "build" / "tests"
CORES = len(os.sched_getaffinity(0))
SLOTS = 3 * CORES
#: Failed tests per group that run a second time. More failures than these have a common cause.
MAX_REPEATED = 5

#: Group → its number of pytest processes. First those that wait most, last the one that needs the CPU all the time, so
#: that both cores are busy until the end.
GROUPS: Mapping[str, int] = {
    "lint": 1,
    "cluster": 2,
    "faults": 1,
    "clocks": 1,
    "sessions": 1,
    "hangs": 1,
    "collectives": 1,
    "watch": 1,
    "crashes": 1,
    "security": 1,
    "jobs": 1,
    "http": 1,
    "unit": 2,
    "gpus": 1,
    "tui": 4,
    "boundaries": 1,
}
#: Tier → which tests of a group it runs.
TIERS = {"quick": "not slow and not full and not campaign", "test": "not full and not campaign", "full": "not campaign"}
#: The groups of `make quick`: lint, logic with the boundaries that need nothing but this machine (a session written and
#: read, SQL, export, stacks by py-spy, a local transport, the command line), and one test of each other boundary.
QUICK = ("lint", "unit", "boundaries")
#: Boundary → its test in `make quick`. The other tiers run them with their groups.
BOUNDARIES: Mapping[str, str] = {
    "sshd": "tests/cluster/test_connection_loss.py::test_node_reconnects_after_its_sshd_session_ends",
    "HTTP": "tests/http/test_resources.py::test_two_clients_are_answered_side_by_side",
    "NVML": "tests/gpus/test_agent.py::test_driver_version_mismatch_is_listed_as_a_missing_capability",
    "tmux": "tests/tui/test_in_tmux.py::test_ctrl_c_twice_quits_and_leaves_no_process_or_file",
    "screen": "tests/tui/test_screens.py::TestFrames::test_lost_node_is_shown_on_the_overview",
}


@dataclass(frozen=True)
class Part:
    """What one process of a group runs; `number` counts from 1."""

    group: str
    number: int = 1
    of: int = 1

    @property
    def name(self) -> str:
        """The name of its log and its report."""
        return self.group if self.number == 1 else f"{self.group}-{self.number}"

    def targets(self) -> list[str]:
        """Its files, or the folder of the whole group. Large files are distributed first, so that parts are alike."""
        if self.group == "boundaries":
            return list(BOUNDARIES.values())
        if self.of == 1:
            return [f"tests/{self.group}"]
        files = sorted((ROOT / "tests" / self.group).rglob("test_*.py"), key=lambda file: -file.stat().st_size)
        parts: list[list[Path]] = [[] for _ in range(self.of)]
        for file in files:
            min(parts, key=lambda part: sum(other.stat().st_size for other in part)).append(file)
        return sorted(str(file.relative_to(ROOT)) for file in parts[self.number - 1])


@dataclass
class Outcome:
    """Result and cost of one group. Seconds and CPU seconds include a second run of failed tests."""

    group: str
    status: int = 0
    seconds: float = 0.0  # of its longest part
    cpu_s: float = 0.0
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)  # failed at first and passed when run again
    durations: list[tuple[float, str]] = field(default_factory=list)  # seconds, test
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)  # by reason
    failed_parts: list[Part] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the outcome of another part of the group, which ran at the same time."""
        self.status = self.status or other.status
        self.seconds = max(self.seconds, other.seconds)
        self.cpu_s += other.cpu_s
        self.passed += other.passed
        self.failed += other.failed
        self.durations += other.durations
        self.skipped += other.skipped
        self.failed_parts += other.failed_parts


@dataclass
class Running:
    """A part of a group whose process has not ended."""

    part: Part
    process: subprocess.Popen[bytes]
    began: float


def run_groups(groups: Sequence[str], tier: str, args: Sequence[str]) -> list[Outcome]:
    """Run these groups, as many processes at once as there are slots; their outcomes in the order of `groups`."""
    is_live = len(groups) == 1
    numbers = {group: 1 if is_live else GROUPS[group] for group in groups}
    waiting = [Part(group, number, of) for group, of in numbers.items() for number in range(1, of + 1)]
    running: dict[int, Running] = {}
    outcomes = {group: Outcome(group) for group in groups}
    with _ended_at_exit(running):
        while waiting or running:
            while waiting and len(running) < SLOTS:
                part = waiting.pop(0)
                process = _start(part, tier, args, is_live)
                running[process.pid] = Running(part, process, time.monotonic())
            pid, status, usage = os.wait4(-1, 0)
            run = running.pop(pid)
            run.process.returncode = os.waitstatus_to_exitcode(status)
            outcome = read_outcome(run.part, run.process.returncode)
            outcome.seconds = time.monotonic() - run.began
            outcome.cpu_s = usage.ru_utime + usage.ru_stime
            print(f"{_line(outcome, run.part.name)}{'' if not outcome.status else '  FAILED'}", flush=True)
            if outcome.status and not is_live:
                print(_log(run.part).read_text(errors="replace"), flush=True)
            outcomes[run.part.group].add(outcome)
    return [outcomes[group] for group in groups]


def repeat_failed(outcome: Outcome, tier: str, args: Sequence[str]) -> None:
    """Run the failed tests of a group again, alone, and move those that pass then to `unsteady`."""
    functions = {test.partition("[")[0] for test in outcome.failed}
    if outcome.status != 1 or not 0 < len(functions) <= MAX_REPEATED:
        return
    print(f"\n{outcome.group}: {len(outcome.failed)} failed; running them again, alone", flush=True)
    began, before = time.monotonic(), _children_cpu_s()
    again = ["--last-failed", "--last-failed-no-failures=none"]
    status, passed = 0, set[str]()
    for part in outcome.failed_parts:
        second = read_outcome(part, _start(part, tier, [*again, *args], is_live=True).wait())
        status = status or second.status
        passed.update(second.passed)
    outcome.seconds += time.monotonic() - began
    outcome.cpu_s += _children_cpu_s() - before
    outcome.unsteady = [test for test in outcome.failed if test in passed]
    outcome.failed = [test for test in outcome.failed if test not in passed]
    if not outcome.failed and not status:
        outcome.status = 0


def _start(part: Part, tier: str, args: Sequence[str], is_live: bool) -> subprocess.Popen[bytes]:
    if part.group == "lint":
        argv = [sys.executable, "tests/lint.py"]
    else:
        _report(part).unlink(missing_ok=True)
        argv = [
            sys.executable, "-m", "pytest", *part.targets(), "-q", "--no-header", f"--junitxml={_report(part)}",
            "-o", f"cache_dir={LOGS / part.name}", "-m", TIERS[tier], *_without_plugins(part.group), *args,
        ]  # fmt: skip
    environment = {**os.environ, "TEST_TIER": tier}  # how many examples a property test draws
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a thousand processes compiles its modules again
    common = {"cwd": ROOT, "env": environment, "preexec_fn": _restore_signals}
    if is_live:
        return subprocess.Popen(argv, **common)
    with _log(part).open("wb") as log:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        return subprocess.Popen(argv, **common, **pipes)


def _without_plugins(group: str) -> Iterator[str]:
    """Options against the plugins that no test of the group uses: to import them all takes a second and a half."""
    yield from ("-p", "no:anyio")
    if group not in ("http", "boundaries"):
        yield from ("-p", "no:schemathesis")
    if group not in ("tui", "boundaries"):
        yield from ("-p", "no:textual-snapshot")


def _restore_signals() -> None:
    """Signals as in a terminal, also below `nohup` and in a background job: tests send them to what they start."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def _ended_at_exit(running: Mapping[int, Running]) -> Iterator[None]:
    """End what still runs when the run is interrupted, so that rigs are removed."""
    try:
        yield
    finally:
        for run in running.values():
            run.process.terminate()
        for run in running.values():
            run.process.wait()


def read_outcome(part: Part, status: int) -> Outcome:
    """The outcome by pytest's exit status and its junit report; status 5 (no test selected) is a success."""
    outcome = Outcome(part.group, 0 if status == 5 else status)
    outcome.failed_parts = [part] if outcome.status else []
    if part.group == "lint" or not _report(part).exists():
        return outcome
    for case in ET.parse(_report(part)).getroot().iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        outcome.durations.append((float(case.get("time") or 0.0), test))
        skipped = case.find("skipped")
        if skipped is not None:
            outcome.skipped[re.sub(r"^Skipped: ", "", skipped.get("message") or "no reason given")] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.append(test)
        else:
            outcome.passed.append(test)
    return outcome


def _log(part: Part) -> Path:
    return LOGS / f"{part.name}.log"


def _report(part: Part) -> Path:
    return LOGS / f"{part.name}.xml"


def _children_cpu_s() -> float:
    """CPU seconds of all descendants that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _line(outcome: Outcome, name: str = "") -> str:
    counts = "" if outcome.group == "lint" else (
        f"{len(outcome.passed) + len(outcome.unsteady)} passed, {len(outcome.failed)} failed,"
        f" {outcome.skipped.total()} skipped"
    )  # fmt: skip
    return f"{name or outcome.group:10s} {outcome.seconds:6.1f} s {outcome.cpu_s:7.1f} CPU s  {counts}".rstrip()


def summary(outcomes: Sequence[Outcome], seconds: float) -> Iterator[str]:
    """Lines about each group, the ten slowest tests, and the whole run."""
    for outcome in outcomes:
        yield _line(outcome)
        for reason, number in sorted(outcome.skipped.items()):
            yield f"{'':10s}   skipped {number}: {reason}"
        for test in outcome.unsteady:
            yield f"{'':10s}   unsteady, failed at first and passed alone: {test}"
        for test in outcome.failed:
            yield f"{'':10s}   failed: {test}"
    yield "\nslowest tests:"
    rows = sorted((row for outcome in outcomes for row in outcome.durations), reverse=True)
    yield from (f"  {duration:6.1f} s  {test}" for duration, test in rows[:10])
    unsteady = sum(len(outcome.unsteady) for outcome in outcomes)
    passed = sum(len(outcome.passed) for outcome in outcomes) + unsteady
    failed = sum(len(outcome.failed) for outcome in outcomes)
    skipped = sum(outcome.skipped.total() for outcome in outcomes)
    yield f"\n{passed} passed ({unsteady} unsteady), {failed} failed, {skipped} skipped"
    yield f"{seconds:.0f} s, {_children_cpu_s():.0f} CPU s on {CORES} cores"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", dest="tier", action="store_const", const="quick", default="test")
    tier.add_argument("--full", dest="tier", action="store_const", const="full")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; repeatable")
    parser.add_argument("--write-results", action="store_true", help="write the row of this run in tests/RESULTS.md")
    options, args = parser.parse_known_args()
    began = time.monotonic()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    everything = [group for group in GROUPS if group != "boundaries"]
    wanted = options.group or (QUICK if options.tier == "quick" else everything)
    outcomes = run_groups([group for group in GROUPS if group in wanted], options.tier, args)
    for outcome in outcomes:
        repeat_failed(outcome, options.tier, args)
    status = 0 if all(outcome.status == 0 for outcome in outcomes) else 1
    if options.tier == "full":
        status = status or int(any(outcome.unsteady for outcome in outcomes))
        if options.group is None:
            slice_status = subprocess.run([sys.executable, "-m", "tests.campaign", "--slice"], cwd=ROOT).returncode
            status = status or slice_status
    print()
    print("\n".join(summary(outcomes, time.monotonic() - began)), flush=True)
    if options.write_results:
        from tests import campaign

        result = list(summary(outcomes, 0))[-2].strip()
        cpu = f"{_children_cpu_s():.0f} CPU s on {CORES} cores"
        campaign.write_row(f"make {options.tier}", f"{result}; {cpu}", time.monotonic() - began)
    has_passed = any(outcome.passed or outcome.unsteady or outcome.group == "lint" for outcome in outcomes)
    return status if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
