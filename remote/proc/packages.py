"""Versions of packages in the Python that a job would get on this node, from the names of their metadata folders.

Nothing is started or imported. The Python is that of `torchrun` in PATH, else `python3`.
"""

import glob
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: Packages whose versions must agree in a job.
PACKAGES = ("torch", "accelerate")
_VERSION = re.compile(r"-([0-9][A-Za-z0-9.+!_-]{0,60})\.(?:dist|egg)-info\Z")


def package_versions(path: "str | None" = None) -> "Iterator[tuple[str, str, str]]":
    """("package", name, version) of each of `PACKAGES` that is installed; `path` replaces PATH."""
    for prefix in _prefixes(path):
        folders = glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages"))
        versions = [(name, _version(folders, name)) for name in PACKAGES]
        if versions[0][1] is not None:
            for name, version in versions:
                if version is not None:
                    yield "package", name, version
            return


def _prefixes(path: "str | None") -> "Iterator[str]":
    """Folders of installations: that of the interpreter in the first line of torchrun, then that of python3."""
    import shutil  # it loads the modules of three compressions: once in the life of an agent, if ever

    launcher = shutil.which("torchrun", path=path)
    if launcher is not None:
        try:
            with open(launcher, "rb") as file:
                words = os.fsdecode(file.readline(4096)).split()
        except OSError:
            words = []
        if len(words) == 1 and words[0].startswith("#!/") and "python" in os.path.basename(words[0]):
            yield os.path.dirname(os.path.dirname(words[0][2:]))
    interpreter = shutil.which("python3", path=path)
    if interpreter is not None:
        yield os.path.dirname(os.path.dirname(interpreter))


def _version(folders: "list[str]", name: str) -> "str | None":
    for folder in folders:
        for entry in glob.glob(os.path.join(glob.escape(folder), name + "-*-info")):
            match = _VERSION.search(entry)
            if match:
                return match.group(1)
    return None
