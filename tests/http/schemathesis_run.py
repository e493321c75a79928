"""Runs schemathesis, as its users do, against a server that is really there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from api_client import Api

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
#: These take seconds for every request that is well-formed, or reach out for machines that are none of ours; of them
#: only ill-formed ones are made up. A stream of events has no end; it has tests of its own.
SLOW = ("post_nodes", "post_nodes_health", "post_captures", "post_diagnose")
ENDLESS = ("get_events",)
#: Letters of a node set do not make one yet, and no pattern can say what does: there 400 is an answer to what fits.
CONFIGURATION = f"""
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]

[[operations]]
include-operation-id = ["post_jobs", "post_jobs_plan"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 403, 404, 409]

[[operations]]
include-operation-id = {json.dumps(SLOW)}
generation.mode = "negative"
"""
#: Hypothesis keeps its table of Unicode here, which takes seconds to make.
STORAGE = Path(__file__).parents[2] / ".hypothesis"


@dataclass(frozen=True)
class MadeUp:
    """What came of it: the exit status, how many requests there were, and what schemathesis says."""

    status: int
    requests: int
    text: str


def made_up(api: Api, folder: Path, examples: int) -> MadeUp:
    """Well-formed and ill-formed requests to everything, `examples` of each sort and operation beside fixed ones."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIGURATION)
    argv = [
        SCHEMATHESIS, f"--config-file={config}", "run", f"{api.url}/openapi.json", "-H",
        f"Authorization: Bearer {api.token}", f"--max-examples={examples}", "--request-timeout=60", "--no-color",
        "--seed=1", "--generation-database=none",
        *(f"--exclude-operation-id={name}" for name in ENDLESS),
    ]  # fmt: skip
    env = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(STORAGE)}
    done = subprocess.run(
        list(map(str, argv)), cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500
    )
    text = done.stdout + done.stderr
    count = re.search(r"([\d,]+) generated", text)
    return MadeUp(done.returncode, int(count[1].replace(",", "")) if count else 0, text)
