"""Job processes of all nodes as text and JSON, grouped by role and command line."""

from __future__ import annotations

import msgspec

from ..core.store import Store
from ..records import Process
from ..text.cells import table
from ..text.documents import JsonText, pretty
from ..text.nodeset_fold import fold, fold_ranks
from ..text.sanitize import Printable, join_lines, printable
from ..text.secrets import without_secrets

#: Display order of roles.
_ROLES = ("launcher", "rank", "dataloader_worker", "compile_worker", "child", "gpu", "python")


class _Group(msgspec.Struct):
    """Processes that differ only in node, pid and rank."""

    role: str
    job: str | None
    user: str
    cmdline: str
    part: str
    nodes: list[str] = msgspec.field(default_factory=list)
    ranks: list[int] = msgspec.field(default_factory=list)
    pids: list[int] = msgspec.field(default_factory=list)


def processes_text(store: Store) -> Printable:
    """A table: count, nodes, ranks, role, user, command; failed nodes at the end."""
    rows: list[tuple[str, ...]] = []
    for group in _groups(store):
        nodes = fold(sorted(set(group.nodes)))
        pid = f" (pid {group.pids[0]})" if len(group.pids) == 1 else ""
        role, user = printable(group.role)[:20], printable(group.user)[:32]
        part = printable(group.part)[:48]
        rows.append((str(len(group.pids)), nodes, fold_ranks(group.ranks), role, part, user, group.cmdline + pid))
    header = ["COUNT", "NODES", "RANKS", "ROLE", "PART", "USER", "COMMAND"]
    if not any(row[4] for row in rows):
        header.remove("PART")
        rows = [(*row[:4], *row[5:]) for row in rows]
    lines = table(rows, header=header, align=">")
    for now in store.nodes.values():
        if now.state and now.state.error:
            lines.append(f"✖ {now.name}  {now.state.error.name}: {now.state.error.text}")
        elif now.host and now.host.unreadable:
            lines.append(f"▲ {now.name}  {now.host.unreadable} Python processes of other users not readable")
    return join_lines(lines)


def processes_json(store: Store) -> JsonText:
    """`{"schema": "gconsole.ps/1", "processes": [...], "failed": [...]}`; processes are records of that kind."""
    failed = [now.state for now in store.nodes.values() if now.state and now.state.error]
    processes = [
        msgspec.structs.replace(process, cmdline=process.cmdline and without_secrets(process.cmdline))
        for process in sorted(store.processes.values(), key=_order)
    ]
    document = {"schema": "gconsole.ps/1", "processes": processes, "failed": failed}
    return pretty(document)


def _order(process: Process) -> tuple[str, int]:
    return (process.node, process.pid)


def _groups(store: Store) -> list[_Group]:
    groups: dict[tuple[str, str | None, str, str, str], _Group] = {}
    for process in sorted(store.processes.values(), key=_order):
        user = process.user or str(process.uid)
        cmdline = printable(without_secrets(process.cmdline or f"[{process.comm}]"))[:100]
        key = (process.role, process.job, user, cmdline, process.part or "")
        group = groups.setdefault(key, _Group(*key))
        group.nodes.append(process.node)
        group.pids.append(process.pid)
        if process.rank is not None:
            group.ranks.append(process.rank)
    place = {role: i for i, role in enumerate(_ROLES)}
    return sorted(
        groups.values(), key=lambda g: (g.job or "~", place.get(g.role, len(place)), min(g.ranks, default=0), g.cmdline)
    )
