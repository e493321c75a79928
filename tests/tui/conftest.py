"""Fixtures of the screen tests: fake clusters, and no influence of this machine's time zone and environment."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Makes `from fake_cluster import FakeCluster` work.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _nothing_of_this_machine_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture(autouse=True)
def _keys_are_dealt_with_when_nothing_is_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import event_loop_idle

    event_loop_idle.use(monkeypatch)


@pytest.fixture(autouse=True)
def _apps_share_parsed_style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    import shared_css

    shared_css.use(monkeypatch)


@pytest.fixture
def painted_at_every_change() -> None:
    """For tests that count paints."""


@pytest.fixture(autouse=True)
def _screens_are_painted_when_a_test_reads_them(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    import unpainted

    if "painted_at_every_change" not in request.fixturenames:
        unpainted.use(monkeypatch)


@pytest.fixture
def own_sql_worker() -> None:
    """For tests of the life of the process that runs queries."""


@pytest.fixture(scope="session")
def _sql_workers_are_ended() -> Iterator[None]:
    yield
    if "shared_sql_worker" in sys.modules:
        sys.modules["shared_sql_worker"].end_idle()


@pytest.fixture(autouse=True)
def _apps_share_a_sql_worker(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, _sql_workers_are_ended: None
) -> None:
    if "own_sql_worker" not in request.fixturenames and "gconsole.tui.controllers.query" in sys.modules:
        import shared_sql_worker

        shared_sql_worker.use(monkeypatch)
