"""Redaction of secrets in texts, commands and variables, by patterns and by the names of variables.

The patterns cover what occurs on command lines and in logs; a secret that matches no pattern is not detected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

HIDDEN: Final = "***"

_WORD = (
    r"(?:token|secret|passw|passphrase|pwd|credential|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|[_-]key|cookie|bearer|signature|sas)"
)
#: A name that contains such a word, except for a setting whose value errors propose. The lookahead and the possessive
#: `++` keep the time linear: with `*` on both sides, one line of a node could block the console for an hour.
_SECRET = rf"(?=[\w.-]*?{_WORD})(?!(?:ssh\.)?host_key_policy(?![\w.-]))[\w.-]++"
_STRING: Final = r"(?:\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')"
#: A value in quotes to its end, over escaped quotes and adjacent quoted parts; without an end, to the end of the line.
_QUOTED: Final = (
    r"(?:[A-Za-z]{0,2}(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''"
    rf"|{_STRING}(?:\s*+\+\s*+{_STRING}|{_STRING})*|[\"'][^\n]*+)|\\++[\"'][^\"'\n]*+[\"']?)"
)
#: A value without quotes ends at a blank that is not escaped, nor in a string behind a bracket: `str("two words")`.
#: What was redacted before is a value, too.
_VALUE: Final = rf"(?:\*{{3}}|{_QUOTED}|(?:\\.|(?<=[(\[{{=]){_STRING}|[^\s,;&\\])+)"
#: `=`, `:`, `==` and `: str =`; between two quoted words, as in a call, also a comma.
_SEPARATOR: Final = (
    r"(?:\s*+(?::\s*+[A-Za-z_][\w.\[\]|]*+\s*+=(?!=)|[=!]=|=(?!=)|:=?)\s*+"
    r"|(?<=[\"'])\s*+,\s*+(?=[A-Za-z]{0,2}[\"']))"
)
#: A number after the name of a source file is that of a line: `tokenizer.py:88`.
_LINE: Final = r"(?:(?<=\.py)|(?<=\.pyx)|(?<=\.cpp)|(?<=\.cu)):\d+(?![\w-]|\.\w)"
# The patterns from here to `_JWT` are compiled for the first text that needs them: 3 ms of each start.
#: `--api-key=X`, `PASSWORD=X`, `token: X`, `env["TOKEN"] = X`, `setdefault("TOKEN", X)`.
_ASSIGNED: Final = rf"(?i)(?<![\w.-])({_SECRET}\\*+[\"']?\]?)(?!{_LINE})({_SEPARATOR})({_VALUE})"
#: `'--api-key=two words'`: the quotes are around name and value.
_QUOTED_WHOLE: Final = rf"(?i)(?<=[\"'])({_SECRET})(=)(?![\"'])[^\n\"']++(?=[\"'])"
#: `--api-key X`, but not `--api-key --next`.
_FOLLOWED: Final = rf"(?i)(?<!\S)(-{_SECRET})(\s++)(?!-)({_VALUE}|\S+)"
#: `Authorization: Bearer X`.
_BEARER: Final = r"(?i)\b(bearer|basic)(\s+)([A-Za-z0-9+/._~=-]{8,})"
#: `https://user:password@host`.
_USERINFO: Final = r"(?<=://)([^\s/:@]*)(:)([^\s/@]+)(?=@)"
#: `https://token@host`: longer than a user name.
_USER_ALONE: Final = r"(?<=://)()()([^\s/:@]{20,})(?=@)"
#: `?sig=X`: signatures of URLs, and parameters with ambiguous names.
_SIGNED: Final = r"(?i)(?<=[?&])(sig|key|code|auth)(=)([^\s&#\"']+)"
#: Token formats of issuers: Hugging Face, OpenAI and similar, GitHub, Slack, AWS, Google, PEM.
_SHAPES: Final = (
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{30,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
#: A JSON web token: three parts, the first begins with eyJ; searched where two sufficiently long parts begin.
_JWT: Final = r"(?<![\w-])(?=[\w-]++\.[\w-]{8,}+\.)((?:[\w-]*?-)?)eyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+"
_URL: Final = re.compile(r"(https?://)(?:[^/?#@]*@)?([^/?#@]+)")
_CALLED: Final = re.compile(rf"(?i){_SECRET}")
_FLAG: Final = re.compile(rf"(?i)-{_SECRET}")
_NAME: Final = re.compile(rf"(?i){_WORD}|key|auth")
#: Pre-filter: texts without a match contain nothing that the patterns above would find.
SUSPECT: Final = re.compile(
    r"(?i)token|secret|passw|passphrase|pwd|credential|key|cookie|bearer|basic|signature|sas|://|hf_|sk-|gh[pousr]_"
    r"|github_pat|glpat|xox|A[KS]IA|AIza|eyJ|BEGIN"
)

#: Characters. A longer text is cut before it is searched for secrets (at worst 1 s per million characters).
_EXCERPT: Final = 65_536
_SPACE: Final = re.compile(r"\s")


def without_secrets(text: str) -> str:
    """The text with secrets replaced by ***; the names before them are kept."""
    if not SUSPECT.search(text):
        return text
    text = re.sub(_JWT, rf"\1{HIDDEN}", re.sub(_SHAPES, HIDDEN, text))
    for pattern in (_USERINFO, _USER_ALONE, _SIGNED, _BEARER, _QUOTED_WHOLE, _ASSIGNED, _FOLLOWED):
        text = re.sub(pattern, rf"\1\2{HIDDEN}", text)
    return text


def excerpt_without_secrets(text: str, limit: int) -> str:
    """The first `limit` characters of `without_secrets(text)`.

    Of a text longer than `_EXCERPT` only the beginning is searched, so that the time is bounded. A secret that
    continues behind it is hidden: the last word is dropped, and a value in open quotes is redacted to the end.
    """
    if len(text) <= _EXCERPT:
        return without_secrets(text)[:limit]
    text = text[:_EXCERPT]
    whole_words = text[: len(text) - len(_SPACE.split(text)[-1])]
    return without_secrets(whole_words + "\"'").rstrip("\"'")[:limit]


def value_without_secrets(name: str, value: str) -> str:
    """The value of a variable; hidden completely if the name is that of a secret."""
    return HIDDEN if _NAME.search(name) else without_secrets(value)


def shown_url(url: str) -> str:
    """Scheme and host of a URL, with `/***` for the rest, which may be a secret; other texts are unchanged."""
    match = _URL.match(url)
    return f"{match[1]}{match[2]}/{HIDDEN}" if match else url


def names_a_secret(name: str) -> bool:
    """Whether `name` is the name of a secret."""
    return _CALLED.fullmatch(name) is not None


def words_without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command without secrets; the value after a secret name is removed (`--api-key X`, `KEY=X Y`)."""
    return tuple(_word_without_secrets(before, word) for before, word in zip(("", *words), words, strict=False))


def _word_without_secrets(before: str, word: str) -> str:
    is_value = not word.startswith("-") or " " in word  # flags contain no spaces
    if _FLAG.fullmatch(before) and is_value:
        return HIDDEN
    name, equals, _ = word.partition("=")
    return f"{name}={HIDDEN}" if equals and names_a_secret(name) else without_secrets(word)
