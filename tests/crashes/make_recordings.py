"""Regenerates the recordings: runs every labelled job once, watched by `gconsole batch --records`.

    python -m tests.crashes.make_recordings [JOB …]

Needs what the tests of the cluster need (namespaces, OpenSSH) and torch; about 20 s per job. Folders and the kernel
version of this machine are replaced in the recording; nothing else is.
"""

from __future__ import annotations

import argparse
import lzma
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Makes `from rig import Rig` and `from jobs import …` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import Rig

from tests.hangs.make_recordings import without_this_machine

from .labels import JOBS, RECORDINGS
from .live_jobs import lacks_needs, watched
from .score import answer_of, grade


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="JOB", help="only these, by id")
    names = parser.parse_args().names
    unknown = set(names) - {job.id for job in JOBS}
    if unknown:
        parser.error(f"no such job: {', '.join(sorted(unknown))}")
    RECORDINGS.mkdir(exist_ok=True)
    failed = []
    with Rig(nodes=2, name="rig") as rig:
        for labelled in JOBS:
            if (names and labelled.id not in names) or lacks_needs(labelled):
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    report = watched(rig, labelled, Path(folder))
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    failed.append(labelled.id)
                    print(f"{labelled.id:28s} not recorded: {error}", flush=True)
                    continue
                text = without_this_machine(Path(folder, "records.ndjson").read_text())
            (RECORDINGS / f"{labelled.id}.ndjson.xz").write_bytes(lzma.compress(text.encode(), preset=6))
            answer = answer_of(report)
            took_s = time.monotonic() - began
            print(f"{labelled.id:28s} {took_s:5.1f} s  {grade(labelled.label, answer)}  {answer}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
