"""Forks the process that reads NVML (see gpu_child.py).

The first one is forked before the agent's modules are imported, because it needs few of them: 1.5 MB less. One that
replaces it is forked from the agent as it is then.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Context

#: Fields of a rank that the child needs to name the rank of a GPU's process.
RANK_FIELDS = ("pid", "ns_pid", "gpu", "job", "attempt", "rank")


class GpuChild(object):
    """A forked process: `pid`, and the descriptors of its input and its output."""

    def __init__(self, context: "Context") -> None:
        """Raises OSError."""
        ends: "list[int]" = []
        try:
            ends.extend(os.pipe())
            ends.extend(os.pipe())
            self.pid = os.fork()
        except Exception:  # no memory, processes or descriptors: nothing is left of this attempt
            for end in ends:
                os.close(end)
            raise
        from_agent, self.input, self.output, to_agent = ends
        if not self.pid:
            try:
                from . import gpu_child

                gpu_child.run(context, from_agent, to_agent)
            finally:
                os._exit(1)  # it must not return into the code of the agent
        os.close(from_agent)
        os.close(to_agent)

    def end(self) -> None:
        """End it before its first line: it is not needed."""
        os.close(self.input)
        os.close(self.output)
        os.waitpid(self.pid, 0)
