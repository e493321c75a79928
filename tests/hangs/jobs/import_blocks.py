"""Rank 1 imports a module that, at module level, reads from a file that never returns data."""

import sys
import tempfile
from pathlib import Path

from common import dead_pipe, join, step

rank, _ = join()
if rank == 1:
    folder = Path(tempfile.mkdtemp())
    (folder / "tokenizer_tables.py").write_text(f"TABLE = open({dead_pipe()!r}).read()\n")
    sys.path.insert(0, str(folder))
    import tokenizer_tables  # noqa: F401
step()
