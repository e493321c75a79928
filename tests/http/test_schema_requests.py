"""Schemathesis requests generated from the OpenAPI document: the real server's responses conform to it."""

from __future__ import annotations

import pytest
from api_client import Api
from schemathesis_run import made_up


def test_responses_to_generated_requests_match_the_openapi_document(
    api: Api, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made_up(api, tmp_path, examples=1)
    with capsys.disabled():
        print(f"\n  {found.requests} requests made up from the OpenAPI document")
    assert found.status == 0, found.text
    assert found.requests > 300


@pytest.mark.full
@pytest.mark.timeout(900)
def test_responses_to_many_more_generated_requests_match_the_openapi_document(
    api: Api, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made_up(api, tmp_path, examples=50)
    with capsys.disabled():
        print(f"\n  {found.requests} requests made up from the OpenAPI document")
    assert found.status == 0, found.text
