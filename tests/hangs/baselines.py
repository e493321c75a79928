"""Baseline methods on the same jobs: the minority vote, and torch's analyser of flight recorder dumps."""

from __future__ import annotations

import json
import lzma
import pickle
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gconsole.records import Stack

RECORDINGS = Path(__file__).parent / "recordings"


def minority(stacks: Iterable[Stack]) -> frozenset[int]:
    """Ranks that the minority vote blames: those whose stack, as text, is not that of the largest group.

    This is how dominant-stack grouping works (the largest group is healthy, the rest are outliers), and how the report
    of NCCL's RAS is read. If two groups are the largest, or there is only one, no rank is blamed.
    """
    last: dict[int, tuple[int, tuple[tuple[str, str, int], ...]]] = {}
    for stack in stacks:
        if stack.role != "rank" or stack.rank is None or stack.thread_name not in ("MainThread", None):
            continue
        if stack.rank not in last or stack.sample >= last[stack.rank][0]:
            text = tuple((frame.function, frame.file, frame.line) for frame in stack.frames or ())
            last[stack.rank] = (stack.sample, text)
    groups: dict[tuple[tuple[str, str, int], ...], set[int]] = defaultdict(set)
    for rank, (_, text) in last.items():
        groups[text].add(rank)
    sizes = Counter({text: len(ranks) for text, ranks in groups.items()}).most_common(2)
    if len(sizes) < 2 or sizes[0][1] == sizes[1][1]:
        return frozenset()
    return frozenset(rank for text, ranks in groups.items() if text != sizes[0][0] for rank in ranks)


@dataclass(frozen=True)
class BaselineAnswer:
    """Ranks that torch's analyser blames, and its exception if it crashed."""

    ranks: frozenset[int]
    crash: str | None


def torchfrtrace(python: Path, worlds: Mapping[str, int], mended: bool) -> dict[str, BaselineAnswer]:
    """The output of `torchfrtrace` for the recorded flight recorders of these jobs (id → world size).

    torch 2.13 writes gloo's group names differently in the entries and in the table of groups, which makes its
    analyser crash. `mended` supplies a matching table, so that the method is compared and not its bug.
    """
    with tempfile.TemporaryDirectory() as folder:
        for job, world_size in worlds.items():
            dumps = json.loads(lzma.decompress((RECORDINGS / f"{job}.flight.json.xz").read_bytes()))
            if mended:
                _mend(dumps, world_size)
            Path(folder, job).mkdir()
            for rank, dump in dumps.items():
                Path(folder, job, f"rank_{rank}").write_bytes(pickle.dumps(dump))
        script = Path(__file__).with_name("torchfrtrace_all.py")
        done = subprocess.run([python, script, folder], capture_output=True, text=True, timeout=120, check=True)
    return {
        job: BaselineAnswer(frozenset(answer["ranks"]), answer["crash"])
        for job, answer in json.loads(done.stdout).items()
    }


def wavefront(dumps: Mapping[str, Any]) -> frozenset[int]:
    """Ranks that the rule of NVIDIA's resiliency extension blames, written anew from its description.

    Of each process group, the ranks that lack its newest collective are missing. Groups that share ranks form a chain,
    in the order of their names; the missing ranks of the first group of the longest chain are blamed.
    """
    newest: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            if not entry["is_p2p"]:
                group = newest[entry["process_group"][0]]
                group[int(rank)] = max(group.get(int(rank), 0), entry["collective_seq_id"])
    missing = {
        name: frozenset(rank for rank, seq in members.items() if seq < max(members.values()))
        for name, members in newest.items()
    }
    names = sorted((name for name in missing if missing[name]), key=lambda name: (len(name), name))
    chains: dict[str, list[str]] = {}
    for name in reversed(names):
        after = [chains[other] for other in chains if newest[name].keys() & newest[other].keys()]
        chains[name] = [name, *max(after, key=len, default=[])]
    longest = max(chains.values(), key=len, default=[])
    return missing[longest[0]] if longest else frozenset()


def _mend(dumps: dict[str, Any], world_size: int) -> None:
    members: dict[tuple[str, str], set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            members[entry["process_group"][0], entry["process_group"][1]].add(int(rank))
    table = {
        name: {"name": name, "desc": text, "ranks": str(list(range(world_size)) if name == "0" else sorted(ranks))}
        for (name, text), ranks in members.items()
    }
    for dump in dumps.values():
        dump["pg_config"] = table
