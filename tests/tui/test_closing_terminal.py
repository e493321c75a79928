"""A console whose terminal is gone ends in time, whenever that happens."""

import pytest
from closing_terminal import ENDINGS, Ending, seconds_to_end


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("after_s", [0.0, 1.0])
def test_console_ends_after_its_terminal(ending: Ending, after_s: float):
    assert seconds_to_end(ending, after_s) is not None


def test_console_ends_when_its_terminal_closes_during_quit():
    assert seconds_to_end("gone", 1.0, keys=b"q") is not None
