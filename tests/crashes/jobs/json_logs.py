"""Rank 2 raises; its log has one line of JSON for each record, also for the exception."""

import json
import sys
import traceback

from common import RANK, join, steps


def log_uncaught(kind, error, trace):
    text = "".join(traceback.format_exception(kind, error, trace))
    record = {"level": "ERROR", "rank": RANK, "message": "uncaught exception", "exc_info": text}
    sys.stderr.write(json.dumps(record) + "\n")
    sys.stderr.flush()


sys.excepthook = log_uncaught
if join() == 2:
    {}["learning_rate"]
steps()
