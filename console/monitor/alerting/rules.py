"""Rules of hosts.toml, ready to use: which findings a rule selects, and its limits in seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from ...analysis.finding_selection import CONFIDENCE_RANKING, counts, unknown_words
from ...config import Config, ConfigError
from ...config.model import PlacedRule
from ...config.sections import WatchRule
from ...config.watch_rules import PAGERDUTY_URL, is_plain_http
from ...records import Finding
from ...text.timespec import duration_s
from .secret_ref import SecretError, resolve

#: Seconds. A command may not hold its place in the queue for longer.
MOST_RUN_S: Final = 3600.0


class Rule(msgspec.Struct, frozen=True):
    """One rule with its durations in seconds. `folder` is that of the file, for `file:` secrets."""

    config: WatchRule
    after_s: float
    every_s: float
    timeout_s: float
    folder: Path

    @property
    def name(self) -> str:
        """Its name, unique within the file."""
        return self.config.name

    @property
    def post_to(self) -> str | None:
        """What the alert is posted to, as written; None: nothing is posted."""
        return self.config.post or (PAGERDUTY_URL if self.config.format == "pagerduty" else None)

    @property
    def acts(self) -> bool:
        """Whether it does something about an alert; a rule with a textfile alone does not."""
        return bool(self.config.keep or self.config.run or self.post_to)

    def selects(self, finding: Finding, nodes: Sequence[str]) -> bool:
        """Whether a finding concerns this rule, however long it has been open. `nodes` are those of its culprits."""
        config = self.config
        return (
            counts(finding, config.on)
            and CONFIDENCE_RANKING[finding.confidence] >= CONFIDENCE_RANKING[config.confidence]
            and _matches(config.culprit, finding.culprits)
            and _matches(config.node, nodes)
            and _matches(config.job, () if finding.job is None else (finding.job,))
        )

    def url(self, environ: Mapping[str, str] = os.environ) -> str:
        """The URL to post to. Raises SecretError."""
        url = resolve(self.post_to or "", self.folder, environ)
        if not url.startswith(("https://", "http://")):
            raise SecretError(f"post of rule {self.name} does not refer to an https:// URL")
        if is_plain_http(url) and not self.config.allow_http:
            raise SecretError(f"post of rule {self.name} refers to an http:// URL; allow_http = true permits it")
        return url

    def routing_key(self, environ: Mapping[str, str] = os.environ) -> str:
        """The integration key of PagerDuty. Raises SecretError."""
        return resolve(self.config.routing_key or "", self.folder, environ)


def compile_rules(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[Rule, ...]:
    """The rules of a configuration. Raises ConfigError: for an unknown finding, a missing secret or command."""
    folder = (config.path.parent if config.path else Path()).absolute()
    rules = tuple(_compile(placed, folder, environ) for placed in config.rules)
    heartbeat_url(config, environ)
    return rules


def heartbeat_url(config: Config, environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the heartbeat; None: none. Raises ConfigError."""
    if config.watch.heartbeat_url is None:
        return None
    folder = (config.path.parent if config.path else Path()).absolute()
    try:
        url = resolve(config.watch.heartbeat_url, folder, environ)
    except SecretError as error:
        raise ConfigError("", "watch.heartbeat_url", str(error)) from error
    if not url.startswith(("https://", "http://")) or is_plain_http(url):
        raise ConfigError("", "watch.heartbeat_url", "must be https://, or http:// of this machine")
    return url


def _compile(placed: PlacedRule, folder: Path, environ: Mapping[str, str]) -> Rule:
    config = placed.rule
    unknown = unknown_words(config.on)
    if unknown:
        text = f"unknown severity or finding id: {', '.join(unknown)}; the ids are in the reference, Findings"
        raise ConfigError(placed.place, "watch.rule.on", text)
    timeout_s = duration_s(config.run_timeout)
    if not 0 < timeout_s <= MOST_RUN_S:
        raise ConfigError(placed.place, "watch.rule.run_timeout", "must be above 0 and at most 1h")
    if config.run and shutil.which(config.run[0], path=environ.get("PATH")) is None:
        raise ConfigError(placed.place, "watch.rule.run", f"{config.run[0]!r} is not an executable file")
    rule = Rule(config, duration_s(config.after), duration_s(config.at_most_every), timeout_s, folder)
    try:
        if rule.post_to is not None:
            rule.url(environ)
        if config.format == "pagerduty":
            rule.routing_key(environ)
    except SecretError as error:
        raise ConfigError(placed.place, "watch.rule", str(error)) from error
    return rule


def _matches(pattern: str, texts: Sequence[str]) -> bool:
    return pattern == "*" or any(fnmatchcase(text, pattern) for text in texts)
