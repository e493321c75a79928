"""Disk errors: reported, the console continues, written records stay intact, and lost ones are counted."""

import asyncio
import os
import subprocess
import time

import pytest
from session_files import gpus

from gconsole.core.bus import Hub
from gconsole.records import Gap, Log
from gconsole.session.format import reader
from gconsole.session.format.layout import SessionError, named
from gconsole.session.manage.retention import Limits
from gconsole.session.record import recording, recovery
from gconsole.session.record.recorder import Recorder

DEADLINE_S = 90.0


class RecordingConsole:
    """A hub with a recorder, and the messages that were published."""

    def __init__(self, folder):
        self.hub, self.published, self.seq = Hub(), [], 0
        self.hub.subscribe(self.published.extend)
        self.recorder = Recorder(self.hub, folder, Limits(), lambda: ())

    def publish(self, number=200):
        """Records of random values, which do not compress."""
        records = gpus(number, first=self.seq + 1)
        for record in records:
            record.uuid = os.urandom(48).hex()
        self.seq += number
        self.hub.publish(records)

    def messages(self):
        return [record.text for record in self.published if isinstance(record, Log)]

    async def until(self, reached, publish=200):
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, f"not reached; messages: {self.messages()}"
            if publish:
                self.publish(publish)
            await asyncio.sleep(0.02)


@pytest.fixture
def small_disk(tmp_path):
    """A 4 MiB file system; needs root."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip("no tmpfs can be mounted here (needs root)")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


async def test_recording_resumes_with_a_counted_gap_after_a_full_disk_is_freed(small_disk, monkeypatch):
    monkeypatch.setattr(recording, "MAX_PENDING_BYTES", 256 << 10)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3600 << 10))
    console = RecordingConsole(small_disk)
    await console.recorder.start("night")
    await console.until(lambda: any("disk is full" in text for text in console.messages()))
    (active,) = console.recorder.active()
    assert "disk is full" in active.trouble
    assert console.hub.kept("agent1", console.seq) < console.seq, "only records on the disk are acknowledged"
    session = named("night", small_disk)
    written = list(reader.records(session.path))
    assert recovery.verify(session).is_sound
    assert len([record for record in console.published if record.agent == "agent1"]) == console.seq, (
        "the live view has all records"
    )

    for _ in range(20):
        console.publish(1000)  # more than the memory queue holds
    await console.until(lambda: console.recorder._running["night"]._lost > 0)
    ballast.unlink()
    await console.until(lambda: any(isinstance(record, Gap) for record in console.published), publish=1)
    gap = next(record for record in console.published if isinstance(record, Gap))
    assert gap.source == "recording night"
    assert "full" in gap.reason
    assert gap.count > 0
    await console.recorder.stop("night")
    assert session.read().state == "closed"
    records = list(reader.records(session.path))
    assert records[: len(written)] == written, "earlier records are unchanged"
    assert [record.count for record in records if isinstance(record, Gap)] == [gap.count], (
        "the gap is recorded in the session"
    )
    recorded = [(record.agent, record.seq) for record in records]
    missing = {(record.agent, record.seq) for record in console.published} - set(recorded)
    assert len(missing) == gap.count, "every missing record is counted"
    assert len(recorded) == len(set(recorded))


async def test_unwritable_sessions_folder_is_rejected_with_its_path(tmp_path):
    path = tmp_path / "file"
    path.write_text("no folder")
    with pytest.raises(SessionError, match=r"cannot record in .*file.*\[sessions\] folder"):
        await RecordingConsole(path).recorder.start("night")


async def test_removal_of_a_session_while_recording_is_reported(tmp_path):
    console = RecordingConsole(tmp_path)
    await console.recorder.start("night")
    console.publish()
    await console.until(lambda: console.recorder.active()[0].records > 0)
    for path in named("night", tmp_path).segments():
        path.unlink()
    await console.until(lambda: any("was removed" in text for text in console.messages()))
    await console.recorder.close()


async def test_clock_jump_is_reported_and_arrival_order_is_kept(tmp_path, monkeypatch):
    console = RecordingConsole(tmp_path)
    await console.recorder.start("night")
    console.publish(5)
    real = time.time_ns
    monkeypatch.setattr(recording.time, "time_ns", lambda: real() - 3600 * 10**9)
    await console.until(lambda: any("jumped by -3600" in text for text in console.messages()), publish=1)
    console.publish(5)
    await console.recorder.stop("night")
    numbers = [record.seq for record in reader.records(named("night", tmp_path).path) if record.agent == "agent1"]
    assert numbers == list(range(1, console.seq + 1))


async def test_session_of_a_newer_gconsole_is_rejected_and_left_unchanged(tmp_path):
    session = named("night", tmp_path)
    session.segments_folder.mkdir(parents=True)
    session.meta_path.write_text('{"schema": "gconsole.session/2", "anything": 1}')
    with pytest.raises(SessionError, match="newer gconsole"):
        await RecordingConsole(tmp_path).recorder.start("night")
    with pytest.raises(SessionError, match="newer gconsole"):
        recovery.recover(session)
    assert session.meta_path.read_text() == '{"schema": "gconsole.session/2", "anything": 1}'
