"""`gconsole clean --json` and `gconsole release --json`: a row for each node, its result or its failure."""

from __future__ import annotations

import json

from gconsole.fleet.survey import NodeReply
from gconsole.monitor.doctor import clean_json, release_json
from gconsole.records import Failure

AWAY = NodeReply("b", failure=Failure("lost", "no word for 3 s", "R"))


def test_clean_json_has_the_result_or_the_failure_of_each_node():
    cleaned = NodeReply("a", value={"removed": ["/x"], "kept": [], "ended": []})
    document = json.loads(clean_json([cleaned, AWAY]))
    assert document["schema"] == "gconsole.clean/1"
    assert document["nodes"][0] == {
        "node": "a", "result": {"removed": ["/x"], "kept": [], "ended": []}, "failure": None,
    }  # fmt: skip
    assert document["nodes"][1]["result"] is None and document["nodes"][1]["failure"]["name"] == "lost"


def test_release_json_has_the_result_or_the_failure_of_each_node():
    released = NodeReply("a", value={"left_s": 600, "holders": []})
    document = json.loads(release_json([released, AWAY]))
    assert document["schema"] == "gconsole.release/1"
    assert document["nodes"][0]["result"] == {"left_s": 600, "holders": []}
    assert document["nodes"][1]["failure"]["text"] == "no word for 3 s"
