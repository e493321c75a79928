"""Runs schemathesis against a real server."""

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
#: Well-formed requests to these take seconds, or connect to other machines; only ill-formed ones are generated.
#: Event streams are endless; they have separate tests.
SLOW = ("post_nodes", "post_nodes_health", "post_captures", "post_diagnose")
ENDLESS = ("get_events",)
#: Takes an archive, which schemathesis cannot make up.
ARCHIVE = ("post_folders",)
#: No pattern describes node sets or SQL completely: there a matching value may still get 400.
CONFIGURATION = f"""
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]

[[operations]]
include-operation-id = ["post_jobs", "post_jobs_plan"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 403, 404, 409]

[[operations]]
include-operation-id = ["post_query"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404]

[[operations]]
include-operation-id = {json.dumps(SLOW)}
generation.mode = "negative"
"""
#: Hypothesis caches its Unicode table here, which takes seconds to compute.
STORAGE = Path(__file__).parents[2] / ".hypothesis"


@dataclass(frozen=True)
class SchemathesisResult:
    """Exit status, number of requests, and output of schemathesis."""

    status: int
    requests: int
    output: str


def run_schemathesis(api: Api, folder: Path, examples: int, phases: str) -> SchemathesisResult:
    """Well-formed and ill-formed requests to all operations: fixed ones, and `examples` of each when fuzzing."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIGURATION)
    argv = [
        SCHEMATHESIS, f"--config-file={config}", "run", f"{api.url}/openapi.json", "-H",
        f"Authorization: Bearer {api.token}", f"--max-examples={examples}", "--request-timeout=60", "--no-color",
        "--seed=1", "--generation-database=none", f"--phases={phases}",
        *(f"--exclude-operation-id={name}" for name in (*ENDLESS, *ARCHIVE)),
    ]  # fmt: skip
    env = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(STORAGE)}
    process = subprocess.run(
        list(map(str, argv)), cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=800
    )
    output = process.stdout + process.stderr
    count = re.search(r"([\d,]+) generated", output)
    return SchemathesisResult(process.returncode, int(count[1].replace(",", "")) if count else 0, output)
