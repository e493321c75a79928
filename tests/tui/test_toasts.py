"""Toasts end, whatever the clock shows between the steps in which they are opened."""

from __future__ import annotations

import itertools
import time

import pytest
import textual.notifications
from clusters import demo
from running import running
from textual.widgets._toast import Toast
from waiting import until

from gconsole.tui.notifications import TimedNotification


@pytest.mark.timeout(60)  # without the mend the event loop never comes back
@pytest.mark.parametrize("reads", range(1, 7))
async def test_toast_whose_time_passes_while_it_is_opened_ends(monkeypatch, reads):
    app = demo().app()
    async with running(app, toasts=True) as pilot:
        ticks, began = itertools.count(), time.time()
        monkeypatch.setattr(textual.notifications, "time", lambda: began + next(ticks))  # a second at each read
        app.notify("copied", timeout=reads + 0.5)
        await pilot.pause()
        await until(pilot, lambda: not app.screen.query(Toast))


def test_time_left_of_an_expired_notification_is_positive():
    expired = TimedNotification("copied", timeout=1.0, raised_at=time.time() - 1.000_1)

    assert expired.has_expired
    assert expired.time_left > 0
    assert not TimedNotification("copied", timeout=9.0).has_expired
