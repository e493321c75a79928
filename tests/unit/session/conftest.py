"""Fixtures of the session tests."""

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
    """Set the local time zone to UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
