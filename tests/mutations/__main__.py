"""Runs the mutations, one after the other in a copy of the tree, and prints which tier of tests notices it.

    python -m tests.mutations                      all, in both tiers
    python -m tests.mutations --tier quick NAME…   some, in one tier

A mutation is caught if one of its tests fails in the mutated copy. `--unchanged` runs the same tests in an unchanged
copy, where they must pass. Exit status 1 if fewer are caught than the goals: 70 % in `quick`, 95 % in `test`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.run import QUICK, TIERS

from .catalog import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent.parent
#: Share of the mutations that a tier must catch.
GOALS = {"quick": 0.70, "test": 0.95}
#: Seconds for the tests of one mutation.
LIMIT_S = 600
_PARTS = (
    "console",
    "remote",
    "tests",
    "tools",
    "docs",
    "pyproject.toml",
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "mkdocs.yml",
)


def make_copy(folder: Path) -> None:
    """A copy of the tree below `folder` in which `gconsole` and `gconsole_remote` are importable."""
    for name in _PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        elif source.exists():
            shutil.copy2(source, folder / name)
    (folder / "gconsole").symlink_to("console")
    (folder / "gconsole_remote").symlink_to("remote")


def place_of(mutation: Mutation, root: Path = ROOT) -> Path:
    """The file that contains the text to change. Raises LookupError unless it occurs exactly once."""
    places = [
        path
        for package in ("console", "remote")
        for path in sorted((root / package).rglob("*.py"))
        for _ in range(path.read_text(encoding="utf-8").count(mutation.old))
    ]
    if len(places) != 1:
        raise LookupError(f"{mutation.name}: its text occurs {len(places)} times, not once")
    return places[0]


def tests_of(mutation: Mutation, tier: str) -> list[str]:
    """Those of its tests whose group the tier runs."""
    return [test for test in mutation.tests if tier != "quick" or test.split("/")[1] in QUICK]


def run_tests(folder: Path, tests: Sequence[str], tier: str) -> int:
    """The exit status of pytest in a copy; 5 if the tier selects none of the tests."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        TIERS[tier],
        *tests,
    ]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return 1  # the mutation makes a test hang
    if done.returncode not in (0, 1, 5):
        print(done.stdout.decode()[-2000:], done.stderr.decode()[-2000:])
    return done.returncode


def is_caught(mutation: Mutation, tier: str, folder: Path) -> bool | None:
    """Whether a test of the tier fails in the mutated copy; None if the copy cannot be tested at all."""
    tests = tests_of(mutation, tier)
    if not tests:
        return False
    path = place_of(mutation, folder)
    original = path.read_text(encoding="utf-8")
    _write_newer(path, original.replace(mutation.old, mutation.new))
    try:
        return {0: False, 1: True, 5: False}.get(run_tests(folder, tests, tier))
    finally:
        _write_newer(path, original)


def _write_newer(path: Path, text: str) -> None:
    """Write with an mtime two seconds after the last one: cached bytecode compares whole seconds."""
    changed = path.stat().st_mtime
    path.write_text(text, encoding="utf-8")
    os.utime(path, (changed + 2, changed + 2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=list(GOALS), action="append", help="only this tier; repeatable")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--unchanged", action="store_true", help="run the tests in an unchanged copy")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not options.names or mutation.name in options.names]
    with tempfile.TemporaryDirectory(prefix="gconsole-mutation-") as scratch:
        make_copy(Path(scratch))
        if options.unchanged:
            return run_tests(Path(scratch), sorted({test for mutation in chosen for test in mutation.tests}), "test")
        missed = [tier for tier in options.tier or GOALS if not reaches_goal(chosen, tier, Path(scratch))]
    return 1 if missed else 0


def reaches_goal(mutations: Sequence[Mutation], tier: str, folder: Path) -> bool:
    """Run the mutations in one tier and print each result; whether enough are caught."""
    caught = 0
    for mutation in mutations:
        began = time.monotonic()
        result = is_caught(mutation, tier, folder)
        caught += bool(result)
        word = {True: "caught", False: "MISSED", None: "BROKEN"}[result]
        seconds = time.monotonic() - began
        print(f"{tier:6s} {word}  {mutation.name:28s} {seconds:6.1f} s  {mutation.defect}", flush=True)
    share = caught / len(mutations)
    print(f"{tier}: {caught} of {len(mutations)} caught ({share:.0%}, goal {GOALS[tier]:.0%})")
    return share >= GOALS[tier]


if __name__ == "__main__":
    sys.exit(main())
