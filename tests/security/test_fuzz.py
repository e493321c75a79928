"""Every parser of external input, with inputs that once caused failures and a few hundred random ones."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[2]))  # `tests.fuzz` does not depend on a conftest

from tests.fuzz.__main__ import FuzzResult
from tests.fuzz.long_run import Progress
from tests.fuzz.mutate import varied
from tests.fuzz.targets import FOUND, TARGETS

REGRESSIONS = [(name, path) for name in TARGETS for path in sorted((FOUND / name).glob("*"))]


@pytest.mark.parametrize(("name", "path"), REGRESSIONS, ids=[f"{name}: {path.name}" for name, path in REGRESSIONS])
def test_past_fuzz_findings_are_handled(name: str, path: Path) -> None:
    TARGETS[name].read(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_arbitrary_input_raises_only_declared_errors(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(seeds), st.integers(0, 2**32), st.one_of(st.none(), st.binary(max_size=200)))
    def tried(seed: bytes, number: int, plain: bytes | None) -> None:
        target.read(varied(seed, random.Random(number)) if plain is None else plain)

    tried()


def test_long_run_gives_slow_targets_their_time_and_fast_ones_a_tenth_of_the_inputs() -> None:
    progress = Progress(tuple(TARGETS), goal=1000, hours=len(TARGETS) / 3600, workers=1)
    rates = {name: 3 if name in ("parquet", "segment") else 30 for name in TARGETS}
    while (name := progress.next_target(set())) is not None:
        progress.add(FuzzResult(name, min(rates[name], 100 - progress.inputs[name]), 0.5, "random"))
    assert {name: progress.inputs[name] for name in ("parquet", "segment", "record")} == {
        "parquet": 6, "segment": 6, "record": 60,
    }  # fmt: skip
    assert sum(progress.inputs.values()) >= 1000
    progress.add(FuzzResult("wire", 1, 0.1, "random", "it failed"))
    assert [failed.name for failed in progress.failures] == ["wire"]
