"""Folders of code that a client sends: jobs run them on all nodes, and nothing of them stays on the server."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, HttpResponse, running_api, until
from fixtures import FEW_PROBES
from rig import Rig

from gconsole.web.uploads import MAX_FOLDERS

#: Only in the folder that is sent.
SCRIPT = """
import os
from lib import greeting
print(greeting.TEXT, os.environ["RANK"], os.path.basename(os.getcwd()), flush=True)
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of uploads of servers that this test starts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/gconsole/uploads"


@pytest.fixture
def api(rig: Rig, tmp_path: Path, state: Path) -> Iterator[Api]:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)
    with running_api(hosts, tmp_path, "--allow-run", "--rate", "1000") as api:
        yield api
    assert list(state.iterdir()) == [], "nothing stays when the server ends"


def code_of(tmp_path: Path, text: str = "hello") -> Path:
    code = tmp_path / "llama"
    (code / "lib").mkdir(parents=True, exist_ok=True)
    (code / "train.py").write_text(SCRIPT)
    (code / "lib/greeting.py").write_text(f"TEXT = {text!r}\n")
    return code


def tar(folder: Path, *flags: str) -> bytes:
    return subprocess.run(["tar", "-C", str(folder), "-c", *flags, "."], check=True, capture_output=True).stdout


def send(api: Api, data: bytes, kind: str = "application/gzip", name: str = "llama", **options: Any) -> HttpResponse:
    return api.request("POST", f"/folders?name={name}", data, Content_Type=kind, **options)


def test_job_runs_the_folder_that_the_client_sent_on_all_nodes(api: Api, tmp_path: Path, rig: Rig) -> None:
    api.until_connected(4)
    sent = send(api, tar(code_of(tmp_path), "-z"))
    assert sent.status == 201, sent
    folder = sent.json
    assert (folder["name"], folder["files"], folder["bytes"]) == ("llama", 2, len(SCRIPT) + len("TEXT = 'hello'\n"))
    wanted = {"command": ["python3", "train.py"], "launcher": "env", "nodes": 2, "procs_per_node": 1,
              "gpus_per_node": 0, "sync": folder["id"]}  # fmt: skip
    logged = api.post("/query", {"sql": "SELECT text FROM log"})["rows"]
    assert any(folder["id"] in row[0] and folder["sha256"] in row[0] for row in logged), "which job had which code"
    plan = api.post("/jobs/plan", {**wanted, "workdir": f"{rig.nodes[0].inside}/planned"})
    assert "llama" in plan["text"] and str(tmp_path) not in plan["text"], "no path of the server"

    started = api.post("/jobs", wanted, status=201)
    until(lambda: api.get(f"/jobs/{started['job']}")["state"] == "completed")
    lines = api.get(f"/jobs/{started['job']}/logs?fold=false")["lines"]
    assert sorted(line.split()[-3:] for line in lines) == [["hello", "0", "llama"], ["hello", "1", "llama"]]

    again = send(api, tar(code_of(tmp_path, "changed")), "application/x-tar").json
    started = api.post("/jobs", {**wanted, "sync": again["id"]}, status=201)
    until(lambda: api.get(f"/jobs/{started['job']}")["state"] == "completed")
    assert "changed" in " ".join(api.get(f"/jobs/{started['job']}/logs")["lines"])

    assert [known["id"] for known in api.get("/folders")["folders"]] == [folder["id"], again["id"]]
    assert api.request("DELETE", f"/folders/{folder['id']}").json == {"id": folder["id"]}
    gone = api.request("POST", "/jobs", {**wanted, "sync": folder["id"]})
    assert (gone.status, gone.json["name"]) == (404, "no_such_folder")
    missing = api.request("POST", "/jobs", {**wanted, "command": ["python3", "other.py"], "sync": again["id"],
                                            "workdir": f"{rig.nodes[0].inside}/none"})  # fmt: skip
    assert missing.status == 409 and "other.py" in missing.body.decode()


