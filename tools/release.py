"""Builds a release: wheel, sdist, SBOM and checksums in build/release, tried in a clean environment.

    python tools/release.py [--out FOLDER]

The wheel is installed into a new virtual environment, where the demo must reach all its nodes without a screen. The
SBOM (CycloneDX, JSON) lists what that environment holds. Exit status 1 if any step fails; then nothing is released.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Seconds for the demo: starting four nodes takes two, on a busy machine ten.
DEMO_FOR = "10s"


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    """The standard output of a command. Raises CalledProcessError, after its messages were shown."""
    done = subprocess.run([str(word) for word in argv], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def build(out: Path) -> Path:
    """Build wheel and sdist into `out`; returns the wheel."""
    run(sys.executable, "-m", "build", "--outdir", out)
    [wheel] = out.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and the tested versions of its dependencies; returns its `bin`."""
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return folder / "bin"


def try_demo(bin_: Path, scratch: Path) -> None:
    """Run the demo headless from the installed wheel. Raises SystemExit unless every node reported."""
    report = scratch / "report.json"
    run(bin_ / "gconsole", "demo", "--batch", "--for", DEMO_FOR, "-o", report, cwd=scratch)
    states = {node["state"] for node in json.loads(report.read_text())["nodes"]}
    if states != {"ok"}:
        raise SystemExit(f"the demo of the installed wheel has nodes that are {', '.join(sorted(states))}")


def megabytes(folder: Path) -> float:
    """Size of all files below a folder, in MB (10^6 bytes)."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def write_checksums(out: Path) -> None:
    """SHA256SUMS of everything in `out`, as `sha256sum --check` reads it."""
    files = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    out: Path = parser.parse_args().out.resolve()
    if out.exists() and any(out.iterdir()):
        parser.error(f"{out} is not empty; remove it first")
    out.mkdir(parents=True, exist_ok=True)
    wheel = build(out)
    with tempfile.TemporaryDirectory(prefix="gconsole-release-") as scratch:
        environment = Path(scratch) / "venv"
        bin_ = install(wheel, environment)
        print(f"installed: {megabytes(environment):.0f} MB, pip included")
        try_demo(bin_, Path(scratch))
        print("the demo ran from the installed wheel")
        sbom = out / f"{wheel.name.removesuffix('.whl')}.cdx.json"
        run(sys.executable, "-m", "cyclonedx_py", "environment", bin_ / "python", "--output-format", "JSON", "-o", sbom)
    write_checksums(out)
    print((out / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
