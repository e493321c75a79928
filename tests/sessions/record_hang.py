"""A console that records a hang, prints when all of it is on the disk, and continues until it is killed.

Arguments: the sessions folder, a session name, a file with the records of the hang.
"""

import asyncio
import sys
from pathlib import Path

from gconsole.core.bus import Hub
from gconsole.session import ndjson
from gconsole.session.manage.retention import Limits
from gconsole.session.record.recorder import Recorder


async def main(folder: Path, name: str, file: Path) -> None:
    hub = Hub()
    recorder = Recorder(hub, folder, Limits(), lambda: ())
    await recorder.start(name)
    last: dict[str, int] = {}
    for record in ndjson.read(file):
        hub.publish([record])
        last[record.agent] = record.seq
    while any(hub.kept(agent, seq) < seq for agent, seq in last.items()):  # noqa: ASYNC110 - an agent asks as well
        await asyncio.sleep(0.05)
    print("safe", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
