"""Where the traceback of an internal error goes."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import platformdirs

from ..text.atomic_files import make_folder
from ..text.secrets import without_secrets


def keep_story() -> Path:
    """Write the exception being handled to a new file (0600) and return its path; stderr where that fails."""
    folder = platformdirs.user_log_path("gconsole")
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        make_folder(folder)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(without_secrets(f"gconsole {' '.join(sys.argv[1:])}\n{traceback.format_exc()}"))
    except OSError:
        traceback.print_exc()
        return Path("/dev/stderr")
    return path
