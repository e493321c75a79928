"""Rank 3 finds a loss that is not a number, logs it and ends with exit code 3."""

import logging
import sys

from common import join, step

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
rank = join()
for number in range(10_000):
    step()
    if rank == 3 and number == 20:
        logging.getLogger("train").error("loss is nan at step %d, aborting", number)
        sys.exit(3)
