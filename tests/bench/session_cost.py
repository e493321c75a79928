"""Cost of a recording: CPU, bytes per record, records lost by a kill, and time to recover from a crash."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from gconsole.config import ConsoleConfig
from gconsole.core.bus import Hub
from gconsole.records import Gpu, encode
from gconsole.session.format import reader, writer, zstd_frames
from gconsole.session.format.layout import Meta, named
from gconsole.session.format.writer import count_records
from gconsole.session.manage.retention import Limits
from gconsole.session.record import recovery
from gconsole.session.record.black_box import BlackBox
from gconsole.session.record.recorder import Recorder

from .noisy_gpus import seconds
from .process import in_new_process
from .result import Outcome, Row

NODES, GPUS = 1_250, 8  # 10,000 records per second
RECORD_S, REPEATED = 20, 4
GOAL_CPU_PCT, GOAL_BYTES, GOAL_RECOVER_S, GOAL_LOSS_S = 12.0, 120.0, 20.0, 1.0
SESSION_BYTES = 1_000_000_000
KILLS = 30
#: Records of the segment that is compacted: as many as a segment holds.
COMPACTED = 600_000
STREAM = Path(__file__).parents[1] / "sessions" / "stream.py"


def measure(quick: bool) -> Outcome:
    nodes, record_s, kills = (125, 4, 3) if quick else (NODES, RECORD_S, KILLS)
    session_bytes = 50_000_000 if quick else SESSION_BYTES
    cpu_pct, box_pct, alone_pct = in_new_process(_record, nodes, record_s)
    sealed_s, all_s, verify_s, records, size = in_new_process(_recover, nodes, session_bytes)
    packed, plain, small = in_new_process(_sizes, nodes)
    compaction_pct = in_new_process(_compaction_pct, nodes, 60_000 if quick else COMPACTED)
    lost = _lost_by_kills(kills)
    return Outcome(
        [
            Row(f"recording {nodes * GPUS:,} records/s", f"{cpu_pct:.1f} % of a core"),
            Row(f"compacting {nodes * GPUS:,} records/s as segments are sealed", f"{compaction_pct:.1f} % of a core"),
            Row("both", f"{cpu_pct + compaction_pct:.1f} % of a core", "≤ 12 %",
                cpu_pct + compaction_pct <= GOAL_CPU_PCT),
            Row(f"black box of {nodes * GPUS:,} records/s", f"{box_pct:.1f} % of a core", "≤ 12 %",
                box_pct <= GOAL_CPU_PCT),
            Row("bytes of a `gpu` record in a segment, every field", f"{packed:.0f}", "≤ 120", packed <= GOAL_BYTES,
                f"plain JSON {plain:.0f}", packed / plain),
            Row("the same, with 8 nodes in all", f"{small:.0f}"),
            Row("kill -9: age of the oldest lost record", f"{max(lost):.2f} s at most, {len(lost)} kills",
                "≤ 1 s", max(lost) <= GOAL_LOSS_S),
            Row(f"recover {size / 1e9:.2f} GB after a crash", f"{sealed_s:.1f} s", "≤ 20 s for 1 GB",
                sealed_s <= GOAL_RECOVER_S),
            Row("the same without its session.json: reads everything", f"{all_s:.1f} s", "≤ 20 s for 1 GB",
                all_s <= GOAL_RECOVER_S),
            Row("verify the same", f"{verify_s:.1f} s"),
        ],
        [
            f"{nodes} nodes of {GPUS} GPUs at 1 Hz with the noise of a GPU at work (noisy_gpus.py), all fields present;"
            f" {record_s} s on the disk of the temporary folder, fdatasync a second",
            f"CPU: of the whole process, less {alone_pct:.1f} % for the same records through a hub without a recorder",
            f"compacting: the process that a recorder starts, of {COMPACTED:,} records, its start included",
            "bytes: frames of one second, label included; zstd level 1, independent frames, no dictionary",
            "kill -9: 800 records/s; age at the kill of the newest record that the session has",
            f"recover: {records:,} records, one segment of real records copied; page cache warm",
        ],
        [
            "level 3 to 6: 113 to 121 bytes for 2 to 5 times the CPU; level 9: 106 bytes for 10 times",
        ],
    )  # fmt: skip


def _record(nodes: int, record_s: int) -> tuple[float, float, float]:
    """CPU in percent of a core: of recording, of the black box, and of the same without both."""
    source = list(islice(seconds(nodes, GPUS, time.time_ns()), REPEATED))

    async def publish(mode: str, folder: Path) -> float:
        hub = Hub()
        recorder = Recorder(hub, folder, Limits(), lambda: ())
        state = [record for batch in source[0] for record in batch]
        box = BlackBox(hub, folder / "boxes", ConsoleConfig(), lambda: state)
        if mode == "recording":
            await recorder.start("bench")
        elif mode == "black box":
            box.start()
        began_cpu, began = time.process_time(), time.monotonic()
        for number in range(record_s * nodes):
            due = began + number / nodes
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            batch = source[number // nodes % REPEATED][number % nodes]
            shift = number // nodes // REPEATED * REPEATED * 1_000_000_000
            hub.publish([_shifted(record, shift) for record in batch])
        await recorder.close()
        await box.close()
        return 100 * (time.process_time() - began_cpu) / (time.monotonic() - began)

    with tempfile.TemporaryDirectory() as folder:
        alone, recorded, kept = (
            asyncio.run(publish(mode, Path(folder))) for mode in ("alone", "recording", "black box")
        )  # fmt: skip
        return recorded - alone, kept - alone, alone


def _shifted(record: Gpu, shift: int) -> Gpu:
    record.t += shift
    record.rx += shift
    return record


def _compaction_pct(nodes: int, count: int) -> float:
    """CPU in percent of a core of compacting what a second brings, in the process that the recorder starts."""
    brought = seconds(nodes, GPUS, time.time_ns())
    with tempfile.TemporaryDirectory() as folder:
        session = named("bench", Path(folder))
        records = islice((record for second in brought for node in second for record in node), count)
        writer.write_session(session, records, Meta())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [sys.executable, "-P", "-m", "gconsole.session.manage.compact", str(session.path)]
        subprocess.run(argv, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 100 * cpu_s / count * nodes * GPUS


def _sizes(nodes: int) -> tuple[float, float, float]:
    """Bytes per record in a frame of a second of many nodes, as plain JSON, and in a frame of 8 nodes."""
    *_, second = islice(seconds(nodes, GPUS, time.time_ns()), 3)
    return _packed(second), _plain(second), _packed(second[:8])


def _packed(second: list[list[Gpu]]) -> float:
    records = [record for batch in second for record in batch]
    holds = count_records(records)
    packed = zstd_frames.pack([encode(record) for record in records], holds.kinds, holds.first_rx, holds.last_rx)
    return len(packed) / len(records)


def _plain(second: list[list[Gpu]]) -> float:
    lines = [encode(record) for batch in second for record in batch]
    return sum(map(len, lines)) / len(lines) + 1


def _recover(nodes: int, session_bytes: int) -> tuple[float, float, float, int, int]:
    """Seconds to recover a crashed session, one without session.json, to verify it; its records; its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        session = named("big", Path(folder))
        each = 64 << 20
        wanted = min(each, session_bytes // 4) // 115
        source = (record for second in seconds(nodes, GPUS, time.time_ns()) for batch in second for record in batch)
        writer.write_session(session, islice(source, wanted))
        (first,) = session.segments()
        copies = max(1, session_bytes // first.stat().st_size)
        for number in range(2, copies + 1):
            shutil.copyfile(first, session.segment(number))
        size = session.size()
        session.write(Meta(name="big", sealed=copies - 1))
        sealed_s = _timed(lambda: recovery.recover(session))
        session.meta_path.unlink()
        all_s = _timed(lambda: recovery.recover(session))
        verify_s = _timed(lambda: recovery.verify(session))
        return sealed_s, all_s, verify_s, session.read().records, size


def _timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _lost_by_kills(kills: int) -> list[float]:
    """The age of the newest kept record after each kill, s: everything older is kept."""
    chance, ages = random.Random(2), []
    for number in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([sys.executable, STREAM, folder, "s", f"agent{number}"], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            deadline = time.monotonic() + chance.uniform(1.0, 3.0)
            while time.monotonic() < deadline:
                process.stdout.readline()
            os.kill(process.pid, 9)
            killed = time.time_ns()
            process.communicate()
            last = max((record.rx for record in reader.records(Path(folder, "s"))), default=None)
            if last is not None:
                ages.append((killed - last) / 1e9)
    return ages
