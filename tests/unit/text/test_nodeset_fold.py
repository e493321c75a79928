"""Folding of node names and rank numbers."""

import pytest

from gconsole.text.nodeset_fold import fold_numbers, fold_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "–"),
        ([5], "5"),
        ([2, 0, 1, 5, 1], "0-2,5"),
        ([None], "–"),
        ([None, None], "– (×2)"),
        ([3, None], "3,–"),
        ([3, 4, None, None], "3-4,– (×2)"),
    ],
)
def test_ranks_are_folded_and_unknown_ones_counted(ranks, text):
    assert fold_ranks(ranks) == text


def test_numbers_are_folded():
    assert fold_numbers(iter([0, 1, 2, 4])) == "0-2,4"
    assert fold_numbers([]) == "–"
