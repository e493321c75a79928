"""RESULTS.md keeps the latest result of each bench; a run of one bench changes only its own."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # the benches are a separate package

from tests.bench.__main__ import BENCHES, RESULTS
from tests.bench.conditions import MEASURED_CODE, ROOT, is_older_than_its_code
from tests.bench.result import Outcome, Row
from tests.bench.results_file import as_markdown, commit_of, kept_of, marked, read

HERE = [("date", "2026-11-21 10:00 UTC"), ("commit", "7e601cda0611 and uncommitted changes"), ("cores", "2")]


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


def test_each_row_has_its_commit_and_is_marked_once_its_code_has_changed():
    row = Row("wall", "1 s", "≤ 2 s", True)
    stored = kept_of("start_up", Outcome([row]), HERE)
    assert commit_of(stored) == "7e601cda0611"
    assert stored.rows[0].endswith("| 7e601cda0611+ |")
    old = marked(stored, is_old=True)
    assert old.rows[0].endswith("| 7e601cda0611+ old |")
    assert marked(old, is_old=False) == stored
    assert read(as_markdown({"start_up": old}, BENCHES)) == {"start_up": old}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: commits are unknown")
def test_result_is_older_than_its_code_after_a_commit_to_it():
    assert not is_older_than_its_code("screen_live", "HEAD")
    assert is_older_than_its_code("screen_live", "0" * 12), "a commit that is not there"
    assert is_older_than_its_code("screen_live", "")
    folders = [folder for folders in MEASURED_CODE.values() for folder in folders]
    assert set(MEASURED_CODE) <= set(BENCHES) and all((ROOT / folder).exists() for folder in folders)
