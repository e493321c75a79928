"""Documents: secrets are redacted in every text of any depth; everything else is unchanged."""

from __future__ import annotations

import json

import msgspec
import pytest

from gconsole.records import Local
from gconsole.text.documents import encode, pretty, redacted


class Line(msgspec.Struct, frozen=True):
    text: str
    state: str | None = None
    number: float = 1.5
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    lines: list[Line] = []


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (Line('login(password="two words")'), {"text": "login(password=***)"}),
        (Line("", command=("x", "--api-key", "two words")), {"command": ["x", "--api-key", "***"]}),
        (Line("", env={"MY_TOKEN": "two words", "HOME": "/root"}), {"env": {"MY_TOKEN": "***", "HOME": "/root"}}),
        (Line("", lines=[Line("a"), Line("token: b")]), {"lines.text": ["a", "token: ***"]}),
        (Local(0, "hf_token", "two words"), {"name": "hf_token", "value": "***"}),
        ({"rows": [{"url": "https://u:secret@h/"}]}, {"rows": [{"url": "https://u:***@h/"}]}),
        ({"set": {"token=b"}}, {"set": ["token=***"]}),
    ],
)
def test_secrets_are_redacted_at_any_depth(document: object, wanted: dict[str, object]) -> None:
    made = json.loads(encode(document))
    for name, value in wanted.items():
        outer, _, inner = name.partition(".")
        assert ([line[inner] for line in made[outer]] if inner else made[outer]) == value


def test_document_without_a_secret_is_returned_itself() -> None:
    document = Line("a", "moving", command=("train.py", "--lr", "1"), env={"A": "b"}, lines=[Line("c")])
    assert redacted(document) is document
    assert json.loads(pretty(document)) == json.loads(msgspec.json.encode(document))
