"""Lines that show that a program went on with its work: an exception before them was handled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: Lines before and behind an exception that are compared.
BEFORE: Final = 400
BEHIND: Final = 4_000
#: Lines of a kind seen before the exception that show that the work went on, where none of them counts steps.
RECURRENCES: Final = 3
#: The same in an output that ranks share: the others go on until they wait for the one that failed.
SHARED_STEPS: Final = 30
_NUMBER: Final = re.compile(r"[0-9]+(?:[.,][0-9]+)*(?:e[+-]?[0-9]+)?")
_BAR: Final = re.compile(r"([0-9]{1,12})/[0-9?]{1,12} \[")
_COUNTED: Final = re.compile(
    r"(?i)\b(?:global[_ ]?step|steps?|iter(?:ation)?s?|epochs?|batch(?:es)?|it|updates?|samples)\b"
    r"[\"' ]{0,3}[:=#\[( ]{0,3}\s{0,8}([0-9]{1,12})"
)
#: Lines of libraries that also come at the end of a program.
_NOISE: Final = re.compile(
    r"NCCL (?:INFO|WARN|TRACE)|^wandb: |^\s|^\[?[IWEF][0-9]{4} |^\[[WEIF][ 0-9]|Warning\b|^Traceback"
    r"|^(?:srun|slurmstepd|mpirun|prterun): |resource_tracker"
    r"|^\S+(?:Error|Exception|Interrupt)\b|^Exception |^Process |^={5}|^-{5}|^\^"
)


def work_after(lines: list[str], index: int, end: int, is_shared: bool = False) -> bool:
    """Whether work follows the exception in lines `index` to `end`: steps that count on, or lines of the same kinds."""
    following = list(_work(lines[end : end + BEHIND]))
    if not following:
        return False
    steps: dict[str, int] = {}
    kinds: set[str] = set()
    for line in _work(lines[max(0, index - BEFORE) : index]):
        kinds.add(_NUMBER.sub("#", line))
        if step := counted_step(line):
            steps[step[0]] = step[1]
    recurrences = counted = 0
    for line in following:
        if step := counted_step(line):
            last = steps.get(step[0])
            counted += last is not None and step[1] > last
            steps[step[0]] = step[1] if last is None else max(last, step[1])
        elif _NUMBER.sub("#", line) in kinds:
            recurrences += 1
        if counted >= (SHARED_STEPS if is_shared else 1) or (recurrences >= RECURRENCES and not is_shared):
            return True
    return False


def _work(lines: list[str]) -> Iterator[str]:
    for line in lines:
        text = line[:300]
        if text and (_BAR.search(text) or not _NOISE.search(text)):
            yield text


def counted_step(line: str) -> tuple[str, int] | None:
    """What a line counts, and the count: of a progress bar, or behind a word such as step; None without a count."""
    if match := _BAR.search(line):
        return "bar", int(match[1])
    if match := _COUNTED.search(line):
        return _NUMBER.sub("#", line[: match.start(1)])[-60:], int(match[1])
    return None
