"""Recorded jobs through the watch, at full speed: healthy ones alert nobody, hung and crashed ones do."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gconsole.config.sections import WatchConfig
from tests.crashes.labels import RECORDINGS as CRASHES
from tests.hangs.recording import RECORDINGS as HANGS

from .replay_healthy import healthy, records_of, replay, replay_all
from .replay_session import replay as replay_session

LEAST_JOBS = 40
#: Jobs of `live_healthy` that evaluate, save, and wait for data on one rank, cut out of its session.
RECORDINGS = Path(__file__).parent / "recordings"
LEAST_SECONDS = 100.0


@pytest.fixture(autouse=True)
def without_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_healthy_jobs_raise_no_error_alert() -> None:
    recordings = healthy()
    assert len(recordings) >= LEAST_JOBS
    total = replay_all(recordings, seed=1, rounds=2)
    assert total.replays == 2 * len(recordings)
    assert not total.alerts["error"], total.examples


@pytest.mark.parametrize(
    ("recording", "id"),
    [
        (HANGS / "sleeps_in_step.ndjson.xz", "rank_missing"),
        (HANGS / "two_in_a_cycle.ndjson.xz", "p2p_cycle"),
        (CRASHES / "raises-redirected.ndjson.xz", "exception"),
        (CRASHES / "segfault.ndjson.xz", "signalled"),
    ],
)
def test_same_replay_alerts_once_on_a_job_that_hangs_or_crashes(recording: Path, id: str) -> None:
    result = asyncio.run(replay(recording.name, records_of(recording), random.Random(recording.name)))
    assert result.alerts["error"] == 1, result.examples
    assert any(f" {id}: " in example for example in result.examples)


@pytest.mark.parametrize("recording", sorted(RECORDINGS.glob("*.ndjson.xz")), ids=lambda path: path.name.split(".")[0])
def test_job_that_was_once_called_hung_or_slow_raises_no_alert(recording: Path) -> None:
    result = asyncio.run(replay_session(recording, WatchConfig(), speed=0.0)).result
    assert result.seconds > LEAST_SECONDS
    assert not result.examples
