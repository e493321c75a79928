"""Which loops wait for a condition, by their source."""

import pytest

from gconsole_remote.stacks.poll_loops import MAX_BODY, poll_loop

WAITS = {
    "a condition": ("while not os.path.exists(path):\n    time.sleep(0.1)", "while not os.path.exists(path):"),
    "a flag": ("while not arrived:\n    # soon\n    time.sleep(0.1)", "while not arrived:"),
    "a counter of others": ("while len(keys) < world:\n    time.sleep(0.1)", "while len(keys) < world:"),
    "a return": ("while True:\n    if get(key):\n        return key\n    time.sleep(0.1)", "while True:"),
    "within a try": ("while not ready():\n    try:\n        ask()\n    except OSError:\n        time.sleep(1)",
                     "while not ready():"),
    "the inner one": ("for peer in peers:\n    while not ask(peer):\n        time.sleep(1)", "while not ask(peer):"),
    "one line": ("while not done(): time.sleep(1)", "while not done(): time.sleep(1)"),
}  # fmt: skip
WORKS = {
    "for ever": "while True:\n    step()\n    time.sleep(0.1)",
    "a count": "while step < steps:\n    train()\n    step += 1\n    time.sleep(0.1)",
    "a time": "while left > 0:\n    left = left - 1\n    time.sleep(0.1)",
    "for": "for step in range(10):\n    time.sleep(0.1)",
    "no loop": "train()\ntime.sleep(0.1)",
    "another function": "while not done():\n    def wait():\n        time.sleep(1)",
    "much to do": "while not done():\n" + "    train()\n" * (MAX_BODY + 1) + "    time.sleep(1)",
}


@pytest.mark.parametrize(("text", "head"), WAITS.values(), ids=WAITS)
def test_loop_that_waits_for_a_condition_is_found_by_its_line(text, head):
    lines = ["def meet():", *(f"    {line}" for line in text.split("\n"))]
    assert poll_loop(lines, len(lines)) == head


@pytest.mark.parametrize("text", WORKS.values(), ids=WORKS)
def test_loop_that_may_do_the_work_is_none(text):
    lines = text.split("\n")
    assert poll_loop(lines, len(lines)) is None


@pytest.mark.parametrize("number", [-1, 0, 2, 10**9])
def test_line_that_the_file_does_not_have_is_in_no_loop(number):
    assert poll_loop(["while not done():"], number) is None
    assert poll_loop([], number) is None
