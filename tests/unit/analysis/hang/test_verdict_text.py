"""Text of a verdict in the singular and the plural."""

import pytest
from analysis.hang.scenes import LOADER, REDUCE, SAVE, Scene, own

from gconsole.analysis.hang.wording import agreeing, ranks, they
from gconsole.present.verdict import verdict_text


@pytest.mark.parametrize(("words", "of_several"), [
    ("is stopped", "are stopped"),
    ("has exited", "have exited"),
    ("computes", "compute"),
    ("stands", "stand"),
    ("waits for a lock of its own process", "wait for a lock of their own process"),
    ("reads or writes a checkpoint", "read or write a checkpoint"),
    ("tears its process group down", "tear their process group down"),
    ("wakes up now and then in its own code", "wake up now and then in their own code"),
])  # fmt: skip
def test_verb_phrases_agree_with_the_number_of_distinct_ranks(words: str, of_several: str):
    assert agreeing(words, [3]) == agreeing(words, [3, 3]) == words
    assert agreeing(words, [3, 4]) == of_several
    assert they([3], words) == f"rank 3 {words}"
    assert they([3, 4], words) == f"ranks 3-4 {of_several}"


def test_repeated_rank_is_written_in_the_singular():
    assert (ranks([5, 5]), ranks([5, 6])) == ("rank 5", "ranks 5-6")


def all_reducing(world: int, *but: int, looks: int = 12) -> Scene:
    scene = Scene(world, looks=looks)
    for rank in set(range(world)) - set(but):
        scene.rank(rank, REDUCE)
    return scene


def summary(scene: Scene) -> str:
    return scene.verdict().summary


class TestMissingRanks:
    def test_summary_of_one_missing_rank_is_singular(self):
        text = summary(all_reducing(4, 1).rank(1, SAVE, syscall="write"))
        assert text.startswith("rank 1 reads or writes a checkpoint in train.py:70 save and has not entered")
        assert "3 ranks waiting" in text

    def test_summary_of_two_missing_ranks_is_plural(self):
        text = summary(all_reducing(4, 1, 2).rank(1, SAVE, syscall="write").rank(2, SAVE, syscall="write"))
        assert text.startswith("ranks 1-2 read or write a checkpoint in train.py:70 save and have not entered")

    def test_one_waiting_rank_is_counted_in_the_singular(self):
        assert "1 rank waiting" in summary(all_reducing(2, 1).rank(1, LOADER, syscall="poll"))

    def test_fifth_group_of_missing_ranks_is_summarized_as_one_more(self):
        scene = all_reducing(8, *range(5))
        for rank in range(5):
            scene.rank(rank, own("load", 10 + rank), syscall="fsync")
        assert "; and 1 group more and have not entered" in summary(scene)


class TestRanksNotFound:
    def test_summary_of_one_rank_not_found_names_its_node(self):
        assert "rank 3 is gone: not found on node2" in summary(all_reducing(4, 3))

    def test_summary_of_two_ranks_not_found_names_their_nodes(self):
        text = summary(all_reducing(6, 3, 4))
        assert "ranks 3-4 are gone: not found on node2, node3" in text


class TestUndecidedRanks:
    """Ranks blocked in the kernel in a call of the job's own code."""

    def test_summary_of_one_undecided_rank_and_one_waiter_is_singular(self):
        text = summary(all_reducing(2, 1).rank(1, own()))
        assert text.startswith("rank 1 is in train.py:88 load") and "; 1 other waits in all_reduce" in text

    def test_summary_of_two_undecided_ranks_and_two_waiters_is_plural(self):
        text = summary(all_reducing(4, 1, 2).rank(1, own()).rank(2, own()))
        assert text.startswith("ranks 1-2 are in train.py:88 load") and "; 2 others wait in all_reduce" in text


class TestSampleCount:
    def test_one_sample_is_written_in_the_singular(self):
        text = verdict_text(all_reducing(4, 1, looks=1).rank(1, own()).verdict())
        assert " over 1 sample in " in text and "1 samples" not in text

    def test_several_samples_are_written_in_the_plural(self):
        assert " over 12 samples in " in verdict_text(all_reducing(4, 1).rank(1, own()).verdict())
