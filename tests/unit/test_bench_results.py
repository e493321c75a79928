"""RESULTS.md keeps the latest result of each bench; a run of one bench changes only its own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the benches are a separate package

from tests.bench.__main__ import BENCHES, RESULTS
from tests.bench.result import Outcome, Row
from tests.bench.results_file import as_markdown, kept_of, read

HERE = [("date", "2026-11-21 10:00 UTC"), ("cores", "2")]


def test_updating_one_bench_result_keeps_the_others():
    met, missed = Row("wall", "1 s", "≤ 2 s", True), Row("memory", "9 MB", "≤ 8 MB", False, "peer 18 MB", 0.5)
    before = {"start_up": kept_of("start_up", Outcome([met], ["as people do"]), HERE),
              "query_cost": kept_of("query_cost", Outcome([met, missed], [], ["smaller buffers"]), HERE)}  # fmt: skip
    kept = read(as_markdown(before, BENCHES))
    assert kept == before

    kept |= {"start_up": kept_of("start_up", Outcome([missed, missed]), HERE)}
    text = as_markdown(kept, BENCHES)

    assert read(text)["query_cost"] == before["query_cost"]
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:] == [
        "| start_up", "| start_up", "| query_cost", "| query_cost",
    ]  # fmt: skip
    assert "- missed: memory; tried:\n  - smaller buffers" in text


def test_results_md_parses_and_renders_to_itself():
    text = RESULTS.read_text()
    assert as_markdown(read(text), BENCHES) == text
    assert set(read(text)) <= set(BENCHES)
