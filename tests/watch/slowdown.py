"""Slow jobs without a watched step under one `gconsole watch`: `python -m tests.watch.slowdown [late_in_long_steps]`.

`slows_down`: two gloo ranks on two nodes train for some minutes at 5 s a step, then at 15 s. `late_in_long_steps`: one
of them takes three times as long as the other, in steps of 24 s. Exit code 0 if nothing is alerted before, and
afterwards one `slow` without a culprit, or the straggler. Takes 13 minutes, as a step clock knows a job after some.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import start_torchrun
from rig import Node, Rig

from tests.hangs.live_jobs import wait_ready

from .live_watch import alerts, rule, watching

SCRIPTS = Path(__file__).parent / "jobs"
#: The only finding of each job: (id, culprits).
EXPECTED = {"slows_down": ("slow", []), "late_in_long_steps": ("straggler", ["rank 1"])}
#: The agent reads physical interfaces. The node's own one, with a `device`, in place of /sys/class/net.
STAND_IN = """set -e
for link in /sys/devices/virtual/net/*; do
    name=${link##*/}
    [ "$name" = lo ] && continue
    mkdir -p "$1/$name/device"
    ln -sfn "$link/statistics" "$1/$name/statistics"
    ln -sfn "$link/type" "$1/$name/type"
    ln -sfn "$link/operstate" "$1/$name/operstate"
done
mount --bind "$1" /sys/class/net
"""


@contextlib.contextmanager
def physical_interfaces(node: Node) -> Iterator[None]:
    """The interfaces of a node as physical ones, with their real counters."""
    (node.folder / "net").mkdir()
    node.output(["sh", "-c", STAND_IN, "sh", f"{node.inside}/net"])
    try:
        yield
    finally:
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            node.output(["umount", "/sys/class/net"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", choices=sorted(EXPECTED), default="slows_down")
    parser.add_argument("--after", type=float, default=330.0, help="seconds of health")
    parser.add_argument("--for", dest="for_s", type=float, default=760.0, help="seconds in all")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=2, name="slowdown"))
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        for node in rig.nodes:
            stack.enter_context(physical_interfaces(node))
        log = Path(scratch, "alerts")
        page = rule(log, on='["error", "slow", "straggler", "job_stalled"]', at_most_per_hour="1000")
        hosts = rig.write_hosts_toml(Path(scratch, "hosts.toml"), extra=page)
        environ = {**os.environ, "XDG_STATE_HOME": scratch}
        stack.enter_context(watching(hosts, env=environ))
        slow_after = {"SLOW_AFTER": f"{options.after:g}"}
        wait_ready(stack.enter_context(start_torchrun(rig, rig.nodes, 1, SCRIPTS / f"{options.job}.py", slow_after)))
        timed = _timed_alerts(log, options.for_s)
    opened = [(at_s, alert["finding"]) for at_s, alert in timed if alert["event"] == "open"]
    for at_s, finding in opened:
        print(f"{at_s:5.0f} s  {finding['id']}  {','.join(finding['culprits'])}  {finding['text']}")
    is_right = [(finding["id"], finding["culprits"]) for _, finding in opened] == [EXPECTED[options.job]]
    is_early = options.job == "slows_down" and is_right and opened[0][0] <= options.after
    print("right" if is_right and not is_early else "wrong")
    return 0 if is_right and not is_early else 1


def _timed_alerts(log: Path, for_s: float) -> list[tuple[float, dict[str, Any]]]:
    """(seconds, alert) of the alerts of the next seconds."""
    began, timed = time.monotonic(), list[tuple[float, dict[str, Any]]]()
    while time.monotonic() - began < for_s:
        timed += [(time.monotonic() - began, alert) for alert in alerts(log)[len(timed) :]]
        time.sleep(0.5)
    return timed


if __name__ == "__main__":
    sys.exit(main())
