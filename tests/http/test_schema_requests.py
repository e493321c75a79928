"""Schemathesis requests generated from the OpenAPI document: the real server's responses conform to it."""

from __future__ import annotations

import pytest
from api_client import Api
from schemathesis_run import run_schemathesis


def test_responses_to_generated_requests_match_the_openapi_document(
    api: Api, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_schemathesis(api, tmp_path, examples=1, phases="coverage")
    with capsys.disabled():
        print(f"\n  {result.requests} requests made up from the OpenAPI document")
    assert result.status == 0, result.output
    assert result.requests > 300


@pytest.mark.full
@pytest.mark.timeout(900)
def test_responses_to_many_more_generated_requests_match_the_openapi_document(
    api: Api, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_schemathesis(api, tmp_path, examples=50, phases="examples,coverage,fuzzing,stateful")
    with capsys.disabled():
        print(f"\n  {result.requests} requests made up from the OpenAPI document")
    assert result.status == 0, result.output
