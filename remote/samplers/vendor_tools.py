"""Runs the tool of the accelerators' vendor now and then, for the GPU sampler: what it reports that sysfs does not."""

import time

from ..accelerators import tools
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..accelerators.devices import SysfsGpu
    from ..accelerators.tools import Reports
    from .base import Context, Fact

#: Seconds for which a tool that is absent or fails is left alone at most.
LONGEST_S = 900.0
#: Of the time between two runs, the share that a run may take.
_SHARE = 0.02
_TRY = "run it as root on the node; sysfs is read without it, and figures that only it has are missing"


class ToolReports(object):
    """The value of `context.shared["gpu_tool"]`: what a tool reported, and until when it is believed (monotonic, s)."""

    __slots__ = ("reports", "until")

    def __init__(self, reports: "Reports", until: float) -> None:
        self.reports, self.until = reports, until


class VendorToolSampler(Sampler):
    """Sends no records. A tool that is absent or fails is a missing capability, and tried ever less often."""

    name = "gpu_tool"
    waits = True
    finest_s = 10.0
    retry_most_s = LONGEST_S

    def __init__(self, context: "Context", tool: "Any", folder: "str | None") -> None:
        """`tool`: one of `tools.TOOLS`. `folder`: where it may write its log; without one no tool is run."""
        super(VendorToolSampler, self).__init__(context)
        self._kind, self._folder = tool, folder
        self._tool: "Any" = None
        self._due = 0.0

    def start(self) -> None:
        """Look for the tool. Raises Unavailable without a program or a folder."""
        program = self._kind.program
        if self._folder is None:
            raise Unavailable("%s is not run with ephemeral = true or without a cache: it writes a log" % program)
        path = tools.find_tool(program)
        if path is None:
            raise Unavailable("no %s of root in %s" % (program, ", ".join(tools.FOLDERS)), _TRY)
        self._tool = self._kind(path, self._folder)

    def tick(self, now: float) -> "list[Fact]":
        """Run it if it is due. Raises Unavailable if it fails."""
        if now < self._due:
            return []
        began = time.monotonic()
        try:
            reports = self._tool.read()
        except tools.ToolFailed as error:
            raise Unavailable("%s: %s" % (self._kind.program, error), _TRY)
        pause_s = max(self._kind.period_s, (time.monotonic() - began) / _SHARE)
        self._due = now + pause_s - 0.1
        self.context.shared["gpu_tool"] = ToolReports(reports, now + 3 * pause_s)
        return []


def tool_samplers(context: "Context", gpus: "list[SysfsGpu]", folder: "str | None") -> "list[VendorToolSampler]":
    """A sampler for the tool of the vendor of these devices; none for vendors without one."""
    vendors = {gpu.vendor for gpu in gpus}
    return [VendorToolSampler(context, tool, folder) for tool in tools.TOOLS if tool.vendor in vendors][:1]
