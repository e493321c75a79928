"""The black box of real consoles: killed in the middle, two at a time, and on a full disk."""

import json
import lzma
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import fork_server
import pytest
from fork_server import GCONSOLE
from local_program import DEADLINE_S, Program, wait_for_end

from gconsole.config import ConsoleConfig
from gconsole.core.bus import Hub
from gconsole.monitor.hang import verdicts
from gconsole.records import Log
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import named
from gconsole.session.manage.black_boxes import list_black_boxes
from gconsole.session.record import recovery
from gconsole.session.record.black_box import BlackBox
from gconsole.session.replay import Replay

HANGS = Path(__file__).parents[1] / "hangs" / "recordings"


@pytest.fixture
def program(tmp_path):
    made = Program(tmp_path)
    made.write()
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def boxes(tmp_path):
    return list_black_boxes(tmp_path / "state" / "gconsole" / "black-box")


def until(reached, what=lambda: ""):
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.mark.parametrize("hang", ["dataloader_worker", "all_to_all"])
def test_hang_that_a_killed_console_captured_gets_the_same_verdict_from_what_is_kept(hang, tmp_path):
    file = tmp_path / "hang.ndjson"
    file.write_bytes(lzma.decompress((HANGS / f"{hang}.ndjson.xz").read_bytes()))
    state = tmp_path / "state"
    env = {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(tmp_path / "sessions"), "XDG_STATE_HOME": str(state)}
    console = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("keep_hang.py"), state / "gconsole" / "black-box", file],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert console.stdout is not None
        assert console.stdout.readline() == "safe\n"
    finally:
        console.kill()
        console.communicate()

    def gconsole(*args):
        return fork_server.run([GCONSOLE, *args], env=env, text=True, timeout=60)

    kept = gconsole("record", "--last", "15m", "--name", "incident")
    assert kept.returncode == 0, kept.stderr
    assert gconsole("sessions", "verify", "incident").returncode == 0
    answers = {}
    for source in ("incident", str(file)):
        run = gconsole("diagnose", source, "--quiet", "-o", "-")
        answers[source] = (run.returncode, json.loads(run.stdout)["verdicts"])
    assert answers["incident"] == answers[str(file)]
    assert answers["incident"][1] != []

    session = named("incident", tmp_path / "sessions")
    records = [record for record in reader.records(session.path) if not isinstance(record, Log)]
    writer.write_session(named("hang", tmp_path / "sessions"), records)
    player = Replay(named("hang", tmp_path / "sessions"))
    player.jump(player.end)
    assert [one.state for one in verdicts(player.store)] == [one["state"] for one in answers["incident"][1]]


