"""Runs torch's analyser of flight recorder dumps over many jobs in one process of an interpreter with torch.

    python torchfrtrace_all.py FOLDER      FOLDER/JOB/rank_N are pickles, as torch writes them

Prints a JSON object: JOB → {"ranks": [ranks it reports as missing or culprits], "crash": its exception or null}.
"""

import contextlib
import io
import json
import logging
import re
import sys
from pathlib import Path

from torch.distributed.flight_recorder import fr_trace
from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger


def main():
    text = io.StringIO()
    FlightRecorderLogger().logger.addHandler(logging.StreamHandler(text))
    answers = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        text.seek(0)
        text.truncate()
        crash = None
        try:
            with contextlib.redirect_stdout(text):
                fr_trace.main([str(folder)])
        except (Exception, SystemExit) as error:
            crash = f"{type(error).__name__}: {error}"
        answers[folder.name] = {"ranks": ranks_in(text.getvalue()), "crash": crash}
    json.dump(answers, sys.stdout)


def ranks_in(text):
    """The ranks in "missing ranks: {1, 2}" and "Culprit rank 1" of the first error it reports."""
    missing = re.search(r"missing ranks: \{([\d, ]+)\}", text)
    if missing:
        return sorted(int(rank) for rank in missing.group(1).split(","))
    return sorted({int(rank) for rank in re.findall(r"[Cc]ulprit rank:? (\d+)", text)})


if __name__ == "__main__":
    main()
