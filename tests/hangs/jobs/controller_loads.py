"""An asyncio controller, which is no rank, opens a shard of prompts that never comes; all workers wait for a call."""

import os

from common_plain import dead_pipe
from controlled import Worker, take_part
from controller_serves import drive_workers


def load_prompts(number):
    if number == 30 and not os.environ.get("HEALTHY"):
        with open(dead_pipe(), "rb") as file:
            file.read()


take_part(__file__, lambda count: drive_workers(count, load_prompts), Worker())
