"""A recorded hang can be diagnosed after its console was killed."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest
from fork_server import GCONSOLE

from gconsole.monitor.hang import verdicts
from gconsole.records import Log
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import named
from gconsole.session.replay import Replay

HANGS = Path(__file__).parents[1] / "hangs" / "recordings"


@pytest.mark.parametrize("hang", ["dataloader_worker", "ahead_in_barrier", "all_to_all"])
def test_recovered_recording_of_a_hang_gets_the_same_verdicts_as_live(hang, tmp_path):
    file = tmp_path / "hang.ndjson"
    file.write_bytes(lzma.decompress((HANGS / f"{hang}.ndjson.xz").read_bytes()))
    folder = tmp_path / "sessions"
    recording = subprocess.Popen([sys.executable, Path(__file__).with_name("record_hang.py"), folder, "night", file],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert recording.stdout is not None
        assert recording.stdout.readline() == "safe\n"
    finally:
        recording.kill()
        recording.communicate()
    env = {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(folder)}

    def gconsole(*args):
        return fork_server.run([GCONSOLE, *args], env=env, text=True, timeout=60)

    assert gconsole("sessions", "recover", "night").returncode == 0
    answers = {}
    for source in ("night", str(file)):
        run = gconsole("diagnose", source, "--quiet", "-o", "-")
        answers[source] = (run.returncode, json.loads(run.stdout)["verdicts"])
    assert answers["night"] == answers[str(file)]
    assert answers["night"][1] != []

    # the recorder's own records have today's date, the hang another one: no replay shows both
    night = reader.records(named("night", folder).path)
    writer.write_session(named("hang", folder), (record for record in night if not isinstance(record, Log)))
    player = Replay(named("hang", folder))
    player.jump(player.end)
    assert [one.state for one in verdicts(player.store)] == [one["state"] for one in answers["night"][1]]