def test_running_and_killed_consoles_are_kept_listed_and_deleted(program, tmp_path):
    first = program.start("batch", str(program.hosts), "--for", "10m", "--quiet")
    until(lambda: boxes(tmp_path) and boxes(tmp_path)[0].meta.counts.get("gpu", 0) > 4, lambda: boxes(tmp_path))
    running = program.run("record", "--last", "15m", "--name", "running")
    assert running.returncode == 0, running.stderr
    assert "15 min were requested: nothing was recorded before" in running.stdout
    assert len([record for record in program.records("running") if type(record).__name__ == "Gpu"]) > 4
    listed = json.loads(program.run("sessions", "list", "--json").stdout)
    assert {row["state"] for row in listed} == {"black box", "closed"}
    name = next(row["name"] for row in listed if row["state"] == "black box")
    refused = program.run("sessions", "delete", name, "--yes")
    assert (refused.returncode, "being written" in refused.stderr) == (2, True)

    second = program.start("batch", str(program.hosts), "--for", "10m", "--quiet")
    until(lambda: len(boxes(tmp_path)) == 2, lambda: boxes(tmp_path))
    first.send_signal(signal.SIGKILL)
    wait_for_end(first)
    until(lambda: [box.is_running for box in boxes(tmp_path)].count(True) == 1)
    second.send_signal(signal.SIGKILL)
    wait_for_end(second)
    crashed = program.run("record", str(program.hosts), "--last", "15m", "--name", "crashed")
    assert crashed.returncode == 0, crashed.stderr
    assert recovery.verify(named("crashed", program.folder)).is_sound
    by_name = program.run("record", name, "--last", "1m", "--name", "by-name")
    assert by_name.returncode == 0, by_name.stderr
    box = next(box for box in boxes(tmp_path) if box.session.name == name)
    middle = datetime.fromtimestamp((box.began + box.ended) / 2e9).astimezone()
    since = program.run("record", name, "--since", middle.isoformat(), "--name", "since")
    assert since.returncode == 0, since.stderr
    assert program.records("since")[-1].rx == program.records("by-name")[-1].rx
    for text, reason in (
        ("10m", "--last 10m"), ("soon", "--since"), ("2126-01-01T00:00:00", "the newest record is of"),
    ):  # fmt: skip
        refused = program.run("record", name, "--since", text, "--name", "refused")
        assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr
    both = program.run("record", name, "--since", "-1m", "--last", "1m", "--name", "refused")
    assert (both.returncode, "either --last or --since" in both.stderr) == (2, True)
    export = program.run("query", "crashed", "SELECT count(*) AS n FROM gpu", "--format", "json")
    assert export.returncode == 0, export.stderr
    for command in (("sessions", "verify", name), ("diagnose", name), ("export", name), ("query", name, "SELECT 1")):
        refused = program.run(*command)
        assert (refused.returncode, "is a black box; make a session of it" in refused.stderr) == (2, True), command
    deleted = program.run("sessions", "delete", name, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert name not in {box.session.name for box in boxes(tmp_path)}


def test_short_runs_and_a_black_box_that_is_switched_off_write_nothing(program, tmp_path):
    assert program.run("batch", str(program.hosts), "--quiet").returncode == 0
    off = program.start("batch", str(program.hosts), "--for", "10m", "--quiet", "--records", str(tmp_path / "r.ndjson"),
                        "--set", "console.black_box=false")  # fmt: skip
    until(lambda: (tmp_path / "r.ndjson").exists() and b'"gpu"' in (tmp_path / "r.ndjson").read_bytes())
    off.send_signal(signal.SIGINT)
    wait_for_end(off)
    assert not (tmp_path / "state" / "gconsole" / "black-box").exists()
    refused = program.run("record", str(program.hosts), "--last", "15m", "--name", "incident")
    assert refused.returncode == 2
    assert "no black box of" in refused.stderr
    assert "[console] black_box" in refused.stderr
    mixed = program.run("record", str(program.hosts), "--last", "15m", "--name", "incident", "--for", "1m")
    assert (mixed.returncode, "--for" in mixed.stderr) == (2, True)
    mixed = program.run("record", str(program.hosts), "--since", "-5m", "--name", "incident", "--redact")
    assert (mixed.returncode, "--since keeps what is recorded already; --redact" in mixed.stderr) == (2, True)


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


async def test_full_disk_is_one_warning_and_the_newest_records_stay(small_disk, tmp_path):
    import asyncio

    hub, published = Hub(), []
    hub.subscribe(published.extend)
    state = [Log(agent="c", source="console", text="state")]
    config = ConsoleConfig(black_box_s=86_400)  # no segment is sealed by its age: it would make room
    box = BlackBox(hub, small_disk / "boxes", config, lambda: state, "pod", "/hosts.toml")
    box.start()
    sent, deadline = 0, time.monotonic() + DEADLINE_S
    ballast = small_disk / "ballast"

    async def publish(reached):
        nonlocal sent
        while not reached():
            assert time.monotonic() < deadline, (box.status(), published[-1])
            for _ in range(2):  # as few as fit on the disk, however slow the thread that writes them
                sent += 1
                hub.publish_own(Log(source="console", severity="error", text=f"{sent} {os.urandom(500).hex()}"))
            await asyncio.sleep(0.05)

    await publish(lambda: box.session is not None and len(box.session.segments()) >= 1 and box.status().bytes > 0)
    with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
        while True:  # the black box takes space meanwhile
            file.write(bytes(4096))
    await publish(lambda: any("disk is full" in record.text for record in published if isinstance(record, Log)))
    ballast.unlink()
    await publish(lambda: not box.status().trouble)
    before = sent
    await publish(lambda: sent > before + 50)
    while box._ring.durable < box._number:  # `keep_last` waits only for some seconds
        assert time.monotonic() < deadline, box.status()
        await asyncio.sleep(0.05)
    kept = await box.keep_last("incident", 900.0, tmp_path / "sessions")
    await box.close()
    warnings = [record for record in published if isinstance(record, Log) and record.severity == "warning"]
    assert len(warnings) == 1, warnings
    texts = [record.text for record in reader.records(kept.path)]
    assert any(text.startswith(f"{sent} ") for text in texts)
    assert recovery.verify(named("incident", tmp_path / "sessions")).is_sound
