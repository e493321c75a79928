"""What the tests of sessions share."""

import time

import pytest
from session_queries import SessionQueries


@pytest.fixture
def open_queries():
    opened = []

    def open_(path):
        opened.append(SessionQueries(path))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture
def utc(monkeypatch):
    """Local time is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
