"""Rank 3 imports a module that another of its threads is importing; that import never ends."""

import importlib
import sys
import tempfile
import threading
from pathlib import Path

from common import join, step

rank, _ = join()
if rank == 3:
    folder = Path(tempfile.mkdtemp())
    (folder / "plugin_a.py").write_text("import time\nimport started\ntime.sleep(36000)\n")
    (folder / "started.py").write_text("import threading\nevent = threading.Event()\n")
    sys.path.insert(0, str(folder))
    import started  # noqa: F401

    threading.Thread(target=importlib.import_module, args=("plugin_a",), daemon=True).start()
    while "plugin_a" not in sys.modules:
        pass
    import plugin_a  # noqa: F401
step()
