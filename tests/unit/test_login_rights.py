"""What `doctor` says about the rights of a login, from the facts that an agent sends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gconsole.monitor.doctor import examine
from gconsole.monitor.login_rights import describe_rights, parse_facts, rights_of

ALL = "000001ffffffffff"
NONE = "0000000000000000"
PTRACE = f"{1 << 19:016x}"
BOTH = f"{1 << 19 | 1 << 2:016x}"


def held(text: str) -> list[bool]:
    facts = parse_facts(text)
    assert facts is not None
    return [right.is_held for right in rights_of(facts)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (f"0 {ALL} {NONE} 1 1 1", [True, True, True, True, True, True]),
        (f"1000 {NONE} {NONE} 1 0 0", [False, False, False, False, False, False]),
        (f"1000 {NONE} {NONE} 0 1 0", [True, False, False, False, True, False]),
        (f"1000 {PTRACE} {PTRACE} 1 0 0", [True, True, False, False, False, False]),
        (f"1000 {BOTH} {BOTH} 1 0 0", [True, True, True, True, False, False]),
        (f"1000 {PTRACE} {NONE} 1 0 0", [False, False, False, False, False, False]),  # py-spy would not have it
        (
            f"0 {NONE} {NONE} 1 1 1",
            [False, False, False, False, True, True],
        ),  # root in a container without capabilities
    ],
)
def test_rights_follow_capabilities_and_settings(facts: str, expected: list[bool]) -> None:
    assert held(facts) == expected


def test_login_without_root_learns_what_would_add_each_right() -> None:
    facts = parse_facts(f"1000 {NONE} {NONE} 1 0 1")
    assert facts is not None
    text, change = describe_rights(facts)
    assert text.startswith("uid 1000 may read: journal of the system; not: stacks of the same user, ")
    assert 'run_as = "sudo" adds these' in change and "stacks of other users (CAP_SYS_PTRACE)" in change


def test_root_learns_what_another_login_would_lose() -> None:
    facts = parse_facts(f"0 {ALL} {NONE} 1 1 1")
    assert facts is not None
    text, change = describe_rights(facts)
    assert "not:" not in text
    assert change.startswith("a login without root loses these") and "kernel log (CAP_SYSLOG" in change


@pytest.mark.parametrize(
    "text", ["", "x", "0 0 0 0 0", f"-1 {ALL} 0 1 1 1", f"0 {ALL} 0 1 1 2", "\u0663 0 0 0 0 0", "0 " * 99]
)
def test_malformed_facts_are_a_warning(text: str) -> None:
    assert parse_facts(text) is None
    value = [{"name": "rights", "state": "info", "text": text, "try": ""}]
    [exam] = examine([SimpleNamespace(node="node1", value=value, failure=None, rtt_ns=None, via="")])
    assert [(check.name, check.state) for check in exam.checks] == [("reach", "ok"), ("rights", "warn")]
