"""Makes the recordings anew: every labelled job once, for real, watched and captured by `gconsole batch --records`.

    GCONSOLE_TEST_TORCH_PYTHON=… python -m tests.hangs.record [JOB …]

Needs what the tests of the cluster need (namespaces, OpenSSH) and torch. About 20 s a job. What a recording says of
the machine it was made on (folders, kernel) is replaced; nothing else is.
"""

from __future__ import annotations

import argparse
import lzma
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# So that `from rig import Rig` and `from jobs import Job` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import find_torch_python
from rig import Rig

from .labels import JOBS, Labelled
from .lab import capture_arguments, running

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(__file__).parent / "recordings"
GCONSOLE = Path(sys.executable).with_name("gconsole")
NODES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="JOB", help="only these, by id")
    wanted = parser.parse_args().names
    unknown = set(wanted) - {one.id for one in JOBS}
    if unknown:
        parser.error(f"no such job: {', '.join(sorted(unknown))}")
    failed = []
    RECORDINGS.mkdir(exist_ok=True)
    with Rig(nodes=NODES, name="rig") as rig:
        for labelled in JOBS:
            if not wanted or labelled.id in wanted:
                began = time.monotonic()
                problem = record(rig, labelled)
                failed += [labelled.id] if problem else []
                print(f"{labelled.id:28s} {time.monotonic() - began:5.1f} s  {problem or 'recorded'}", flush=True)
    if failed:
        print("not recorded:", *failed)
    return 1 if failed else 0


def record(rig: Rig, labelled: Labelled) -> str:
    """Record one job; why that was not possible, empty where it was."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = rig.write_hosts_toml(Path(folder, "hosts.toml"), only=[n.name for n in rig.nodes[: labelled.nodes]])
        records = Path(folder, "records.ndjson")
        argv = [str(GCONSOLE), "batch", str(hosts), "--quiet", "--records", str(records), *capture_arguments(labelled)]
        try:
            with running(rig, labelled):
                done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        except RuntimeError as error:
            return str(error)
        if not records.exists():
            return f"gconsole ended with {done.returncode}: {done.stderr}"
        said = ("gconsole", "batch", "hosts.toml", "--records", "records.ndjson", *capture_arguments(labelled))
        text = without_this_machine(records.read_text())
        (RECORDINGS / f"{labelled.id}.ndjson.xz").write_bytes(lzma.compress(text.encode(), preset=9))
        print("  " + " ".join(said))
    return ""


def without_this_machine(text: str) -> str:
    """The records with the folders of this machine, and its kernel, under common names."""
    torch = find_torch_python()
    standard_library = Path(subprocess.run(
        [torch, "-c", "import os; print(os.__file__)"], capture_output=True, text=True, check=True
    ).stdout).parent  # fmt: skip
    for folder, name in (
        (ROOT / "tests/hangs/jobs", "/home/user/train"), (ROOT, "/home/user/gconsole"),
        (torch.parent.parent, "/home/user/venv"), (standard_library, f"/usr/lib/{standard_library.name}"),
    ):  # fmt: skip
        text = text.replace(str(folder), name)
    return re.sub(r'"kernel":"[^"]*"', '"kernel":"6.1.0"', text)


if __name__ == "__main__":
    sys.exit(main())
