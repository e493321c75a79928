"""Runs the benches, prints their table and, after a full run of all of them, writes RESULTS.md.

    python tests/bench/run.py                    all of them, about fifteen minutes, and RESULTS.md
    python tests/bench/run.py agent_cost         one, printed only
    python tests/bench/run.py --quick            all of them, small and short: do they work?
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# As packages, wherever this is started from: this folder and the tests' rig and jobs.
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "cluster"))

from rig import pick_mode

from bench.conditions import conditions
from bench.result import Outcome, as_markdown, as_text

#: Modules, in the order of the table.
BENCHES = ("first_sample", "agent_cost", "start_up", "throughput", "store_memory")
RESULTS = HERE / "RESULTS.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="only these; nothing is written then")
    parser.add_argument("--quick", action="store_true", help="small and short: do they work? Nothing is written")
    options = parser.parse_args()
    wanted = [name for name in BENCHES if not options.bench or name in options.bench]
    outcomes = {}
    for name in wanted:
        began = time.monotonic()
        print(f"{name} …", file=sys.stderr, end=" ", flush=True)
        outcomes[name] = measure(name, options.quick)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(as_text(outcomes))
    if options.quick or options.bench:
        return 0
    RESULTS.write_text(as_markdown(outcomes, conditions(pick_mode().name)))
    print(f"\nwritten to {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")
    return 0


def measure(name: str, quick: bool) -> Outcome:
    outcome: Outcome = importlib.import_module(f"bench.{name}").measure(quick)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