def test_start_fails_on_all_nodes_if_the_folder_is_not_copied_to_one(api: Api, tmp_path: Path, rig: Rig) -> None:
    api.until_connected(4)
    folder = send(api, tar(code_of(tmp_path), "-z")).json
    workdir = f"{rig.nodes[0].inside}/blocked"
    (rig.nodes[1].folder / "blocked").write_text("a file where the folder should be")
    refused = api.request("POST", "/jobs", {
        "command": ["python3", "train.py"], "launcher": "env", "nodes": 4, "procs_per_node": 1, "gpus_per_node": 0,
        "sync": folder["id"], "workdir": workdir})  # fmt: skip
    assert refused.status == 409, refused
    assert rig.nodes[1].name in refused.body.decode()


def test_bad_folders_are_refused_and_leave_nothing(api: Api, tmp_path: Path, state: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../outside"))
    outside = send(api, buffer.getvalue(), "application/x-tar")
    assert (outside.status, outside.json["name"]) == (400, "bad_folder") and "outside" in outside.json["text"]
    zipped = send(api, b"PK\x03\x04")
    assert (zipped.status, zipped.json["name"]) == (400, "bad_folder") and "tar -C" in zipped.json["text"]
    typed = send(api, tar(code_of(tmp_path)), "application/json")
    assert (typed.status, typed.json["name"]) == (415, "no_archive") and "application/gzip" in typed.json["try"]
    named = send(api, tar(code_of(tmp_path)), name="..")
    assert (named.status, named.json["name"]) == (400, "malformed")
    assert send(api, tar(code_of(tmp_path)), token=None).status == 401
    assert api.get("/folders") == {"folders": []}
    assert [path.name for root in state.iterdir() for path in root.iterdir()] == ["lock"]


def test_client_that_breaks_off_leaves_nothing(api: Api, state: Path) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as client:
        client.sendall(
            f"POST /folders HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nAuthorization: Bearer {api.token}\r\n"
            "Content-Type: application/x-tar\r\nContent-Length: 1000000\r\n\r\n".encode()
            + b"x" * 5000
        )
        until(lambda: [path for root in state.glob("*") for path in root.glob("*/archive")])
    until(lambda: not [path for root in state.glob("*") for path in root.glob("*/archive")])
    assert api.get("/folders") == {"folders": []}


def test_number_of_folders_is_bounded(api: Api, tmp_path: Path) -> None:
    data = tar(code_of(tmp_path), "-z")
    assert [send(api, data).status for _ in range(MAX_FOLDERS)] == [201] * MAX_FOLDERS
    more = send(api, data)
    assert (more.status, more.json["name"]) == (413, "too_many_folders") and "DELETE" in more.json["try"]


def test_server_that_was_killed_leaves_folders_only_until_the_next_starts(
    rig: Rig, tmp_path: Path, state: Path
) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)
    data = tar(code_of(tmp_path), "-z")
    with (
        running_api(hosts, tmp_path, "--allow-run") as alive,
        pytest.raises(AssertionError),
        running_api(hosts, tmp_path, "--allow-run") as killed,
    ):
        kept = send(alive, data).json
        assert send(killed, data).status == 201
        assert len(list(state.iterdir())) == 2
        os.kill(killed.pid, 9)
        until(lambda: not Path(f"/proc/{killed.pid}/cwd").exists())
        with running_api(hosts, tmp_path, "--allow-run"):
            assert len(list(state.iterdir())) == 1
        assert [known["id"] for known in alive.get("/folders")["folders"]] == [kept["id"]]


def test_reader_of_a_read_only_server_sends_nothing(rig: Rig, tmp_path: Path, state: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)
    with running_api(hosts, tmp_path) as api:
        refused = send(api, tar(code_of(tmp_path), "-z"))
        assert refused.status == 403 and "--allow-run" in refused.json["try"]
    assert not list(state.glob("*"))
