"""What jobs that are over left on a node, and processes that are alive beside it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.torchrun_logs import PastOutput, past_outputs

ERROR = json.dumps({"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1700000000"}}})
TABLE = """\
[rank1]: ValueError: bad shard
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_15:41:02
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 412)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


class Left:
    """A TMPDIR with log folders, and a /proc without processes."""

    def __init__(self, root: Path) -> None:
        self.tmp, self.proc = root / "tmp", root / "proc"
        self.tmp.mkdir()
        self.proc.mkdir()
        (self.proc / "stat").write_text("btime 1\n")

    def run(self, name: str, top: str = "") -> Path:
        folder = self.tmp / f"torchelastic_{top or name[-8:]}" / name
        folder.mkdir(parents=True)
        return folder

    def failed(self, name: str, attempt: int = 0, rank: int = 0, text: str = ERROR, ago_s: float = 60) -> Path:
        """The error file of one rank of a run."""
        run = next(self.tmp.glob(f"torchelastic_*/{name}"), None) or self.run(name)
        folder = run / f"attempt_{attempt}" / str(rank)
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(text)
        os.utime(folder / "error.json", (time.time() - ago_s,) * 2)
        return folder

    def found(self, procfs: ProcFs | None = None) -> list[PastOutput]:
        return list(past_outputs(procfs or ProcFs(str(self.proc)), [str(self.tmp), "", "/missing"], time.time_ns()))

    def names(self) -> list[str]:
        return [output.job for output in self.found()]


@contextmanager
def shell_in(folder: Path) -> Iterator[ProcFs]:
    """A shell in a folder, as it is there after the job that was started from it: the only process of a /proc."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = subprocess.Popen(["sh", "-c", "read line"], cwd=folder, stdin=subprocess.PIPE)
    proc = folder.with_name("proc")
    proc.mkdir()
    for name in ("stat", "self", str(shell.pid)):
        (proc / name).symlink_to(f"/proc/{name}")
    try:
        yield ProcFs(str(proc))
    finally:
        shell.kill()
        shell.communicate()


def log_dir_of(folder: Path, name: str = "llama_abcd1234", *, ago_s: float = 60) -> Path:
    """What `torchrun --log-dir FOLDER` leaves of a job that failed."""
    own = folder / name / "attempt_0" / "0"
    own.mkdir(parents=True)
    (own / "error.json").write_text(ERROR)
    os.utime(own / "error.json", (time.time() - ago_s,) * 2)
    for made in (own.parent, own.parents[1]):
        os.utime(made, (time.time() - ago_s - 900,) * 2)  # torchrun made them when it started
    return own


@contextmanager
def seen_in(tmp_path: Path, argv: list[str], cwd: Path, ready: str) -> Iterator[ProcFs]:
    """A /proc with nothing but that process, once it has printed `ready`."""
    proc = tmp_path / "proc"
    proc.mkdir()
    with subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            for name in ("stat", "self", str(process.pid)):
                (proc / name).symlink_to(f"/proc/{name}")
            assert process.stdout.readline().strip() == ready
            yield ProcFs(str(proc))
        finally:
            process.kill()


def maps_and_waits(file: Path) -> str:
    """A program that has mapped a file."""
    return (
        f"import mmap; f = open({str(file)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
        " print('ready', flush=True); input()"
    )


def written(path: Path, text: str, ago_s: float = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - ago_s,) * 2)
    return path
