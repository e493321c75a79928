"""An asyncio controller, which is no rank, awaits the answers of all workers; worker 1 waits for a licence server."""

import os
import socket

from controlled import Worker, take_part
from controller_serves import drive_workers


class Licensed(Worker):
    def roll_out(self, number):
        super().roll_out(number)
        if number == 30 and os.environ["RANK"] == "1" and not os.environ.get("HEALTHY"):
            from common import silent_server

            socket.create_connection(silent_server()).recv(1)


take_part(__file__, drive_workers, Licensed())
