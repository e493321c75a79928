"""What an agent may read with its login, and what it would gain or lose with another one, right by right."""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: Bits of capabilities (linux/capability.h).
_BITS: Final = {"CAP_DAC_READ_SEARCH": 2, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_PTRACE": 19, "CAP_SYSLOG": 34}
#: As the agent sends it: euid, CapEff, CapAmb, ptrace_scope, whether /dev/kmsg and the journal are readable.
_FACTS: Final = re.compile(r"([0-9]{1,10}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) ([0-9]) ([01]) ([01])")


class LoginFacts(msgspec.Struct, frozen=True):
    """What decides the rights of an agent. `capabilities` are those that its children have, too, such as py-spy."""

    euid: int
    capabilities: frozenset[str]
    ptrace_scope: int
    reads_kernel_log: bool
    reads_journal: bool


class LoginRight(msgspec.Struct, frozen=True):
    """One right: what it permits, whether this login has it, and what else would give it, or keep it without root."""

    what: str
    is_held: bool
    needs: str


def parse_facts(text: str) -> LoginFacts | None:
    """The facts that an agent sent; None if they are malformed."""
    match = _FACTS.fullmatch(text)
    if match is None:
        return None
    euid, effective, ambient = int(match[1]), int(match[2], 16), int(match[3], 16)
    mask = effective if euid == 0 else effective & ambient  # programs that it starts keep only ambient ones
    names = frozenset(name for name, bit in _BITS.items() if mask >> bit & 1)
    return LoginFacts(euid, names, int(match[4]), match[5] == "1", match[6] == "1")


def rights_of(facts: LoginFacts) -> list[LoginRight]:
    """All rights that a login may have or lack, by the checks of the kernel: proc(5), ptrace(2)."""
    held = facts.capabilities
    traces = "CAP_SYS_PTRACE" in held
    reads_files = {"CAP_SETUID", "CAP_SETGID"} <= held or "CAP_DAC_READ_SEARCH" in held
    own = facts.ptrace_scope == 0 or traces
    return [
        LoginRight("stacks of the same user", own, "CAP_SYS_PTRACE, or kernel.yama.ptrace_scope=0"),
        LoginRight("stacks of other users", traces, "CAP_SYS_PTRACE"),
        LoginRight(
            "environments of other users, which number their ranks", traces and "CAP_DAC_READ_SEARCH" in held,
            "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ),
        LoginRight("logs, dumps and sources of other users", reads_files, "CAP_DAC_READ_SEARCH"),
        LoginRight("kernel log", facts.reads_kernel_log, "CAP_SYSLOG, or kernel.dmesg_restrict=0 and group adm"),
        LoginRight("journal of the system", facts.reads_journal, "group systemd-journal or adm"),
    ]  # fmt: skip


def describe_rights(facts: LoginFacts) -> tuple[str, str]:
    """(what this login may and may not read, what another login would change)."""
    rights = rights_of(facts)
    who = "root" if facts.euid == 0 else f"uid {facts.euid}"
    words = [f"{who} may read: {', '.join(right.what for right in rights if right.is_held) or 'nothing of these'}"]
    lacking = [right for right in rights if not right.is_held]
    if lacking:
        words.append(f"not: {', '.join(right.what for right in lacking)}")
    if facts.euid == 0:
        kept = "; ".join(f"{right.what} ({right.needs})" for right in rights if right.is_held)
        return "; ".join(words), f"a login without root loses these, unless it has what is in parentheses: {kept}"
    gained = "; ".join(f"{right.what} ({right.needs})" for right in lacking)
    change = f'run_as = "sudo" adds these; so does what is in parentheses: {gained}' if lacking else ""
    return "; ".join(words), change
