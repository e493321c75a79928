"""Long sessions: synthetic ones have the product's format; a night of a fleet is processed in bounded memory."""

import sys
from pathlib import Path

import pytest

from gconsole.records import encode
from gconsole.session.format import reader
from gconsole.session.format.layout import named
from gconsole.session.format.manifest import read_manifest
from gconsole.session.record import recovery

sys.path.append(str(Path(__file__).parents[2]))  # tests.bench is a package

from tests.bench import longest_session
from tests.bench.fleet_minute import Fleet
from tests.bench.result import as_text
from tests.bench.session_maker import make_long


def test_generated_benchmark_session_is_sound_and_its_parquet_matches(tmp_path):
    session = named("few", tmp_path)

    meta = make_long(session, 3_000, fleet=Fleet(nodes=2, gpus=2))

    verified = recovery.verify(session)
    assert verified.is_sound and verified.records == meta.records >= 3_000
    assert sum(part.rows for part in read_manifest(session).parts) == meta.records
    in_segments = sorted(map(encode, reader.records(session.path)))
    for path in session.segments():
        path.unlink()
    assert sorted(map(encode, reader.records(session.path))) == in_segments


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_hundred_million_record_session_stays_within_the_memory_of_ten_million():
    result = longest_session.measure(quick=False)

    print(f"\n{as_text({'longest_session': result})}")
    assert not result.missed
