"""kill -9 at any time: acknowledged records are kept, none is torn, and the session can be resumed by name."""

import asyncio
import multiprocessing
import os
import random
from collections import defaultdict
from pathlib import Path

import pytest
from record_stream import stream

from gconsole.session.format import reader
from gconsole.session.format.layout import Session
from gconsole.session.record import recovery

KILLS_EACH = 10


def stream_and_kill(folder: Path, name: str, agent: str, after_lines: int) -> tuple[int, int]:
    """Run the stream and kill it after that many lines; the last sequence numbers published and kept."""
    reading, writing = os.pipe()
    # Forked, because a new interpreter's imports take longer than the recording.
    process = multiprocessing.get_context("fork").Process(target=_stream, args=(folder, name, agent, reading, writing))
    process.start()
    os.close(writing)
    with os.fdopen(reading) as out:
        lines = [out.readline() for _ in range(after_lines)]
        process.kill()
        lines += out.readlines()
    process.join()
    published, kept = map(int, [line for line in lines if line.endswith("\n")][-1].split())
    return published, kept


def _stream(folder: Path, name: str, agent: str, reading: int, writing: int) -> None:
    os.close(reading)  # otherwise it continues if the test is killed
    with os.fdopen(writing, "w") as out:
        asyncio.run(stream(folder, name, agent, out))


@pytest.mark.timeout(170)
@pytest.mark.parametrize("number", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3, 4))])
def test_acknowledged_records_survive_ten_kills_of_one_session(tmp_path, number):
    chance = random.Random(number)
    session = Session(tmp_path / "night")
    promised = {}
    for kill in range(KILLS_EACH):
        agent = f"agent{kill}"
        promised[agent] = stream_and_kill(tmp_path, "night", agent, chance.randrange(1, 400))
        damages = []
        numbers = defaultdict(list)
        for record in reader.lenient(session.path, damages.append):
            numbers[record.agent].append(record.seq)
        assert all(damage.what == "torn" for damage in damages)
        for agent, (_, kept) in promised.items():
            numbers_of_agent = numbers.get(agent, [])
            assert numbers_of_agent == list(range(1, len(numbers_of_agent) + 1)), "no gap, and in order of arrival"
            assert len(numbers_of_agent) >= kept, "an acknowledged record is on the disk"
        assert session.read().state == "recording"
        assert not session.is_being_written()
    recovered = recovery.recover(session)
    assert recovered.is_sound
    meta = session.read()
    assert meta.state == "closed"
    assert [part.how for part in meta.parts] == ["crashed"] * KILLS_EACH
    assert meta.records == sum(meta.counts.values()) == sum(1 for _ in reader.records(session.path))
    assert recovery.verify(session).is_sound
    assert any(kept for _, kept in promised.values()), "some runs acknowledged records before the kill"
