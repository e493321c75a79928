"""Stacks of the main thread in the output of py-spy."""

from gconsole_remote.stacks import profile

OUT = b"""\
thread (11): Thread-1;run (/a.py:1) 40
thread (10): MainThread;<module> (/t.py:9);step (/t.py:4) 30
thread (10): MainThread;<module> (/t.py:9) 10
process 7;thread (10): MainThread;x 5
thread (12): named;y (/t.py:1) many
py-spy> a message
"""


def test_only_the_main_thread_is_kept_the_most_frequent_stack_first():
    assert profile.parse(OUT, (10, None)) == [["<module> (/t.py:9);step (/t.py:4)", 30], ["<module> (/t.py:9)", 10]]


def test_main_thread_is_known_by_its_number_where_it_has_another_name():
    assert profile.parse(b"thread (7): renamed;f (/t.py:1) 3\n", (7, 3)) == [["f (/t.py:1)", 3]]
    assert profile.parse(b"thread (3): renamed;f (/t.py:1) 3\n", (7, 3)) == [["f (/t.py:1)", 3]]
    assert profile.parse(b"thread (4): renamed;f (/t.py:1) 3\n", (7, 3)) == []


def test_control_characters_and_endless_stacks_do_not_get_into_a_reply():
    ((stack, _),) = profile.parse(b"thread (1): MainThread;a\x1b[31m (/t.py:1) 3\n", (1,))
    assert "\x1b" not in stack
    assert profile.parse(b"thread (1): MainThread;" + b"f;" * 9000 + b"g 3\n", (1,)) == []


def test_number_of_stacks_is_bounded():
    out = b"".join(b"thread (1): MainThread;f%d (/t.py:1) 1\n" % number for number in range(1000))
    assert len(profile.parse(out, (1,))) == profile.MAX_STACKS


def test_lines_forged_by_a_function_name_do_not_end_the_reader():
    forged = "thread (\u00b2): MainThread;f \u00b2\nthread (1): MainThread;g " + "9" * 5000 + "\n"
    assert profile.parse(forged.encode() + b"thread (1): MainThread;h (/t.py:1) 3\n", (1,)) == [["h (/t.py:1)", 3]]
