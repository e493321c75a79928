"""An alert as a document: `gconsole.alert/1`, a Slack message, or an event of PagerDuty.

Texts of findings come from nodes: one line each, bounded, without control characters and secrets; JSON quotes them.
Slack gets them with its three control characters escaped, so that no text is a mention, a link or a format.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from ...analysis.crash.verdict import CrashVerdict
from ...analysis.finding import FINDINGS, FindingKind
from ...analysis.hang.verdict import Verdict
from ...records import Finding
from ...text.format import iso, seconds
from ...text.sanitize import printable
from ...text.secrets import excerpt_without_secrets
from .alerts import Alert

SCHEMA: Final = "gconsole.alert/1"
#: Characters of one text, and items of one list.
MOST_TEXT, MOST_ITEMS = 2_000, 64
#: Characters of the summary of an event of PagerDuty (its limit is 1,024), and of a message to Slack.
MOST_SUMMARY, MOST_MESSAGE = 1_000, 3_000
_KINDS: Final[dict[str, FindingKind]] = {kind.id: kind for kind in FINDINGS}
_PAGERDUTY_SEVERITY: Final = {"error": "critical", "warning": "warning", "info": "info"}
_WORDS: Final = {"open": "", "update": "update: ", "clear": "cleared: ", "test": "TEST: "}


class Surroundings(msgspec.Struct, frozen=True):
    """What an alert's document needs beside the alert. `kept` is the name of the kept evidence."""

    cluster: str
    now_ns: int
    nodes_seen: int
    nodes_expected: int
    verdict: Verdict | CrashVerdict | None = None
    kept: str | None = None


def clean(text: str, limit: int = MOST_TEXT) -> str:
    """One line of printable text without secrets, at most `limit` characters."""
    line = printable(excerpt_without_secrets(text, limit + 1))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def json_document(alert: Alert, around: Surroundings) -> dict[str, Any]:
    """`gconsole.alert/1`: what a command reads on its standard input, and what format = "json" posts."""
    return {
        "schema": SCHEMA,
        "event": alert.event,
        "rule": alert.rule.name,
        "cluster": clean(around.cluster),
        "incident": dedup_key(alert, around.cluster),
        "at": iso(around.now_ns),
        "open_s": round(alert.open_s, 1),
        "suppressed": alert.suppressed,
        "summary": summary(alert, around),
        "finding": _finding(alert.findings[0]),
        "more_findings": [_finding(finding) for finding in alert.findings[1:MOST_ITEMS]],
        "verdict": _verdict(around.verdict),
        "nodes": {"seen": around.nodes_seen, "expected": around.nodes_expected},
        "kept": around.kept,
    }


def slack_document(alert: Alert, around: Surroundings) -> dict[str, Any]:
    """A message for an incoming webhook of Slack, as plain text."""
    finding = alert.findings[0]
    kind = _KINDS.get(finding.id)
    lines = [summary(alert, around)]
    if alert.event != "clear":
        lines += [f"confidence {finding.confidence}, open for {seconds(alert.open_s)}"]
        lines += [f"next: {clean(around.verdict.next_step)}"] if around.verdict and around.verdict.next_step else []
        lines += [f"next: {kind.remedy}"] if kind and not around.verdict else []
        lines += [f"evidence kept: {around.kept}"] if around.kept else []
        lines += [f"{alert.suppressed} more findings were not sent"] if alert.suppressed else []
    text = "\n".join(lines)[:MOST_MESSAGE]
    return {"text": _for_slack(text), "mrkdwn": False, "link_names": False, "parse": "none", "unfurl_links": False}


def pagerduty_document(alert: Alert, around: Surroundings, routing_key: str) -> dict[str, Any]:
    """An event of PagerDuty's Events API v2: `trigger`, or `resolve` when the incident has cleared."""
    finding = alert.findings[0]
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": "resolve" if alert.event == "clear" else "trigger",
        "dedup_key": dedup_key(alert, around.cluster),
    }
    if alert.event != "clear":
        event["payload"] = {
            "summary": summary(alert, around)[:MOST_SUMMARY],
            "source": clean(around.cluster) or "gconsole",
            "severity": "info" if alert.event == "test" else _PAGERDUTY_SEVERITY[finding.severity],
            "component": clean(", ".join(finding.culprits[:MOST_ITEMS]), 255),
            "group": clean(finding.job or "", 255),
            "class": clean(finding.id, 255),
            "custom_details": json_document(alert, around),
        }
    return event


def summary(alert: Alert, around: Surroundings) -> str:
    """One line: cluster, finding, text."""
    finding = alert.findings[0]
    return clean(f"{_WORDS[alert.event]}{around.cluster}: {finding.id}: {finding.text}")


def dedup_key(alert: Alert, cluster: str) -> str:
    """The same for all alerts of one incident of one rule and cluster."""
    text = "\0".join((cluster, alert.rule.name, "test" if alert.event == "test" else alert.key))
    return "gconsole-" + hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]


def _finding(finding: Finding) -> dict[str, Any]:
    kind = _KINDS.get(finding.id)
    return {
        "id": clean(finding.id),
        "severity": finding.severity,
        "confidence": finding.confidence,
        "job": clean(finding.job) if finding.job is not None else None,
        "culprits": _items(finding.culprits),
        "victims": _items(finding.victims),
        "victims_total": len(finding.victims),
        "text": clean(finding.text),
        "evidence": _items(finding.evidence),
        "meaning": kind.meaning if kind else None,
        "cause": kind.cause if kind else None,
        "remedy": kind.remedy if kind else None,
        "first_seen": iso(finding.first_seen),
        "cleared_at": iso(finding.cleared_at),
    }


def _verdict(verdict: Verdict | CrashVerdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        "job": clean(verdict.job),
        "state": verdict.state,
        "kind": verdict.kind,
        "confidence": verdict.confidence,
        "culprits": [
            {name: clean(value) if isinstance(value, str) else value for name, value in culprit.items()
             if isinstance(value, str | int | float | None)}
            for culprit in msgspec.to_builtins(verdict.culprits[:MOST_ITEMS])
        ],
        "summary": clean(verdict.summary),
        "evidence": _items(verdict.evidence),
        "next_step": clean(verdict.next_step),
    }  # fmt: skip


def _items(texts: tuple[str, ...]) -> list[str]:
    return [clean(text, 500) for text in texts[:MOST_ITEMS]]


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
