"""The fake NVML library, compiled once per run, and its scenarios."""

import atexit
import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml.c"
NAME = "libnvidia-ml.so.1"
#: Every NVML function that the library implements; a scenario can make any of them fail.
FUNCTIONS = sorted(
    set(re.findall(r"^(?:int|WORDS|NUMBER|PAIR)\W(nvml\w+)\(?", SOURCE.read_text(), re.MULTILINE))
    | set(re.findall(r"^(?:WORDS|NUMBER|PAIR)\((nvml\w+)", SOURCE.read_text(), re.MULTILINE))
)


@functools.cache
def folder() -> Path:
    """A folder with the compiled library, for LD_LIBRARY_PATH; removed when this process exits."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here: the NVML binding is tested against a library that the tests compile")
    place = Path(tempfile.mkdtemp(prefix="gconsole-nvml-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    flags = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{NAME}"]
    argv = [compiler, *flags, "-o", str(place / NAME), str(SOURCE), "-lpthread"]
    subprocess.run(argv, check=True, capture_output=True, text=True)
    return place


@functools.cache
def load() -> ctypes.CDLL:
    """Load the library in this process: later dlopen calls by name return it."""
    return ctypes.CDLL(str(folder() / NAME))


class Scenario:
    """The scenario file of the library. `change` replaces it as a whole: the next tick reads the new one."""

    def __init__(self, path: Path, lines: Mapping[str, object]) -> None:
        self.path = path
        self.lines = dict(lines)
        self.change()

    def change(self, lines: Mapping[str, object] | None = None, /, drop: tuple[str, ...] = ()) -> None:
        self.lines.update(lines or {})
        for key in drop:
            self.lines.pop(key, None)
        draft = self.path.with_name(self.path.name + ".draft")
        draft.write_text("".join(f"{key} {value}\n" for key, value in self.lines.items()))
        draft.replace(self.path)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a process that uses this scenario."""
        return {"NVML_SCENARIO": str(self.path), "LD_LIBRARY_PATH": str(folder())}
