"""Number of fuzzing inputs per parser of external input, and the failures found."""

from __future__ import annotations

import os

from tests.fuzz.__main__ import SECONDS, run
from tests.fuzz.targets import TARGETS

from .result import Outcome, Row


def measure(quick: bool) -> Outcome:
    seconds = 2 if quick else int(os.environ.get("GCONSOLE_FUZZ_SECONDS", SECONDS))
    tried = [run(target, seconds) for target in TARGETS.values()]
    rows = [
        Row(f"fuzz {one.name}: {TARGETS[one.name].what}", f"{one.inputs:,} inputs in {one.seconds:.0f} s",
            "nothing found", not one.failure)
        for one in tried
    ]  # fmt: skip
    return Outcome(
        [*rows, Row("fuzz, all targets", f"{sum(one.inputs for one in tried):,} inputs in "
                    f"{sum(one.seconds for one in tried):.0f} s", "nothing found", not any(o.failure for o in tried))],
        [
            f"{'atheris (libFuzzer)' if tried[0].how == 'atheris' else 'random changes'}, each target one process at"
            " nice 19 with 1.5 GB of memory and 20 s an input; a failure is any exception that is not declared, any"
            " record in another node's name, any text that steers a terminal",
        ],
    )  # fmt: skip
