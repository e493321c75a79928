"""Actions of rules: real HTTP requests on loopback, real commands, kept evidence."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from http_server import Server, self_signed, serving

from gconsole.config.sections import WatchRule
from gconsole.monitor.alerting import http_client
from gconsole.monitor.alerting.actions import ATTEMPTS, ActionRunner, KeepError, Outcome
from gconsole.monitor.alerting.alerts import Alert
from gconsole.monitor.alerting.events import WatchEvent, event_json, event_line
from gconsole.monitor.alerting.payload import Surroundings
from gconsole.monitor.alerting.rules import Rule
from gconsole.records import Finding
from gconsole.text.timespec import duration_s

SECRET = "T0000-B0000-XXXXsecretXXXX"
AROUND = Surroundings("pod", 1_700_000_000_000_000_000, 3, 4)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def alert(*findings: Finding, event: str = "open", **values: object) -> Alert:
    config = msgspec.convert({"name": "page", **values}, WatchRule)
    rule = Rule(config, 0.0, 0.0, duration_s(config.run_timeout), Path("/"))
    return Alert(rule, event, "job a", findings or (finding(),), 12.3, 2)


def finding(text: str = "rank 1 blocks 3 ranks", **values: object) -> Finding:
    fields = {"id": "rank_missing", "severity": "error", "confidence": "certain", "culprits": ("rank 1",), "job": "a"}
    return Finding(**{**fields, "text": text, "first_seen": 1_700_000_000_000_000_000, **values})


def carried_out(alert: Alert, keeper: object = None, around: Surroundings = AROUND) -> list[Outcome]:
    runner = ActionRunner(lambda event: None, keeper, lambda alert: around, first_pause_s=0.001)
    return asyncio.run(runner.carry_out(alert, around))


# -- posting -----------------------------------------------------------------------------------------------------------


def test_alert_is_posted_as_json(server: Server) -> None:
    (outcome,) = carried_out(alert(post=f"{server.url}/hook"))
    ((path, headers, body),) = server.requests
    document = json.loads(body)
    assert (outcome.is_ok, path, headers["Content-Type"]) == (True, "/hook", "application/json")
    assert (document["schema"], document["event"], document["rule"]) == ("gconsole.alert/1", "open", "page")
    assert document["finding"]["culprits"] == ["rank 1"]
    assert (document["nodes"], document["suppressed"], document["open_s"]) == ({"seen": 3, "expected": 4}, 2, 12.3)
    assert document["summary"] == "pod: rank_missing: rank 1 blocks 3 ranks"


def test_url_and_routing_key_come_from_the_environment_or_a_private_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", f"{server.url}/{SECRET}")
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    key.chmod(0o600)
    post = {"post": "env:HOOK", "format": "pagerduty", "routing_key": f"file:{key}"}
    assert [outcome.is_ok for outcome in carried_out(alert(**post))] == [True]
    trigger = json.loads(server.requests[0][2])
    assert (trigger["routing_key"], trigger["event_action"]) == (SECRET, "trigger")
    assert trigger["payload"]["severity"] == "critical"
    carried_out(alert(event="clear", **post))
    resolve = json.loads(server.requests[1][2])
    assert (resolve["event_action"], resolve["dedup_key"]) == ("resolve", trigger["dedup_key"])
    key.chmod(0o640)
    (outcome,) = carried_out(alert(**post))
    assert (outcome.is_ok, outcome.text) == (False, f"{key} may be read by others; try: chmod 600 {key}")
    assert len(server.requests) == 2


def test_server_errors_are_retried_and_client_errors_are_not() -> None:
    with serving(lambda number: (503 if number < 3 else 200, {"Retry-After": "0"}, b"busy")) as server:
        (outcome,) = carried_out(alert(post=server.url))
        assert (outcome.is_ok, len(server.requests)) == (True, 4)
    with serving(lambda number: (500, {}, b"broken \x1b[31m")) as server:
        (outcome,) = carried_out(alert(post=server.url))
        assert (outcome.is_ok, len(server.requests)) == (False, ATTEMPTS)
        assert outcome.text == f"127.0.0.1: answered 500: broken ·[31m (attempt {ATTEMPTS} of {ATTEMPTS})"
    with serving(lambda number: (404, {}, b"no_service")) as server:
        (outcome,) = carried_out(alert(post=server.url))
        assert (outcome.is_ok, len(server.requests)) == (False, 1)


def test_redirect_is_refused(server: Server) -> None:
    target = server.url
    with serving(lambda number: (307, {"Location": f"{target}/elsewhere"}, b"")) as redirecting:
        (outcome,) = carried_out(alert(post=redirecting.url))
    assert outcome.text.startswith("127.0.0.1: answered 307, a redirect, which is not followed")
    assert server.requests == []


def test_untrusted_certificate_is_refused_with_its_reason(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    with serving(context=self_signed(tmp_path)) as server:
        (outcome,) = carried_out(alert(post=server.url))
        assert not outcome.is_ok
        assert "TLS certificate is not valid: self-signed certificate" in outcome.text
        assert server.requests == []


def test_slow_and_silent_servers_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/{SECRET}"
        with pytest.raises(http_client.HttpError, match=r"no answer within 0\.2 s") as caught:
            asyncio.run(http_client.request(url, b"{}", deadline_s=0.2))
    assert caught.value.is_transient and SECRET not in str(caught.value)


def test_what_is_not_http_and_a_closed_port_are_errors() -> None:
    async def answer_with(data: bytes) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(http_client.HttpError) as caught:
                await http_client.request(url, deadline_s=20)
        return str(caught.value)

    assert asyncio.run(answer_with(b"SSH-2.0-x\r\n\r\n")) == "127.0.0.1: the answer is not HTTP"
    assert asyncio.run(answer_with(b"")) == "127.0.0.1: the answer is not HTTP"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(http_client.HttpError, match=r"127\.0\.0\.1: "):
        asyncio.run(http_client.request(f"http://127.0.0.1:{port}", deadline_s=20))


def test_endless_answer_is_read_up_to_a_bound() -> None:
    with serving(lambda number: (200, {}, b"x" * 10_000_000)) as server:
        assert len(asyncio.run(http_client.request(server.url)).body) < 200_000


def test_request_goes_through_the_proxy_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(http_client.HttpError, match=r"the proxy 127\.0\.0\.1 answered 501"):
        asyncio.run(http_client.request("https://hooks.example.org/x"))


def test_no_secret_is_in_any_event(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[WatchEvent] = []
    with serving(lambda number: (400, {}, f"bad path /services/{SECRET}".encode())) as server:
        monkeypatch.setenv("HOOK", f"{server.url}/services/{SECRET}")

        async def submit() -> None:
            runner = ActionRunner(events.append, None, lambda alert: AROUND)
            runner.submit(alert(post="env:HOOK", format="slack"))
            await runner.drain(30)

        asyncio.run(submit())
    assert [event.kind for event in events] == ["alert", "action_failed"]
    for event in events:
        assert SECRET not in event_json(event).decode() + event_line(event, with_time=True)


# -- hostile text ------------------------------------------------------------------------------------------------------

HOSTILE = 'x"}\n{"event":"y"} <!channel> <@U1> @here *b* `c` &amp; \x1b[31m\x00\u202e\ud800 token=abcdef123456 $(id)'


def test_hostile_text_stays_text_in_every_format(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hostile = finding(
        HOSTILE, id="rank_missing", culprits=(HOSTILE,), victims=(HOSTILE,), evidence=(HOSTILE,), job=HOSTILE
    )
    around = Surroundings(HOSTILE, 0, 1, 1)
    script = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    command = [sys.executable, "-c", script, str(out)]
    for form in ("json", "slack"):
        outcomes = carried_out(alert(hostile, post=server.url, format=form, run=command), around=around)
        assert all(outcome.is_ok for outcome in outcomes), outcomes
    for data in (*(body for _, _, body in server.requests), out.read_bytes()):
        text = json.loads(data)
        assert b"abcdef123456" not in data and b"\n" not in data.rstrip(b"\n")
        assert "\x1b" not in str(text) and "\u202e" not in str(text)
    message = json.loads(server.requests[1][2])
    assert "<" not in message["text"] and "&lt;!channel&gt;" in message["text"]
    assert (message["mrkdwn"], message["link_names"], message["parse"]) == (False, False, "none")


def test_documents_are_bounded(server: Server) -> None:
    long = "x" * 1_000_000
    many = tuple(f"rank {number} {long[:1000]}" for number in range(5_000))
    big = finding(long, culprits=many, victims=many, evidence=many)
    carried_out(alert(*[big] * 500, post=server.url))
    assert len(server.requests[0][2]) < 10_000_000
    assert json.loads(server.requests[0][2])["finding"]["victims_total"] == 5_000


def test_event_is_one_line_whatever_its_text() -> None:
    event = WatchEvent("finding", HOSTILE.replace("\ud800", ""))
    assert len(event_line(event, with_time=True).splitlines()) == 1
    assert event_line(event, with_time=True).isprintable()
    assert event_json(event).count(b"\n") == 1


# -- commands ----------------------------------------------------------------------------------------------------------


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_command_gets_the_alert_and_a_minimal_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("PAGER", "p1")
    out = tmp_path / "out"
    code = (
        "import json, os, sys, pathlib; a = json.load(sys.stdin); "
        "pathlib.Path(sys.argv[1]).write_text(json.dumps([a['rule'], sys.argv[2], dict(os.environ), os.getcwd()]))"
    )
    (outcome,) = carried_out(alert(run=python(code, str(out), "$(id); `x` *"), run_env=["PAGER"]))
    assert outcome.is_ok, outcome
    rule, argument, environ, folder = json.loads(out.read_text())
    assert (rule, argument, environ["PAGER"], folder) == ("page", "$(id); `x` *", "p1", "/")
    assert "AWS_SECRET_ACCESS_KEY" not in environ


def test_failing_command_is_reported_with_bounded_output() -> None:
    code = "print('api_key=abcdef12345\\x1b[2J'); print('x' * 10_000_000); raise SystemExit(3)"
    (outcome,) = carried_out(alert(run=python(code)))
    assert not outcome.is_ok
    assert "ended with exit code 3; output: api_key=***" in outcome.text
    assert len(outcome.text) <= 2_000 and outcome.text.isprintable()


def test_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork(); "
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"
    )
    (outcome,) = carried_out(alert(run=python(code, str(pids)), run_timeout="1500ms"))
    assert (outcome.is_ok, "was ended after 1.5 s" in outcome.text) == (False, True)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and is_alive(pid) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_command_that_leaves_a_child_behind_does_not_hold_the_rule(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); open(sys.argv[1], 'w').write(str(p.pid))"
    began = time.monotonic()
    (outcome,) = carried_out(alert(run=python(code, str(tmp_path / "pid"))))
    try:
        assert outcome.is_ok and time.monotonic() - began < 60
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)


def test_command_that_ignores_its_input_or_does_not_exist_is_no_crash() -> None:
    assert [outcome.is_ok for outcome in carried_out(alert(run=["true"]))] == [True]
    (outcome,) = carried_out(alert(run=["/no/such/program"]))
    assert outcome == Outcome("run", False, "/no/such/program cannot be started: No such file or directory")


# -- keeping, limits ---------------------------------------------------------------------------------------------------


class Keeper:
    def __init__(self, error: Exception | None = None) -> None:
        self.names: list[str] = []
        self.error = error

    async def save(self, name: str) -> str:
        self.names.append(name)
        if self.error:
            raise self.error
        return f"session {name}"


def test_evidence_is_kept_under_a_name_with_the_instant_before_anything_else(server: Server) -> None:
    keeper = Keeper()
    outcomes = carried_out(alert(keep=True, post=server.url), keeper)
    assert [outcome.action for outcome in outcomes] == ["keep", "post"]
    assert keeper.names[0].startswith("page-20")
    assert json.loads(server.requests[0][2])["kept"] == f"session {keeper.names[0]}"
    carried_out(alert(event="clear", keep=True, post=server.url), keeper)
    assert len(keeper.names) == 1, "a cleared finding keeps nothing"


def test_evidence_that_cannot_be_kept_does_not_stop_the_alert(server: Server) -> None:
    for keeper in (None, Keeper(KeepError("no recording runs")), Keeper(OSError(28, "No space left on device"))):
        outcomes = carried_out(alert(keep=True, post=server.url), keeper)
        assert [(outcome.action, outcome.is_ok) for outcome in outcomes] == [("keep", False), ("post", True)]


def test_few_alerts_run_at_the_same_time_and_waiting_ones_are_bounded(tmp_path: Path) -> None:
    events: list[WatchEvent] = []
    log = tmp_path / "log"
    code = "import sys, time; f = open(sys.argv[1], 'a', 1); f.write('+\\n'); time.sleep(0.3); f.write('-\\n')"

    async def submit() -> None:
        runner = ActionRunner(events.append, None, lambda alert: AROUND)
        accepted = [runner.submit(alert(run=python(code, str(log)))) for _ in range(260)]
        assert accepted.count(False) == 4 == runner.dropped
        await asyncio.sleep(2)
        await runner.drain(0)

    asyncio.run(submit())
    running = most = 0
    for sign in log.read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert 1 <= most <= 4
    assert [event.kind for event in events].count("dropped") == 5
