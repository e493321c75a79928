"""The fake libcuda, compiled once per run."""

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "cuda.c"
NAME = "libcuda.so.1"
#: Every function it implements, except the one that formats errors.
CALLS = sorted(set(re.findall(r"^int (cu\w+)\(", SOURCE.read_text(), re.MULTILINE)) - {"cuGetErrorString"})


@functools.cache
def folder() -> Path:
    """A folder with the compiled library, for LD_LIBRARY_PATH; removed when this process exits."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here: GPU timers are read from a library that the tests compile")
    place = Path(tempfile.mkdtemp(prefix="gconsole-cuda-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{NAME}"]
    subprocess.run([compiler, *flags, "-o", str(place / NAME), str(SOURCE)], check=True, capture_output=True, text=True)
    return place
