"""The mutations match the code: each replaces text that occurs once, and names existing tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.__main__ import place_of
from tests.mutations.catalog import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_text_that_occurs_once_and_names_tests_that_exist(mutation: Mutation) -> None:
    path = place_of(mutation)
    compile(path.read_text(encoding="utf-8").replace(mutation.old, mutation.new), path.name, "exec")
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutation.tests)


def test_mutation_names_are_unique_and_at_least_forty() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 40
