"""A console that records a stream as fast as it arrives and prints its progress, to be killed at any time.

Each line has the last published sequence number, and the last one that an agent may drop because it is on the
disk.
"""

import asyncio
import time
from pathlib import Path
from typing import TextIO

from gconsole.core.bus import Hub
from gconsole.records import Gpu
from gconsole.session.manage.retention import Limits
from gconsole.session.record.recorder import Recorder


async def stream(folder: Path, name: str, agent: str, out: TextIO) -> None:
    hub = Hub()
    recorder = Recorder(hub, folder, Limits(), lambda: (), segment_bytes=4096)
    await recorder.start(name)
    seq = 0
    while True:
        records = []
        for index in range(4):
            seq += 1
            now = time.time_ns()
            records.append(
                Gpu(node="node1", agent=agent, seq=seq, t=now, mono=time.monotonic_ns(), rx=now, index=index,
                    uuid=f"GPU-{index}", power_w=float(seq % 700))
            )  # fmt: skip
        hub.publish(records)
        print(seq, hub.kept(agent, seq), file=out, flush=True)
        await asyncio.sleep(0.005)
