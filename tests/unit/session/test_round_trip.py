"""Round trip of arbitrary records through files; truncated or corrupted files are read or reported as damaged."""

import asyncio
from collections import Counter

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_builders import any_record
from session_files import crashed_session

from gconsole.core.bus import Hub
from gconsole.records import KINDS, encode
from gconsole.session.format import reader, zstd_frames
from gconsole.session.format.layout import named
from gconsole.session.format.redact import Redactor
from gconsole.session.manage.retention import Limits
from gconsole.session.record import recovery
from gconsole.session.record.recorder import Recorder
from gconsole.session.record.selection import select

ANY_RECORD = st.sampled_from(sorted(KINDS)).flatmap(any_record)
ROUGH = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@ROUGH
@given(batches=st.lists(st.lists(ANY_RECORD, min_size=1, max_size=4), max_size=4), segment_bytes=st.integers(1, 4096))
def test_any_recorded_record_is_read_back_in_arrival_order(batches, segment_bytes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")

    async def record() -> None:
        hub = Hub()
        recorder = Recorder(hub, folder, Limits(), lambda: (), segment_bytes=segment_bytes)
        await recorder.start("night", select(locals_too=True))
        for batch in batches:
            hub.publish(batch)
        await recorder.close()

    asyncio.run(record())
    session = named("night", folder)
    consoles = {part.console for part in session.read().parts}
    redact = Redactor(locals_too=True)
    expected = [encode(redact(one)) for batch in batches for one in batch]
    assert [encode(one) for one in reader.records(session.path) if one.agent not in consoles] == expected
    found = recovery.verify(session)
    assert found.is_sound
    assert found.records == session.read().records


@pytest.mark.slow
@ROUGH
@given(data=st.data())
def test_truncated_or_bit_flipped_segment_yields_only_records_that_were_written(data, tmp_path_factory):
    batches = data.draw(st.lists(st.lists(ANY_RECORD, min_size=1, max_size=3), min_size=1, max_size=5))
    session = crashed_session(tmp_path_factory.mktemp("sessions"), "night", batches)
    (path,) = session.segments()
    whole = path.read_bytes()
    ends = [frame.end for frame in zstd_frames.scan(path) if isinstance(frame, zstd_frames.Frame)]
    hurt = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    flips = data.draw(st.lists(st.integers(0, 8 * len(hurt) - 1), max_size=4)) if hurt else []
    for bit in flips:
        hurt[bit // 8] ^= 1 << bit % 8
    path.write_bytes(hurt)

    damages: list[zstd_frames.Damage] = []
    came = [encode(one) for one in reader.lenient(session.path, damages.append)]

    written = [encode(one) for batch in batches for one in batch]
    assert not Counter(came) - Counter(written), "no unknown and no duplicate records"
    if not flips:
        kept = sum(len(batch) for batch, end in zip(batches, ends, strict=True) if end <= len(hurt))
        assert came == written[:kept], "truncation loses only incomplete frames"
    if bytes(hurt) != whole and len(hurt) not in (0, *ends):
        assert damages, "damage is reported"
    recovery.recover(session)
    assert [encode(one) for one in reader.lenient(session.path, damages.append)] == came, "repair drops no records"
