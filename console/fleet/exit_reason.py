"""Explains why an agent's command ended, from its exit status and last output."""

from __future__ import annotations

from collections import deque

from ..config.sections import AgentConfig
from ..text.sanitize import printable
from ..transport import errors as failures

#: Bytes kept of one line, and of standard error.
_LINE, _ERROR_BYTES = 500, 8192


class LastWords:
    """Output that is not protocol: text before the hello (motd, `module load`) and standard error."""

    def __init__(self) -> None:
        self._noise: deque[str] = deque(maxlen=20)
        self._errors = b""

    def add_noise(self, line: bytes) -> None:
        """Keep a line of standard output."""
        if line.strip():
            self._noise.append(line[:_LINE].decode("utf-8", "replace"))

    def add_error(self, data: bytes) -> None:
        """Keep the tail of standard error."""
        self._errors = (self._errors + data)[-_ERROR_BYTES:]

    @property
    def errors(self) -> str:
        """The kept standard error."""
        return self._errors.decode("utf-8", "replace")

    def __str__(self) -> str:
        """The last lines as a suffix, ` (output: …)`, or an empty string."""
        lines = self.errors.strip().splitlines()[-3:] or list(self._noise)[-3:]
        return f" (output: {' / '.join(printable(line.strip()[:_LINE]) for line in lines)})" if lines else ""


def explain(
    exit_status: int | None, error: Exception | None, words: LastWords, agent: AgentConfig, *, greeted: bool
) -> failures.FleetError:
    """The failure behind the end; `greeted`: whether the agent had said hello."""
    if isinstance(error, failures.FleetError):
        return error
    because = f": {error}" if error else ""
    if greeted:
        if exit_status in (None, 0):
            return failures.Lost(f"connection closed{because}")
        return failures.AgentCrashed(f"agent exited with status {exit_status}{words}")
    return _explain_start(exit_status, because, words, agent)


def _explain_start(exit_status: int | None, because: str, words: LastWords, agent: AgentConfig) -> failures.FleetError:
    stderr, python = words.errors, agent.python
    _, too_old, version = stderr.partition("gconsole: python_too_old")
    if too_old or "Unknown option: -I" in stderr:
        version = version.split()[0] if version.split() else "before 3.4"
        return failures.PythonTooOld(
            f"{python} on the node is {printable(version[:20])}; the agent needs 3.6", 'set python = "…" for this node'
        )
    if "gconsole: bundle_rejected" in stderr:
        return failures.BundleRejected("the agent's code arrived damaged, or another program wrote to the channel")
    if exit_status in (126, 127) or (agent.run_as == "sudo" and "command not found" in stderr):
        return failures.NoPython(f"{python} not found{words}", 'install Python 3.6 or newer, or set python = "…"')
    if agent.run_as == "sudo" and "sudo:" in stderr:
        return failures.NoPermission(
            f"sudo failed{words}", 'allow it without a password in sudoers, or run_as = "self"'
        )
    if exit_status is None or because:
        return failures.Lost(f"connection closed before the agent started{because}{words}")
    return failures.AgentCrashed(f"agent failed to start (status {exit_status}){words}")
