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
        Row(f"fuzz {result.name}: {TARGETS[result.name].what}", f"{result.inputs:,} inputs in {result.seconds:.0f} s",
            "nothing found", not result.failure)
        for result in tried
    ]  # fmt: skip
    return Outcome(
        [*rows, Row("fuzz, all targets", f"{sum(result.inputs for result in tried):,} inputs in "
                    f"{sum(result.seconds for result in tried):.0f} s", "nothing found",
                    not any(result.failure for result in tried))],
        [
            f"{'atheris (libFuzzer)' if tried[0].how == 'atheris' else 'random changes'}, each target one process at"
            " nice 19 with 1.5 GB of memory and 20 s an input; a failure is any exception that is not declared, any"
            " record in another node's name, any text that steers a terminal",
        ],
    )  # fmt: skip
