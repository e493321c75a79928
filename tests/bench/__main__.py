"""Runs the benchmarks, prints their table and updates RESULTS.md.

make bench                      all of them, about two hours
make bench ARGS=agent_cost      one; the other rows of RESULTS.md are kept
make bench ARGS=--quick         all of them, small and short, as a functional check: printed only
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

# Makes `from rig import Rig` and `from jobs import start_ring` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import RigUnavailable, pick_mode

from tests.bench.results_file import as_markdown, commit_of, kept_of, marked, read

from .conditions import conditions, is_older_than_its_code
from .result import Outcome, Row, as_text

#: Modules, in the order of the table.
BENCHES = (
    "first_sample", "check_fleet", "agent_cost", "gpu_cost", "start_up", "throughput", "wire_forms", "idle_digests",
    "store_memory",
    "hours_memory", "screen_widgets", "screen_live", "screen_memory", "clusters_cost", "whole_console", "hang_verdict",
    "hang_fold", "capture_cost", "capture_of_users", "watched_step", "why_cost", "clock_probes", "clock_paths",
    "clock_stamps", "clock_lines", "session_cost", "query_cost", "long_sessions", "longest_session", "job_plan",
    "job_output", "job_start", "http_metrics", "small_lateness", "fuzz",
)  # fmt: skip
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> int:
    parser = argparse.ArgumentParser("bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="BENCH", help=f"only these of {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="small and short; the goals are set for larger runs")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    wanted = [name for name in BENCHES if not options.names or name in options.names]
    outcomes = {}
    for name in wanted:
        began = time.monotonic()
        print(f"{name} …", file=sys.stderr, end=" ", flush=True)
        outcomes[name] = measure(name, options.quick)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if not options.quick:
            keep(name, outcomes[name])
    print(as_text(outcomes))
    if options.quick:
        print("\nquick: the goals are set for more nodes and longer runs")
    else:
        print(f"\nwritten to {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")
    return 0


def keep(name: str, outcome: Outcome) -> None:
    """Store the outcome in RESULTS.md; other rows are kept, and marked where their code has changed since."""
    kept = read(RESULTS.read_text()) | {name: kept_of(name, outcome, conditions(pick_mode().name))}
    kept = {
        bench: marked(stored, is_old=bench != name and is_older_than_its_code(bench, commit_of(stored)))
        for bench, stored in kept.items()
    }
    RESULTS.write_text(as_markdown(kept, BENCHES))


def measure(name: str, quick: bool) -> Outcome:
    """The outcome of one benchmark; if the machine cannot run it, a row with the reason."""
    try:
        outcome: Outcome = importlib.import_module(f".{name}", __package__).measure(quick)
    except RigUnavailable as error:
        return Outcome([Row(name, f"not measured: {error}")])
    return outcome


if __name__ == "__main__":
    sys.exit(main())
