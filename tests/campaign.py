"""Run long test campaigns, one named part at a time: `make campaign ARGS="soak"`.

    make campaign                          the parts and their progress
    make campaign ARGS="fuzz"              run a part, or resume it where it was interrupted
    make campaign ARGS="fuzz --restart"    run it from its first step
    make campaign ARGS="keys --share 1/2"  run every second step of it, beside another process with --share 2/2

A part is a list of steps, each a command. Completed steps are stored in .campaign/state.json. When all steps of a
part have ended, its row in tests/RESULTS.md is replaced: commit, date, duration and result. `make full` runs one slice
(`--slice`): a short command of the part whose slice ran longest ago.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".campaign"
STATE = FOLDER / "state.json"
RESULTS = ROOT / "tests" / "RESULTS.md"
PYTEST = ("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "full or not full")
KEYS = "tests/tui/test_key_sequences.py::test_5_000_random_sequences_end_nothing"
HEAD = """\
# Results of the test runs

The last result of each run and of each part of the campaign. Rows are written by `make campaign` (tests/campaign.py)
and by `make test ARGS=--write-results` (tests/run.py); what the faults and the benches measured is in
[faults/RESULTS.md](faults/RESULTS.md) and [bench/RESULTS.md](bench/RESULTS.md).

| run | commit | date | duration | result |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Part:
    """A named part: arguments of the Python interpreter for each step, by the step's name."""

    summary: str
    steps: Mapping[str, Sequence[str]]
    #: A command of at most 10 min for `make full`, a small version of the part; none if `make full` runs the same tests
    #: itself.
    slices: Sequence[Sequence[str]] = ()


def parts() -> dict[str, Part]:
    """Every part by its name."""
    ledger = ["--ledger", str(FOLDER / "faults.jsonl")]
    rounds = [f"round {number}" for number in (1, 2, 3)]
    return {
        "hangs": Part(
            "every labelled job live, three times alone and three times at a load of 8",
            {name: ["-m", "tests.hangs.rounds"] for name in rounds}
            | {f"{name}, loaded": ["-m", "tests.hangs.rounds", "--loaded"] for name in rounds},
        ),
        "collectives": Part(
            "jobs of 19 shapes of communication live: 20 diagnoses of each healthy one, slow and hung ones",
            {
                "with a recorder": ["-m", "tests.collectives.live", "--recorder", "with", "--times", "20"],
                "without": ["-m", "tests.collectives.live", "--recorder", "without", "--times", "20"],
            },
        ),
        "crashes": Part(
            "every labelled crash live, three times", {name: ["-m", "tests.crashes.rounds"] for name in rounds}
        ),
        "watch": Part(
            "40 faults under one watch, each alerted once; a job that slows down without a watched step; the evidence"
            " of 10 stalls in time; 24 hours of recorded healthy jobs without an alert",
            {
                "40 faults": ["-m", "tests.watch.night", "--jobs", "40"],
                "a slow job": ["-m", "tests.watch.slowdown"],
                "10 stalls": ["-m", "tests.watch.stalls"],
                "24 hours": ["-m", "tests.watch.replay_healthy", "--hours", "24"],
            },
            [["-m", "tests.watch.night", "--jobs", "6", "--stall-s", "6"]],
        ),
        "faults": Part(
            "every fault, three times; writes tests/faults/RESULTS.md",
            {name: ["-m", "tests.faults.results", *ledger] for name in rounds},
        ),
        "soak": Part(
            "an hour of random faults on 8 nodes: no leak, no lost record",
            {"one hour": ["-m", "tests.faults.soak"]},
            [["-m", "tests.faults.soak", "--for", "420"]],
        ),
        "gateways": Part(
            "an hour of 128 real agents behind two gateways, one of which is killed: no lost record",
            {"one hour": ["-m", "tests.faults.gateway_hour"]},
        ),
        "fuzz": Part(
            "every parser of external input, ten minutes each; 10^8 random inputs over all of them in 2.5 hours",
            {name: ["-m", "tests.fuzz", name, "--seconds", "600"] for name in TARGETS}
            | {"10^8 inputs": ["-m", "tests.fuzz.long_run"]},
            [["-m", "tests.fuzz", name, "--seconds", "120"] for name in TARGETS],
        ),
        "keys": Part(
            "10^5 random key sequences, each in one burst, end in nothing but keys that quit; 200 closed terminals",
            {
                f"{block + 1} of 20 × 5,000": [*PYTEST[:-1], "campaign", f"{KEYS}[{block}]"] for block in range(20)
            } | {"200 closed terminals": ["tests/tui/closing_terminal.py", "200"]},
        ),
        "long-session": Part(
            "a session of 10^8 records is opened, queried and exported",
            {"10^8 records": [*PYTEST[:-1], "campaign", "tests/sessions/test_long.py"]},
        ),
        "mutations": Part(
            "share of deliberate defects that `make quick` and `make test` notice",
            {tier: ["-m", "tests.mutations", "--tier", tier] for tier in ("quick", "test")},
        ),
    }  # fmt: skip


