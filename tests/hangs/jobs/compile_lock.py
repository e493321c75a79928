"""Rank 2 builds an extension and waits for a stale lock of a killed run."""

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
