"""Why an agent's command ended, from its exit status and its last words."""

from __future__ import annotations

from collections import deque

from ..config.sections import AgentConfig
from ..text.sanitize import printable
from ..transport import errors as failures

#: So much of one line, and of what was written to standard error in all, is kept.
_LINE, _ERROR_BYTES = 500, 8192


class LastWords:
    """What a command wrote that is not the protocol: before its hello (motd, `module load`), and as errors."""

    def __init__(self) -> None:
        self._noise: deque[str] = deque(maxlen=20)
        self._errors = b""

    def add_noise(self, line: bytes) -> None:
        if line.strip():
            self._noise.append(line[:_LINE].decode("utf-8", "replace"))

    def add_error(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERROR_BYTES:]

    @property
    def errors(self) -> str:
        return self._errors.decode("utf-8", "replace")

    def __str__(self) -> str:
        """The last lines, to put behind a sentence: ` (it said: …)`, or nothing."""
        said = self.errors.strip().splitlines()[-3:] or list(self._noise)[-3:]
        return f" (it said: {' / '.join(printable(line.strip()[:_LINE]) for line in said)})" if said else ""


def explain(
    exit_status: int | None, error: Exception | None, words: LastWords, agent: AgentConfig, *, greeted: bool
) -> failures.FleetError:
    """The failure behind an end; `greeted` is whether the agent had said hello."""
    if isinstance(error, failures.FleetError):
        return error
    because = f": {error}" if error else ""
    if greeted:
        if exit_status in (None, 0):
            return failures.Lost(f"the connection ended{because}")
        return failures.AgentCrashed(f"the agent ended with status {exit_status}{words}")
    return _explain_start(exit_status, because, words, agent)


def _explain_start(exit_status: int | None, because: str, words: LastWords, agent: AgentConfig) -> failures.FleetError:
    said, python = words.errors, agent.python
    _, too_old, version = said.partition("gconsole: python_too_old")
    if too_old or "Unknown option: -I" in said:
        version = version.split()[0] if version.split() else "before 3.4"
        return failures.PythonTooOld(
            f"{python} there is {printable(version[:20])}; the agent needs 3.6", 'set python = "…" for this node'
        )
    if "gconsole: bundle_rejected" in said:
        return failures.BundleRejected("the agent's code arrived damaged, or something wrote into the channel")
    if exit_status in (126, 127) or (agent.run_as == "sudo" and "command not found" in said):
        return failures.NoPython(f"no {python} there{words}", 'install Python 3.6 or newer, or set python = "…"')
    if agent.run_as == "sudo" and "sudo:" in said:
        return failures.NoPermission(
            f"sudo refused{words}", 'allow it without a password in sudoers, or run_as = "self"'
        )
    if exit_status is None or because:
        return failures.Lost(f"the connection ended before the agent spoke{because}{words}")
    return failures.AgentCrashed(f"the agent did not start (status {exit_status}){words}")