def run_part(name: str, part: Part, is_restarted: bool, share: tuple[int, int] = (1, 1)) -> int:
    """Run the steps of a part that are not completed yet; 0 if all steps of the part succeeded.

    `share`: (2, 3) runs the second of every three steps; other processes run the others at the same time.
    """
    done = read_state().get("parts", {}).get(name, {})
    if is_restarted or not set(part.steps) - done.keys():  # the part was completed: start over
        done = {}
        write_step(name, None, {})
    if not done and name == "faults":
        (FOLDER / "faults.jsonl").unlink(missing_ok=True)
    for step, argv in list(part.steps.items())[share[0] - 1 :: share[1]]:
        if step in done:
            continue
        print(f"--- {name}: {step}", flush=True)
        began = time.monotonic()
        status = subprocess.run([sys.executable, *argv], cwd=ROOT, check=False).returncode
        if status < 0:
            return 1  # interrupted: the step runs again next time
        result = {"status": status, "seconds": time.monotonic() - began, "commit": commit()}
        done = write_step(name, step, result)
    if set(part.steps) - done.keys():
        print(f"{name}: this share is done, {len(set(part.steps) - done.keys())} steps of others are not")
        return 1 if any(result["status"] for result in done.values()) else 0
    failed = [step for step in part.steps if done[step]["status"]]
    commits = list(dict.fromkeys(done[step]["commit"] for step in part.steps))
    seconds = sum(done[step]["seconds"] for step in part.steps)
    result = f"FAILED: {', '.join(failed)}" if failed else f"passed, {len(part.steps)} steps"
    write_row(f"campaign {name}", result, seconds, commits)
    print(f"{name}: {result}")
    return 1 if failed else 0


def run_slice() -> int:
    """Run the next slice and record it; its exit status."""
    state = read_state()
    rotation = [(name, argv) for name, part in parts().items() for argv in part.slices]
    number = int(state.get("slice", -1)) + 1
    name, argv = rotation[number % len(rotation)]
    print(f"\n--- slice of the campaign: {name} ({' '.join(argv[1:])})", flush=True)
    status = subprocess.run([sys.executable, *argv], cwd=ROOT, check=False).returncode
    write_state(state | {"slice": number % len(rotation)})
    return 1 if status else 0


def read_state() -> dict[str, Any]:
    """The stored progress; empty if nothing was run."""
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def write_state(state: Mapping[str, Any]) -> None:
    FOLDER.mkdir(exist_ok=True)
    STATE.write_text(json.dumps(state, indent=2))


def write_step(name: str, step: str | None, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Store the result of a step, beside those of other processes; without a step, none is completed.

    Returns the results of all steps of the part.
    """
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state()
        done = state.setdefault("parts", {}).setdefault(name, {})
        if step is None:
            done.clear()
        else:
            done[step] = result
        write_state(state)
    return done


def commit() -> str:
    """The short hash of the checkout; with a `+` if files differ from it."""
    argv = ["git", "describe", "--always", "--dirty=+", "--abbrev=8", "--exclude=*"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def write_row(run: str, result: str, seconds: float, commits: Sequence[str] = ()) -> None:
    """Replace the row of a run in RESULTS.md, or add it."""
    rows = {}
    if RESULTS.exists():
        lines = [line for line in RESULTS.read_text().splitlines() if line.startswith("| ")]
        rows = {line.split("|")[1].strip(): line for line in lines[2:]}
    minutes = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    date = datetime.now(UTC).date().isoformat()
    rows[run] = f"| {run} | {' to '.join(commits or [commit()])} | {date} | {minutes} | {result} |"
    RESULTS.write_text(HEAD + "".join(f"{rows[name]}\n" for name in sorted(rows)))


def describe() -> str:
    """One line per part: its steps, and how many of them are completed."""
    state = read_state().get("parts", {})
    return "\n".join(
        f"{name:14s} {len(state.get(name, {}))}/{len(part.steps)} steps  {part.summary}"
        for name, part in parts().items()
    )


def share_of(text: str) -> tuple[int, int]:
    """`2/3` as numbers. Raises ValueError."""
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


def main() -> int:
    parser = argparse.ArgumentParser(
        "campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=parts(), help="which part")
    parser.add_argument("--restart", action="store_true", help="from its first step")
    parser.add_argument("--slice", action="store_true", help="the next short slice, as `make full` does")
    parser.add_argument(
        "--share", type=share_of, default=(1, 1), metavar="I/N", help="only every Nth step, from the Ith"
    )
    options = parser.parse_args()
    if options.slice:
        return run_slice()
    if options.part is None:
        print(describe())
        return 0
    return run_part(options.part, parts()[options.part], options.restart, options.share)


if __name__ == "__main__":
    sys.exit(main())
