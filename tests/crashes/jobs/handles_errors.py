"""Ends well, although its log is full of handled errors."""

import logging
import sys
import traceback

import torch.distributed as dist
from common import healthy, join

logging.basicConfig(level=logging.INFO)
rank = join()
for attempt in range(3):
    try:
        raise ConnectionResetError("Connection reset by peer")
    except ConnectionResetError:
        traceback.print_exc()
        logging.exception("ERROR: upload of metrics failed, attempt %d", attempt)
print("CUDA out of memory was handled; RuntimeError: retried with a smaller batch", file=sys.stderr)
healthy(2)
print("training is complete")
dist.destroy_process_group()
