"""Runs `gconsole batch --fail-on info` on every profile of NVIDIA's NVML mock: healthy GPUs give no finding.

python -m tests.gpus.mock_profiles LIBRARY             every profile once
python -m tests.gpus.mock_profiles LIBRARY --times 20 t4 h100

LIBRARY is the folder with libnvidia-ml.so.1 and `configs`: `pkg/gpu/mocknvml` of github.com/NVIDIA/k8s-test-infra,
built by its Makefile (`make NO_PADDING=1`). It is not part of this repository, and no test needs it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

#: Findings about the machine on which this runs, not about its GPUs.
OF_THE_MACHINE = frozenset(
    {
        "clock_step",
        "clock_unsynced",
        "console_late",
        "kernel_fault",
        "nic_down",
        "nic_errors",
        "node_rebooted",
        "service_fault",
    }
)
LIMIT_S = 120.0
#: The hosts file of a console on this machine; `cache` is the agent's folder.
HOSTS = """[ssh]
transport = "local"
[agent]
cache_dir = "{cache}"
[[nodes]]
hosts = "mock"
process_filter = "env:GCONSOLE_TEST_NOBODY=1"
"""


class Run(NamedTuple):
    """Exit code and report of one run of `batch`."""

    code: int
    gpus: int
    findings: tuple[tuple[str, str], ...]  # (id, text)

    @property
    def problems(self) -> tuple[str, ...]:
        """Findings about GPUs, an unexpected exit code, missing GPUs."""
        of_gpus = [f"{id}: {text}" for id, text in self.findings if id not in OF_THE_MACHINE]
        expected = 1 if self.findings else 0
        return (
            *of_gpus,
            *([] if self.code == expected else [f"exit code {self.code}"]),
            *([] if self.gpus else ["no GPUs"]),
        )


def profiles(library: Path) -> dict[str, Path]:
    """The configuration files of the mock by name of the profile: t4, a100, …"""
    paths = sorted((library / "configs").glob("mock-nvml-config-*.yaml"))
    return {path.stem.rpartition("-")[2]: path for path in paths}


def watch(library: Path, profile: Path, duration: str, folder: Path) -> Run:
    """Watch this machine with that profile."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        hosts, report = Path(own) / "hosts.toml", Path(own) / "report.json"
        hosts.write_text(HOSTS.format(cache=folder / "cache"))
        argv = [str(Path(sys.executable).parent / "gconsole"), "batch", str(hosts), "--for", duration]
        env = {**os.environ, "LD_LIBRARY_PATH": str(library), "MOCK_NVML_CONFIG": str(profile)}
        done = subprocess.run(
            [*argv, "--fail-on", "info", "--quiet", "-o", str(report)],
            env=env, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        content = json.loads(report.read_text()) if report.exists() else {"gpus": [], "findings": []}
    findings = tuple((finding["id"], finding["text"]) for finding in content["findings"])
    return Run(done.returncode, len(content["gpus"]), findings)


def main() -> int:
    """Print a line for each profile; 1 if one of them had a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="folder with libnvidia-ml.so.1 and configs")
    parser.add_argument("names", nargs="*", metavar="PROFILE", help="only these")
    parser.add_argument("--times", type=int, default=1, help="runs of each profile")
    parser.add_argument("--for", dest="duration", default="10s", help="duration of a run")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time")
    options = parser.parse_args()
    chosen = {name: path for name, path in profiles(options.library).items() if name in (options.names or (name,))}
    if not chosen or set(options.names) - set(chosen):
        parser.error(f"profiles here: {', '.join(profiles(options.library)) or 'none'}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="gconsole-mock-") as folder, ThreadPoolExecutor(options.at_once) as pool:
        runs = {
            name: [pool.submit(watch, options.library, path, options.duration, Path(folder))
                   for _ in range(options.times)]
            for name, path in chosen.items()
        }  # fmt: skip
        for name, futures in runs.items():
            results = [future.result() for future in futures]
            clean = sum(not run.problems for run in results)
            failed |= clean < len(results)
            gpus = results[0].gpus
            print(f"{name:6} {clean} of {len(results)} runs without a finding about its {gpus} GPUs", flush=True)
            texts = Counter(text for run in results for text in run.problems)
            texts.update(f"(this machine) {id}: {text}" for run in results for id, text in run.findings
                         if id in OF_THE_MACHINE)  # fmt: skip
            for text, times in texts.most_common():
                print(f"       {times} × {text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
