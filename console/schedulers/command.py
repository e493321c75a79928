"""Ask a scheduler's own program something, once."""

from __future__ import annotations

import subprocess

from ..text.sanitize import printable

#: A scheduler that is busy answers within some seconds, one that is away not at all.
PATIENCE_S = 30.0
_MOST_WORDS = 300


class SiteError(Exception):
    """The scheduler does not give the job: the text says what it said, `try_` what to do."""

    def __init__(self, text: str, try_: str) -> None:
        super().__init__(f"{text}; {try_}")
        self.text, self.try_ = text, try_


def ask(argv: list[str], try_: str) -> bytes:
    """The program's standard output. Raises SiteError."""
    program = argv[0]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
    except FileNotFoundError:
        raise SiteError(
            f"this machine has no `{program}`", "run gconsole where the site's own commands are: a login node"
        ) from None
    except subprocess.TimeoutExpired:
        raise SiteError(f"`{program}` gave no answer within {PATIENCE_S:.0f} s", try_) from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        words = printable(said[-1][:_MOST_WORDS]) if said else f"it ended with status {done.returncode}"
        raise SiteError(f"{program}: {words}", try_)
    return done.stdout
