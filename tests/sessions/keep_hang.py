"""A console with a black box that sees a hang, prints when all of it is on the disk, and continues until it is killed.

Arguments: the folder of black boxes, a file with the records of the hang.
"""

import asyncio
import sys
from pathlib import Path

from gconsole.config import ConsoleConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.session import ndjson
from gconsole.session.manage.black_boxes import list_black_boxes
from gconsole.session.record.black_box import BlackBox
from gconsole.session.stored_records import current_records


async def main(folder: Path, file: Path) -> None:
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    box = BlackBox(hub, folder, ConsoleConfig(), lambda: current_records(store), "pod", "/hosts.toml")
    box.start()
    while box.session is None:  # noqa: ASYNC110 - it is opened in a thread
        await asyncio.sleep(0.01)
    number = 0
    for record in ndjson.read(file):
        hub.publish([record])
        number += 1
    while not (boxes := list_black_boxes(folder)) or boxes[0].records < number:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    print("safe", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
