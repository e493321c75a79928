"""The program with a modified agent in its bundle: `other_console.py HOW FOLDER ARGUMENTS…`.

HOW "stepped": the node's CLOCK_REALTIME is one hour ahead while the file /run/node/step exists on the node.
HOW "older": an agent with another version number and the same behaviour.
"""

import shutil
import sys
from pathlib import Path

from gconsole.cli.main import main
from gconsole.fleet.deploy import agent_payload
from gconsole_remote.clocks import stamps

_CHANGES = {
    "stepped": """

import os as _os
import time as _time

_true = _read


def _read(clock):
    ahead = 3600 * 10**9 if clock == _time.CLOCK_REALTIME and _os.path.exists("/run/node/step") else 0
    return _true(clock) + ahead
""",
    "older": "\n\nVERSION = 'another'\n",
}


def change(how: str, folder: Path) -> None:
    package = folder / how / "gconsole_remote"
    if not package.exists():
        shutil.copytree(Path(stamps.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
        with (package / "clocks" / "stamps.py").open("a") as file:
            file.write(_CHANGES[how])
    own = agent_payload._package_dir
    agent_payload._package_dir = lambda name: package if name == "gconsole_remote" else own(name)
    agent_payload._built.cache_clear()


if __name__ == "__main__":
    change(sys.argv[1], Path(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    sys.exit(main())
