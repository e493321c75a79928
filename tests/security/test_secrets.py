"""Secrets planted in every place that gconsole reads do not occur in anything it writes, prints or runs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Run, batch, gconsole
from rig import Rig

from gconsole.records import encode
from gconsole.session.format import reader
from gconsole.text.secrets import without_secrets

#: The planted secrets, by place.
PLANTED = {
    "an argument of a rank": "hunter22-argument",
    "the environment of a rank": "hunter22-environment",
    "a variable of a rank": "hunter22-variable",
    "the environment of the console": "hunter22-console",
    "the passphrase of a key": "hunter22-passphrase",
}
RANK = """
import os, sys, time
def train():
    password, step = os.environ["MY_SECRET_TOKEN"] + "hunter22-variable", 0
    while True:
        step += 1
        time.sleep(0.05)
train()
"""


class CommandLineCollector(threading.Thread):
    """Collects the command lines of all processes of this machine while it runs, except those of the planted ranks."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lines: set[str] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # the process ended
                    self.lines.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        self.lines = {line for line in self.lines if "rank.py" not in line}

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture(scope="module")
def night(
    needs_namespaces: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Run, Run, set[str]]]:
    """(folder with all output, the run of batch, that of ps, command lines of all processes meanwhile)."""
    folder = tmp_path_factory.mktemp("secrets")
    with Rig(nodes=1, name="gcy-secret") as rig:
        key = rig.encrypted_key(PLANTED["the passphrase of a key"])
        node = rig.nodes[0]
        (node.folder / "rank.py").write_text(RANK)
        argv = ["python3", f"{node.inside}/rank.py", "--wandb-api-key", PLANTED["an argument of a rank"]]
        place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        env = {**place, "MY_SECRET_TOKEN": PLANTED["the environment of a rank"]}
        with rig.ssh_agent() as agent, node.run(argv, env=env) as rank:
            agent.add(key, PLANTED["the passphrase of a key"])
            hosts = rig.write_hosts_toml(folder / "hosts.toml")
            home = {name: str(folder / name) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
            mine = {**os.environ, **agent.env, **home, "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions"),
                    "WANDB_API_KEY": PLANTED["the environment of the console"]}  # fmt: skip
            watching = CommandLineCollector()
            watching.start()
            try:
                run = batch(hosts, "--capture", "--samples", "1", "--locals", "password,step",
                            "--record", "night", "--records", folder / "night.ndjson", env=mine)  # fmt: skip
                listed = gconsole("ps", hosts, env=mine)
            finally:
                watching.end()
                rank.kill()
        yield folder, run, listed, watching.lines


@pytest.mark.parametrize("where", PLANTED)
def test_planted_secret_is_in_no_written_file(night, where: str) -> None:
    folder, run, _, _ = night
    assert run.node("node1")["state"] == "ok", run.stderr
    secret = PLANTED[where].encode()
    written = [path for path in folder.rglob("*") if path.is_file() and path.name != "hosts.toml"]
    assert {"hosts.report.json", "night.ndjson", "session.json"} <= {path.name for path in written}
    assert [path for path in written if secret in path.read_bytes()] == []
    session = b"\n".join(encode(record) for record in reader.records(folder / "sessions" / "night"))
    assert b"rank.py" in session and secret not in session


@pytest.mark.parametrize("where", PLANTED)
def test_planted_secret_is_in_no_printed_output(night, where: str) -> None:
    _, run, listed, _ = night
    assert "rank.py" in listed.stdout
    for text in (run.stdout, run.stderr, listed.stdout, listed.stderr):
        assert PLANTED[where] not in text


@pytest.mark.parametrize("where", PLANTED)
def test_planted_secret_is_in_no_command_line(night, where: str) -> None:
    _, _, _, lines = night
    assert any("gconsole" in line for line in lines)
    assert [line for line in lines if PLANTED[where] in line] == []


def test_the_setting_that_an_error_proposes_is_not_hidden():
    proposed = 'verify the fingerprint; or set host_key_policy = "accept-new"'
    assert without_secrets(proposed) == proposed
    assert without_secrets("my_host_key_policy=abc") == "my_host_key_policy=***"
