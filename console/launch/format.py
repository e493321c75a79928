"""Plans and jobs as text and JSON."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.job_protocol import NodeStop, Synced, SyncFolder, may_be_left
from ..records import Failure, Output
from ..text.documents import JsonText, pretty
from ..text.format import plural, size
from ..text.nodeset_fold import fold
from ..text.sanitize import Printable, join_lines, printable
from ..text.secrets import excerpt_without_secrets, value_without_secrets, words_without_secrets
from .plan import LaunchPlan, Refusal
from .scale import Scaled
from .state import JobNodeStatus, JobStatus

_FOLDER = "$GCONSOLE_JOB_DIR"


def outcome_text(outcome: LaunchPlan | Refusal) -> Printable:
    """The plan or the refusal as text."""
    return plan_text(outcome) if isinstance(outcome, LaunchPlan) else refusal_text(outcome)


def plan_text(plan: LaunchPlan) -> Printable:
    """What will run on each node, and why other nodes were left out."""
    first = plan.first
    gpus = plural(first.gpus_per_node, "GPU") if first.gpus_per_node else "no GPUs"
    interfaces = sorted({name for name in plan.interfaces.values() if name})
    lines = [
        f"job {plan.job}: {layout_text(len(plan.orders), first.procs_per_node)}, {gpus} per node, {first.launcher}",
        f"  rendezvous {first.master_addr}:{first.master_port}"
        + (f" over {', '.join(interfaces)}" if interfaces else ""),
        f"  in {first.workdir or 'the home directory'}",
    ]
    python = plan.pythons.get(next(iter(plan.orders)))
    if python is not None:
        versions = [f"{name} {version}" for name, version in python.versions.items() if version is not None]
        lines.append(f"  Python {', '.join([python.version, *versions])}")
    if plan.brings is not None:
        lines.append(f"  {plan.brings.local} is copied there first: {plural(plan.brings.files, 'file')}, "
                     f"{size(plan.brings.bytes)}; only changed files are sent")  # fmt: skip
    if plan.scaled is not None:
        lines += [f"  adjusted copy of {plan.scaled.path}:", *(f"    {line}" for line in _scaled(plan.scaled))]
    for node, order in plan.orders.items():
        begin, last = order.index * order.procs_per_node, (order.index + 1) * order.procs_per_node - 1
        ranks = f"rank {begin}" if begin == last else f"ranks {begin}-{last}"
        given = f"  gpu {','.join(map(str, plan.gpu_indices[node]))}" if plan.gpu_indices[node] else ""
        lines.append(f"  {node}  {ranks}{given}")
        lines += [f"    {shell(command.argv, {**order.env, **command.env})}" for command in order.commands]
    lines += [f"  ▲ {warning}" for warning in plan.warnings]
    return join_lines([*lines, *_left_out(plan.left_out)])


def layout_text(nodes: int, procs_per_node: int) -> str:
    """`4 nodes × 8 = 32 ranks`."""
    return f"{plural(nodes, 'node')} × {procs_per_node} = {plural(nodes * procs_per_node, 'rank')}"


def refusal_text(refusal: Refusal) -> Printable:
    """Why a job cannot start, by node, and which requests could."""
    lines = [f"✖ {refusal.reason}", *_left_out(refusal.left_out), *(f"  try: {change}" for change in refusal.change)]
    return join_lines(lines)


def to_json(
    outcome: LaunchPlan | Refusal, started: bool | None = None, failures: Mapping[str, Failure] = {}
) -> JsonText:
    """`{"schema": "gconsole.plan/1", …}`: the plan with an order for each node, or the refusal.

    After a start also `started`, and the `failures` of nodes on which it failed.
    """
    document: dict[str, Any] = {"schema": "gconsole.plan/1"}
    if started is not None:
        document |= {"started": started, "failures": dict(failures)}
    if isinstance(outcome, LaunchPlan):
        document["plan"] = outcome
    else:
        document["refusal"] = outcome
    return pretty(document)


def shell(argv: Sequence[str], env: dict[str, str]) -> str:
    """A command without its secrets, as it can be pasted into a shell on the node, where GCONSOLE_JOB_DIR is set."""
    words = [*(f"{name}={_quoted(value_without_secrets(name, value))}" for name, value in env.items())]
    return " ".join([*words, *map(_quoted, words_without_secrets(argv))])


def status_text(views: Sequence[JobStatus], outputs: Sequence[Output] = ()) -> Printable:
    """A paragraph a job, nodes in the same state on one line; last lines of a failed job from `outputs`."""
    if not views:
        return join_lines(["no jobs started by gconsole"])
    lines = []
    for view in views:
        lines += _job_lines(view)
        last = last_lines(view, outputs)
        lines += [f"    | {line}" for line in last]
    return join_lines(lines)


#: Last lines of a failed job in its status.
LAST_LINES = 10
#: Characters of each.
_LONGEST_LINE = 1000


def last_lines(view: JobStatus, outputs: Sequence[Output]) -> list[str]:
    """The last lines of what failed first: the rank that the launcher blames or that wrote last, else the launcher."""
    first = view.first_bad
    if first is None or first.state != "failed" or not view.is_over:
        return []
    job, node = view.ordered.job, first.node
    ours = [output for output in outputs if (output.job, output.node) == (job, node) and (output.text or "").strip()]
    if first.local_rank is not None:
        rank = first.index * view.ordered.procs_per_node + first.local_rank
        ours = [output for output in ours if output.rank == rank] or ours
    elif blamed := re.match(r"rank (\d+) \(local rank", first.reason or ""):
        ours = [output for output in ours if output.rank == int(blamed[1])] or ours
    if not ours:
        return []
    newest = max(ours, key=lambda output: (output.attempt, output.stream == "stderr", output.written_at or 0))
    lines = [line for line in (newest.text or "").splitlines() if line.strip()][-LAST_LINES:]
    return [excerpt_without_secrets(line, _LONGEST_LINE) for line in lines]


def status_json(views: Sequence[JobStatus], outputs: Sequence[Output] = ()) -> JsonText:
    """`{"schema": "gconsole.jobs/1", "jobs": […]}`: what was ordered, and a line for each node."""
    jobs = [
        {
            "job": view.ordered.job, "state": view.state, "over": view.is_over, "unseen": view.unseen,
            "exit_code": view.exit_code if view.is_over else None, "ordered": view.ordered,
            "last_lines": last_lines(view, outputs),
            "nodes": [{"node": line.node, "index": line.index, "now": line.now, "why": line.why or None}
                      for line in view.lines],
        }
        for view in views
    ]  # fmt: skip
    return pretty({"schema": "gconsole.jobs/1", "jobs": jobs})


def _job_lines(view: JobStatus) -> list[str]:
    ordered = view.ordered
    code = f", exit code {view.exit_code}" if view.is_over and view.state != "completed" else ""
    layout, command = layout_text(len(ordered.nodes), ordered.procs_per_node), words_without_secrets(ordered.command)
    lines = [f"{ordered.job}  {view.state}{code}  {layout}  {shlex.join(command)}"]
    first = view.first_bad
    if first is not None and first.state == "failed" and first.reason and len(view.lines) > 1:
        lines.append(f"  first on {first.node}: {first.reason}")
    groups: dict[str, list[str]] = {}
    for line in view.lines:
        groups.setdefault(_node_words(line), []).append(line.node)
    lines += [f"  {fold(nodes)}  {words}" for words, nodes in groups.items()]
    return [printable(line) for line in lines]


def _node_words(line: JobNodeStatus) -> str:
    now = line.now
    if now is None:
        return f"unknown: {line.why}"
    words: list[str] = [now.state]
    if now.signal is not None:
        words.append(f"by {signal_name(now.signal)}")
    elif now.exit_code:
        words.append(f"exit code {now.exit_code}")
    if now.local_rank is not None and now.state == "failed":
        words.append(f"(local rank {now.local_rank})")
    return " ".join(words) + (f": {now.reason}" if now.reason else "")


def _scaled(scaled: Scaled) -> list[str]:
    """What differs in the copy of a configuration, and why."""
    reasons = [f"{change.key}: {change.before} → {change.after}, {change.why}" for change in scaled.changes]
    return [*scaled.difference.splitlines(), *(reasons or ["no value depends on the number of ranks"])]


def stop_words(answer: NodeStop | Failure) -> str:
    """The result of stopping a job on one node: ended and remaining processes, or why they are unknown."""
    if isinstance(answer, Failure):
        return f"unknown: {answer.text}"
    left = f"left: pid {', '.join(map(str, answer.left))}" if answer.left else "nothing left"
    return f"{answer.state}: {plural(answer.found, 'process')} ended, {left}"


def failure_lines(failures: Mapping[str, Failure]) -> list[Printable]:
    """What failed on each node, and what to try."""
    lines = []
    for node, failure in failures.items():
        lines.append(printable(f"✖ {node}  {failure.name}: {failure.text}"))
        if failure.try_:
            lines.append(printable(f"  try: {failure.try_}"))
    return lines


def failed_start_lines(job: str, failures: Mapping[str, Failure]) -> list[Printable]:
    """Why a job did not start, and whether processes of it may be left."""
    left = "unconfirmed, check: gconsole run status" if may_be_left(failures.values()) else "no processes left"
    return [*failure_lines(failures), printable(f"{job} was not started; {left}")]


def sync_lines(folder: SyncFolder, answers: Mapping[str, Synced | Failure]) -> list[Printable]:
    """The result of copying a folder to nodes, failures first."""
    failures = {node: answer for node, answer in answers.items() if isinstance(answer, Failure)}
    copied = {node: answer.files for node, answer in answers.items() if isinstance(answer, Synced)}
    lines = failure_lines(failures)
    if copied:
        most = max(copied.values())
        changed = f"up to {plural(most, 'file')} changed per node" if most else "no file had changed"
        text = f"copied {folder.local} to {fold(list(copied))}: {changed}"
        lines.append(printable(text))
    return lines


def stop_json(job: str, answers: Mapping[str, NodeStop | Failure | None], pending: Sequence[str]) -> JsonText:
    """`{"schema": "gconsole.stop/1", …}`: the result of each node, null where it is unknown, and pending nodes."""
    nodes = [
        {"node": node, "stopped": answer if isinstance(answer, NodeStop) else None,
         "failure": answer if isinstance(answer, Failure) else None}
        for node, answer in answers.items()
    ]  # fmt: skip
    return pretty({"schema": "gconsole.stop/1", "job": job, "nodes": nodes, "pending": list(pending)})


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _left_out(pairs: Sequence[tuple[str, str]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for node, reason in pairs:
        groups.setdefault(reason, []).append(node)
    return [f"  – {fold(nodes)}: {reason}" for reason, nodes in groups.items()]


def _quoted(word: str) -> str:
    if word.startswith(_FOLDER):
        return f'"{_FOLDER}"{shlex.quote(word.removeprefix(_FOLDER)) if word != _FOLDER else ""}'
    return shlex.quote(word)
