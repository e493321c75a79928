"""Regenerates the recordings: runs every labelled job once, watched and captured by `gconsole batch --records`.

    GCONSOLE_TEST_TORCH_PYTHON=… python -m tests.hangs.make_recordings [JOB …]

Each is the file that `gconsole batch hosts.toml --records records.ndjson --for 7s --diagnose` writes. Needs what the
tests of the cluster need (namespaces, OpenSSH) and torch; about 20 s per job. Folders and the kernel version of
this machine are replaced in the recording; nothing else is.

With --flight it runs each job again with torch's own worker server, and keeps its flight recorder dumps. They serve
only the comparison with torch's analyser; the records are of jobs without a worker server.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Makes `from rig import Rig` and `from jobs import Job` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import find_torch_python
from rig import Rig

from .labels import JOBS, LabelledJob
from .live_jobs import arguments, running

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(__file__).parent / "recordings"
GCONSOLE = Path(sys.executable).with_name("gconsole")
NODES = 4
#: Each job is watched for longer than [hang] min_frozen_s before it is diagnosed.
WATCHED = ("--for", "7s")
#: A job whose flight recorders still change after this time is making progress.
SETTLE_S = 8.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="JOB", help="only these, by id")
    parser.add_argument("--flight", action="store_true", help="record flight recorders instead")
    options = parser.parse_args()
    wanted, recorder = options.names, record_flight if options.flight else record
    unknown = set(wanted) - {job.id for job in JOBS}
    if unknown:
        parser.error(f"no such job: {', '.join(sorted(unknown))}")
    failed = []
    RECORDINGS.mkdir(exist_ok=True)
    with Rig(nodes=NODES, name="rig") as rig:
        for labelled in JOBS:
            if not wanted or labelled.id in wanted:
                began = time.monotonic()
                problem = recorder(rig, labelled)
                failed += [labelled.id] if problem else []
                took_s = time.monotonic() - began
                print(f"{labelled.id:28s} {took_s:5.1f} s  {problem[-400:] or 'recorded'}", flush=True)
    if failed:
        print("not recorded:", *failed)
    return 1 if failed else 0


def record(rig: Rig, labelled: LabelledJob) -> str:
    """Record one job; the reason if that failed, else empty."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = rig.write_hosts_toml(Path(folder, "hosts.toml"), only=[n.name for n in rig.nodes[: labelled.nodes]])
        records = Path(folder, "records.ndjson")
        options = ["--quiet", "--records", str(records), *WATCHED, *arguments(labelled)]
        argv = [str(GCONSOLE), "batch", str(hosts), *options]
        try:
            with running(rig, labelled):
                done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        except RuntimeError as error:
            return str(error)
        if not records.exists():
            return f"gconsole ended with {done.returncode}: {done.stderr}"
        text = without_this_machine(records.read_text())
        (RECORDINGS / f"{labelled.id}.ndjson.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    return ""


def record_flight(rig: Rig, labelled: LabelledJob) -> str:
    """Keep the flight recorder of every rank that responds; the reason if there is none, else empty."""
    name = f"flight-{labelled.id}"  # unique per job: torch does not reuse a socket
    for node in rig.nodes:
        (node.folder / name).mkdir()
    inside = rig.nodes[0].inside  # the same path on each node
    env = {"FLIGHT_FOLDER": f"{inside}/{name}", "TORCH_FR_BUFFER_SIZE": "64"}
    dumps: dict[str, str] = {}
    try:
        with running(rig, labelled, env) as jobs:
            deadline = time.monotonic() + SETTLE_S
            while time.monotonic() < deadline:
                before, dumps = dumps, {}
                for rank in jobs[0].ranks:
                    path = rig.node(rank.node).folder / name / f"rank{rank.rank}.sock"
                    try:
                        dumps[str(rank.rank)] = fetch_dump(path)
                    except OSError:
                        continue  # that rank is dead or stopped
                if before and dumps == before:
                    break
                time.sleep(1.0)
    except RuntimeError as error:
        return str(error)
    if not dumps:
        return "no rank answers"
    text = json.dumps({rank: json.loads(dump) for rank, dump in dumps.items()})
    (RECORDINGS / f"{labelled.id}.flight.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    return ""


def fetch_dump(path: Path) -> str:
    """The flight recorder dump of the worker server behind a socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(3.0)
        connection.connect(str(path))
        connection.sendall(
            b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: rank\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        response = b""
        while part := connection.recv(1 << 16):
            response += part
    head, _, body = response.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0] + b" ":
        raise OSError(head.decode(errors="replace"))
    return body.decode()


def without_this_machine(text: str) -> str:
    """The records with this machine's folders and kernel version replaced by fixed names."""
    torch = find_torch_python()
    standard_library = Path(subprocess.run(
        [torch, "-c", "import os; print(os.__file__)"], capture_output=True, text=True, check=True
    ).stdout).parent  # fmt: skip
    for folder, name in (
        (ROOT / "tests/hangs/jobs", "/home/user/train"), (ROOT, "/home/user/gconsole"),
        (torch.parent.parent, "/home/user/venv"), (standard_library.parent.parent, "/usr"),
    ):  # fmt: skip
        text = text.replace(str(folder), name)
    return re.sub(r'"kernel":"[^"]*"', '"kernel":"6.1.0"', text)


if __name__ == "__main__":
    sys.exit(main())
