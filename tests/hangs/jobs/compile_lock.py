"""Rank 2 is to build an extension, and waits for the lock that a rank of a run that was killed has left behind."""

import tempfile
from pathlib import Path

from common import join, step
from torch.utils.cpp_extension import load

rank, _ = join()
if rank == 2:
    build = Path(tempfile.mkdtemp())
    source = build / "fused_adam.cpp"
    source.write_text("int one() { return 1; }\n")
    (build / "lock").touch()
    load("fused_adam", [str(source)], build_directory=str(build))
step()
