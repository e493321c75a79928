"""Python processes that may be jobs, where no rank was recognised: seen, and not judged."""

from __future__ import annotations

from ..core.store import Store
from ..records import Process


def unrecognised(store: Store) -> list[Process]:
    """By node and pid, the Python processes that may be an unrecognised job; none where there are ranks.

    Scripts of users, and processes that compute or use a GPU. Daemons, notebooks without a GPU and tools are not jobs.
    """
    if len(store.ranks):
        return []
    on_gpus = {(process.node, process.pid) for process in store.gpu_processes.values()}
    return sorted(
        (
            process
            for process in store.processes.values()
            if process.role == "python" and not process.gone
            and (process.program in ("compute", "script") or (process.node, process.pid) in on_gpus)
        ),
        key=lambda process: (process.node, process.pid),
    )  # fmt: skip
