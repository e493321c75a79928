"""Carries out alerts: keeps the evidence, then runs the command and posts, with retries; a few alerts at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from ...text.format import file_stamp
from ...text.logs import internal_error
from ...text.secrets import HIDDEN
from .alerts import Alert
from .command import environment, run
from .events import Emit, WatchEvent
from .http_client import HttpError, request
from .payload import Surroundings, clean, json_document, pagerduty_document, slack_document
from .rules import Rule
from .secret_ref import SecretError

#: Alerts that are carried out at the same time, and that may wait; further ones are dropped and counted.
AT_A_TIME, MOST_WAITING = 4, 256
#: Attempts to post one alert, and seconds before the second one; each further pause doubles.
ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S = 7, 1.0, 120.0


class EvidenceKeeper(Protocol):
    """Keeps what was recorded until now."""

    async def save(self, name: str) -> str:
        """Keep the evidence under this name; returns where it is, in words. Raises OSError, ValueError, KeepError."""


class KeepError(Exception):
    """The evidence cannot be kept; the text is one sentence."""


class Outcome(msgspec.Struct, frozen=True):
    """One action of one alert."""

    action: str  # keep, run, post
    is_ok: bool
    text: str


class ActionRunner:
    """Carries out alerts in the background. `surroundings` is called when an alert is submitted."""

    def __init__(
        self, emit: Emit, keeper: EvidenceKeeper | None, surroundings: Callable[[Alert], Surroundings],
        *, first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:  # fmt: skip
        self._emit, self._keeper, self._surroundings = emit, keeper, surroundings
        self._first_pause_s = first_pause_s
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping = asyncio.Lock()
        self.dropped = 0

    def submit(self, alert: Alert) -> bool:
        """Carry out an alert; False if too many are waiting."""
        finding = alert.findings[0]
        fields = {"rule": alert.rule.name, "alert": alert.event, "id": finding.id, "job": finding.job}
        self._emit(WatchEvent("alert", f"{alert.rule.name}: {alert.event}: {finding.id}: {finding.text}", fields))
        if len(self._tasks) >= MOST_WAITING:
            self.dropped += 1
            self._emit(WatchEvent("dropped", f"{alert.rule.name}: {MOST_WAITING} alerts are waiting; this one is lost"))
            return False
        task = asyncio.create_task(self._run(alert, self._surroundings(alert)), name=f"alert {alert.rule.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def drain(self, deadline_s: float) -> None:
        """Wait for all alerts, at most this long; then cancel the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=deadline_s)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            self._emit(WatchEvent("dropped", f"{len(left)} alerts were not carried out in time"))
            await asyncio.wait(left)

    async def carry_out(self, alert: Alert, around: Surroundings) -> list[Outcome]:
        """All actions of one alert, one after the other."""
        rule = alert.rule
        outcomes = []
        if rule.config.keep and alert.event in ("open", "update"):
            outcome = await self._keep(rule)
            outcomes.append(outcome)
            if outcome.is_ok:
                around = msgspec.structs.replace(around, kept=outcome.text)
        if rule.config.run:
            outcomes.append(await self._command(alert, around))
        if rule.post_to is not None:
            outcomes.append(await self._post(alert, around))
        return outcomes

    async def _run(self, alert: Alert, around: Surroundings) -> None:
        async with self._places:
            try:
                outcomes = await self.carry_out(alert, around)
            except Exception as error:  # noqa: BLE001 - reported; the watch goes on
                text = internal_error(error, f"the rule {alert.rule.name}")
                outcomes = [Outcome("rule", False, text)]
        for outcome in outcomes:
            fields = {"rule": alert.rule.name, "action": outcome.action}
            text = f"{alert.rule.name}: {outcome.action}: {outcome.text}"
            self._emit(WatchEvent("action" if outcome.is_ok else "action_failed", text, fields))

    async def _keep(self, rule: Rule) -> Outcome:
        if self._keeper is None:
            return Outcome("keep", False, "nothing is recorded that could be kept")
        name = f"{rule.name}-{file_stamp(time.time_ns())}"
        try:
            async with self._keeping:  # two alerts within one second: one after the other
                return Outcome("keep", True, await self._keeper.save(name))
        except (KeepError, OSError, ValueError) as error:
            return Outcome("keep", False, clean(str(error)))

    async def _command(self, alert: Alert, around: Surroundings) -> Outcome:
        config = alert.rule.config
        document = msgspec.json.encode(json_document(alert, around)) + b"\n"
        result = await run(config.run, document, alert.rule.timeout_s, environment(config.run_env))
        text = result.text + (f"; output: {' | '.join(result.output)}" if result.output else "")
        return Outcome("run", result.is_ok, clean(text))

    async def _post(self, alert: Alert, around: Surroundings) -> Outcome:
        secrets: list[str] = []
        for attempt in range(1, ATTEMPTS + 1):
            try:
                url = alert.rule.url()  # read each time, so that a secret may be replaced while the watch runs
                secrets = [url]
                body = msgspec.json.encode(_document(alert, around, secrets))
                response = await request(url, body)
                return Outcome("post", True, f"{_host(url)} answered {response.status}")
            except SecretError as error:
                return Outcome("post", False, clean(str(error)))
            except HttpError as error:
                text = _without(secrets, str(error))
                if not error.is_transient or attempt == ATTEMPTS:
                    return Outcome("post", False, f"{text} (attempt {attempt} of {ATTEMPTS})")
                await asyncio.sleep(self._pause_s(attempt, error.retry_after_s))
        raise AssertionError("unreachable")

    def _pause_s(self, attempt: int, retry_after_s: float | None) -> float:
        """The pause after a failed attempt: doubled each time with jitter, or what the server asks for."""
        pause_s = self._first_pause_s * 2.0 ** (attempt - 1) * random.uniform(0.75, 1.25)
        return min(LONGEST_PAUSE_S, max(pause_s, retry_after_s or 0.0))


def _document(alert: Alert, around: Surroundings, secrets: list[str]) -> dict[str, object]:
    match alert.rule.config.format:
        case "slack":
            return slack_document(alert, around)
        case "pagerduty":
            key = alert.rule.routing_key()
            secrets.append(key)
            return pagerduty_document(alert, around, key)
        case _:
            return json_document(alert, around)


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _without(secrets: list[str], text: str) -> str:
    """The text of an error; a server may have repeated the URL, its path or a key in its answer."""
    for secret in secrets:
        path = secret.partition("://")[2].partition("/")[2] if "://" in secret else secret
        for part in (secret, path):
            text = text.replace(part, HIDDEN) if len(part) > 3 else text
    return clean(text)
