"""One target under atheris (libFuzzer): `python -m tests.fuzz.run_target NAME CORPUS [-max_total_time=60 …]`.

The product is imported after atheris, which instruments the imports for coverage.
"""

from __future__ import annotations

import importlib
import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["gconsole", "gconsole_remote"]):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    atheris.Setup(sys.argv, target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
