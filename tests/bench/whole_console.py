"""What 1,024 nodes cost the console in all: SSH, intake, analyses and the worst view of the screen.

Each part is measured small: the CPU of `gconsole batch` over real sshd at two sizes gives that of one node and second,
without what a process costs by itself; the screen is measured with a quarter of the nodes. A calibration loop of the
same run tells how fast the machine was.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from gconsole.records import Gpu, decode

from .process import in_new_process
from .result import Outcome, Row
from .screen_live import VIEWS, WARM_UP_S, Fleet, feed
from .screen_live import live as live_views
from .stream import GPUS
from .throughput import share_over_ssh

NODES, SCREEN_NODES = 1024, 256
SIZES = (4, 12)
WARM_UP_SSH_S, MEASURED_S = 15.0, 20.0
HEADLESS_PCT, SCREEN_PCT = 60.0, 90.0
#: Decodings of the calibration loop.
_CALIBRATION = 200_000


def measure(quick: bool) -> Outcome:
    sizes, screen_nodes, measured_s = ((2, 4), 32, 4.0) if quick else (SIZES, SCREEN_NODES, MEASURED_S)
    few, many = (size * share_over_ssh(size, WARM_UP_SSH_S, measured_s) for size in sizes)
    node_ms = 10 * (many - few) / (sizes[1] - sizes[0])  # a percent of a core for a second is 10 ms
    views = in_new_process(live_views, screen_nodes, measured_s / 2, 0)
    fed = in_new_process(_fed, screen_nodes, measured_s / 2)
    worst = max(views, key=lambda view: views[view].pct)
    screen_ms = 10 * max(0.0, views[worst].pct - fed) / screen_nodes
    decode_us = in_new_process(calibrate_us)
    peer = f"decoding a gpu record {decode_us:.2f} µs"
    headless, whole = node_ms * NODES / 10, (node_ms + screen_ms) * NODES / 10
    return Outcome(
        [
            Row("SSH, intake and analyses, a node and second", f"{node_ms:.2f} ms of CPU", peer=peer,
                ratio=1000 * node_ms / decode_us),
            Row(f"the screen, {worst}, a node and second", f"{screen_ms:.2f} ms of CPU", peer=peer,
                ratio=1000 * screen_ms / decode_us),
            Row(f"headless, {NODES} nodes × {GPUS} GPUs at 1 Hz", f"{headless:.0f} % of a core",
                f"≤ {HEADLESS_PCT:g} %", headless <= HEADLESS_PCT),
            Row(f"sum: SSH, intake, analyses and {worst}, {NODES} nodes", f"{whole:.0f} % of a core",
                f"≤ {SCREEN_PCT:g} %", whole <= SCREEN_PCT),
        ],
        [
            f"SSH, intake, analyses: `gconsole batch` on {sizes[0]} and {sizes[1]} nodes of real sshd with agents of"
            f" {GPUS} simulated GPUs and no ranks, {measured_s:g} s each; the difference divided by that of the nodes",
            f"the screen: the worst of {', '.join(VIEWS)} with {screen_nodes} nodes × 8 GPUs × 8 ranks, less the same"
            " records put into a store without a screen",
            f"the sums are these, times {NODES}: not measured at that size; the ratio is to a loop of this run",
        ],
    )  # fmt: skip


def _fed(nodes: int, measured_s: float) -> float:
    """% of a core that decoding and storing take without a screen, in a separate process."""
    return asyncio.run(_fed_share(Fleet(nodes), measured_s))


async def _fed_share(fleet: Fleet, measured_s: float) -> float:
    feeding = asyncio.create_task(feed(fleet))
    await asyncio.sleep(WARM_UP_S)
    sent, used = fleet.sent, time.process_time()
    await asyncio.sleep(measured_s)
    pct = 100 * (time.process_time() - used) * len(fleet.names) / (fleet.sent - sent)
    feeding.cancel()
    return pct


def calibrate_us() -> float:
    """µs of CPU to decode one `gpu` record, in a separate process."""
    line = msgspec.json.encode(Gpu(node="node001", index=1, uuid="GPU-1", util_pct=97.5, power_w=612.5, temp_c=71.0))
    began = time.process_time()
    for _ in range(_CALIBRATION):
        decode(line)
    return 1e6 * (time.process_time() - began) / _CALIBRATION
