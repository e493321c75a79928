"""Failures parsed from outputs: hostile input, prefixes, chains, handled exceptions, secrets."""

import json
import random

import pytest

from gconsole.analysis.crash.exceptions import parse_output, parse_streams
from gconsole.analysis.crash.verdict import CrashFailure

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 20, in <module>
    main()
  File "/home/u/train.py", line 12, in main
    raise ValueError("bad label")
ValueError: bad label
"""


def only(text: str) -> CrashFailure:
    [failure] = parse_output(text)
    return failure


def prefixed(prefix: str, text: str = TRACEBACK) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", None), ("[rank3]: ", 3), ("[default1]:[rank3]: ", 3),
        ("3: ", 3), (" 3: ", 3), ("[3] ", 3), ("[1,3]<stderr>:", 3),
        ("[prterun-n1-77@1,3]<stderr>: ", 3), ("node-7: [rank3]: ", 3), ("2026-03-01T10:00:00.123456789Z ", None),
        ("2026-03-01T10:00:00.123456789Z stderr F [rank3]: ", 3), ("[pod/train-1/pytorch] [rank3]: ", 3),
        ("(RayTrainWorker pid=77, ip=10.0.0.1) [rank3]: ", 3), ("\x1b[36m(RayTrainWorker pid=77)\x1b[0m ", None),
        ("Mar 01 10:00:00 n1 train[77]: ", None), ("[2026-03-01 10:00:00,123] ", None), ("[trainer0]:[rank3]: ", 3),
    ],
)  # fmt: skip
def test_prefixes_are_removed_and_number_the_rank(prefix: str, rank: int | None) -> None:
    failure = only(prefixed(prefix))
    assert (failure.type, failure.message, failure.rank) == ("ValueError", "bad label", rank)
    assert failure.site is not None and (failure.site.line, failure.site.function) == (12, "main")
    assert failure.site.source == 'raise ValueError("bad label")'


@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK.replace("\n", "\r\n"),
        f"\x1b[31m{TRACEBACK}\x1b[0m",
        " 50%|█████     | 5/10 [00:01<00:01, 4.2it/s]" + TRACEBACK,
        "\r 10%|█ | 1/10\r 20%|██ | 2/10\r" + TRACEBACK,
        "\0\0\0" + TRACEBACK,
        "�caf\udcff\n" + TRACEBACK,
        "x" * 2_000_000 + "\n" + TRACEBACK,
        TRACEBACK + "y" * 2_000_000,
        TRACEBACK.rstrip("\n"),
    ],
    ids=[
        "crlf", "ansi", "progress bar", "carriage returns", "nul", "not utf-8", "long line before", "long line behind",
        "torn end",
    ],
)  # fmt: skip
def test_traceback_is_parsed_among_what_terminals_and_files_add(text: str) -> None:
    failure = only(text)
    assert (failure.type, failure.category, failure.site and failure.site.line) == ("ValueError", "exception", 12)
    assert len(failure.message) <= 500 and len(failure.details) <= 2_000


def test_traceback_whose_beginning_is_missing_is_parsed() -> None:
    failure = only(TRACEBACK.split("\n", 3)[3])
    assert (failure.type, failure.site and failure.site.line) == ("ValueError", 12)


def test_traceback_that_is_cut_off_is_of_unknown_role() -> None:
    failure = only("\n".join(TRACEBACK.splitlines()[:4]))
    assert (failure.category, failure.role) == ("cut_off", "unknown")


@pytest.mark.parametrize(
    "text",
    [
        "warnings.warn('RuntimeError: x')\n",
        "2026-03-01 10:00:00 ERROR step failed: ValueError('bad label')\n",
        "ValueError: bad label\n",
        "the process may be Killed by the kernel\n",
        "Stack (most recent call last):\n  File \"a.py\", line 1, in f\n",
        "3 tasks were CANCELLED\n",
        "loss: nan\n",
        "error: cannot find x\n",
        "DeprecationWarning: CUDA error: x\n",
    ],
)  # fmt: skip
def test_lines_that_only_mention_failures_are_none(text: str) -> None:
    assert parse_output("step 1\n" + text + "step 2\n") == ()


def steps(first: int, last: int) -> str:
    return "".join(f"step {step} loss 1.{step}\n" for step in range(first, last))


@pytest.mark.parametrize(
    "after",
    [
        steps(5, 9),
        "retrying\n" + steps(5, 6),
        "40%|██ | 6/10 [00:05<00:04, 1.0it/s]\n",
        "loaded a\nloaded a\nloaded a\n",
    ],
    ids=["steps", "one step", "progress bar", "lines of the same kind"],
)
def test_exception_that_work_follows_is_not_final(after: str) -> None:
    before = steps(0, 5) + "30%|██ | 5/10 [00:05<00:04, 1.0it/s]\nloaded a\n"
    assert not only(before + TRACEBACK + after).is_final


@pytest.mark.parametrize(
    "after",
    [
        "",
        "wandb: Run history:\nwandb: step 5\n",
        "30%|██ | 5/10 [00:06<00:04, 1.0it/s]\n",
        "[W1 x.cpp:1] destroy\n",
        "step 4 loss 1.4\n",
    ],
    ids=["nothing", "wandb", "the same bar", "a warning", "the last step again"],
)
def test_exception_before_the_noise_of_an_exit_is_final(after: str) -> None:
    before = steps(0, 5) + "30%|██ | 5/10 [00:05<00:04, 1.0it/s]\n"
    assert only(before + TRACEBACK + after).is_final


def test_exception_of_the_hook_of_torch_is_final_whatever_follows() -> None:
    [failure] = parse_output(steps(0, 5) + prefixed("[rank1]: ") + steps(5, 9))
    assert failure.is_uncaught and failure.is_final


def test_traceback_that_begins_in_a_function_was_printed_by_a_handler() -> None:
    handled = TRACEBACK.replace('  File "/home/u/train.py", line 20, in <module>\n    main()\n', "")
    assert only(handled).is_caught and not only(TRACEBACK).is_caught


def test_chain_names_the_exception_that_is_not_a_consequence() -> None:
    peer = TRACEBACK.replace(
        "ValueError: bad label", "RuntimeError: [x/gloo/pair.cc:1] Connection closed by peer [::1]:1"
    )
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert only(TRACEBACK + link + peer).type == "ValueError"
    assert only(TRACEBACK + link + peer).is_caught
    assert (only(peer + link + TRACEBACK).role, only(peer + link + TRACEBACK).type) == ("consequence", "RuntimeError")


def test_cause_of_a_chain_is_in_the_details_and_in_the_category() -> None:
    full = TRACEBACK.replace("ValueError: bad label", "OSError: [Errno 28] No space left on device: 'a.pt'")
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    failure = only(full + link + TRACEBACK)
    assert (failure.type, failure.category) == ("ValueError", "disk_full")
    assert (
        "caused by OSError: [Errno 28] No space left on device: 'a.pt' at /home/u/train.py:12 main" in failure.details
    )


@pytest.mark.parametrize(
    ("module", "category", "role"),
    [
        ("/lib/python3.10/site-packages/urllib3/connectionpool.py", "external_service", "cause"),
        ("/lib/python3.10/site-packages/torch/distributed/x.py", "peer_closed", "consequence"),
        ("/usr/lib/python3.10/multiprocessing/connection.py", "worker_pipe", "consequence"),
    ],
)
def test_lost_connection_is_judged_by_the_code_that_lost_it(module: str, category: str, role: str) -> None:
    text = TRACEBACK.replace('"/home/u/train.py", line 12, in main', f'"{module}", line 12, in recv')
    failure = only(text.replace("ValueError: bad label", "ConnectionResetError: [Errno 104] Connection reset by peer"))
    assert (failure.category, failure.role) == (category, role)


def test_secrets_in_messages_and_source_are_redacted() -> None:
    text = TRACEBACK.replace(
        "bad label", "login failed: token=hf_abcdefghijklmnopqrstuvwxyz0123 https://u:pw123@host/x"
    )
    failure = only(text)
    assert "hf_abc" not in str(failure) and "pw123" not in str(failure)


def test_frames_of_interleaved_tracebacks_are_not_given_to_either() -> None:
    lines = TRACEBACK.splitlines()
    mixed = "\n".join(line for line in lines[:-1] for _ in range(2)) + "\nValueError: a\n"
    assert only(mixed).site is None


def test_kernel_assertions_of_all_threads_are_one_failure() -> None:
    line = "a/Indexing.cu:1290: indexSelect: block: [0,0,0], thread: [{},0,0] Assertion `i < n` failed.\n"
    failure = only("".join(line.format(number) for number in range(5_000)))
    assert (failure.type, failure.category) == ("CUDA assertion", "device_assert")


def test_number_of_failures_of_one_output_is_bounded() -> None:
    failures = parse_output(prefixed("[rank1]: ") * 3_000)
    assert len(failures) == 400


@pytest.mark.parametrize(
    "link", ["Original ", "", "\nDuring handling of the above exception, another exception occurred:\n\n"]
)
def test_depth_of_nested_tracebacks_is_bounded(link: str) -> None:
    assert parse_output((TRACEBACK + link) * 400 + TRACEBACK)


def test_line_numbers_are_those_of_the_output() -> None:
    assert only("a\nb\n" + TRACEBACK).line == 3


def test_time_before_the_lines_is_that_of_the_failure() -> None:
    failure = only(prefixed("2026-03-01T10:00:00.5Z "))
    assert (failure.at_ns, failure.at_bound_ns) == (1_772_359_200_500_000_000, 100_000_000)


def test_random_bytes_and_lines_never_raise() -> None:
    draw = random.Random(7)
    pieces = [
        *TRACEBACK.splitlines(True), "[rank1]: ", "3: ", "\x1b[3", "\r", "\n", "| ", "+ ", "=== 1\n",
        "terminate called after throwing an instance of 'x'\n", "  what():  y\n", "Fatal Python error: Aborted\n",
        "-- Process 1 terminated with the following error:\n", "Original Traceback (most recent call last):\n",
        "[0]:\n  rank : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 1)\n",
    ]  # fmt: skip
    for _ in range(400):
        parse_streams("".join(draw.choice(pieces) for _ in range(draw.randrange(60))))


@pytest.mark.parametrize("number", ["²", "9" * 40, "٣"])
def test_numbers_from_outside_are_ascii_and_bounded(number: str) -> None:
    parse_output(
        f'[rank{number}]: Traceback (most recent call last):\n  File "a.py", line {number}, in f\n    x\nE: y\n'
    )


def test_traceback_that_a_json_log_quotes_is_read_also_in_a_long_line_behind_a_prefix() -> None:
    frames = '  File "/home/u/train.py", line 7, in <module>\n    x["lr"]\n'
    trace = f'Traceback (most recent call last):\n{frames}KeyError: "lr"\n'
    record = json.dumps({"level": "ERROR", "extra": "y" * 5_000, "exc_info": trace})
    for line in (record, f"[rank3]: {record}"):
        [failure] = parse_output(f"step 1\n{line}\n")
        assert (failure.type, failure.message, failure.line) == ("KeyError", '"lr"', 2)
        assert failure.site is not None and failure.site.line == 7
    assert parse_output(f"{record[:5080]}\n") == ()
