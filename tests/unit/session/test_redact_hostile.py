"""Redaction of hostile names and texts: at worst, a node's own texts are redacted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gconsole.core.bus import Hub
from gconsole.core.control import Selection
from gconsole.records import Job, Log, Node, Process, RankStat, RawRecord, Record, decode, encode
from gconsole.session.format import pseudonyms
from gconsole.session.format.pseudonyms import Pseudonyms, key_of_this_user
from gconsole.session.format.reader import records
from gconsole.session.format.redact import Redactor
from gconsole.session.manage import retention
from gconsole.session.record.recorder import Recorder

#: Texts that cause catastrophic backtracking in naive patterns.
LONG = {
    "one word of secrets": "'token' * n",
    "one flag of secrets": "'--' + 'token' * n",
    "no secret at all": "'a' * n",
    "JWT prefixes": "'-eyJaaaaaaaa' * n",
    "JWT prefixes and a part": "'-eyJaaaaaaaa' * n + '.' + 'b' * n",
    "unclosed quotes": "'token=\"' * n",
    "quotes in brackets": "'token=(\"' * n",
    "strings that are added": "'token=\"a\"+' * n",
    "strings side by side": "'token=\"a\"' + '\"b\"' * n",
    "escaped quotes": "'token=' + chr(92) + chr(34) + 'token=' * n",
    "escapes": "'token=(' + chr(34) + chr(92) * n",
    "triple quotes": "'token=' + chr(34) * 3 * n",
    "whole arguments": "(chr(34) + 'token=a') * n",
    "annotations": "'token:a' * n",
    "blanks": "'token' + ' ' * n",
    "a bracket and a word": "'[' + 'a' * n",
    "a bracket and digits": "'[' + '1' * n",
    "many node sets": "'node[1-9] ' * 1600",
    "large node sets": "'node[1-16384] ' * 1600",
}
#: Length of each text, and total CPU time limit in seconds; backtracking patterns needed hours for 100,000.
LENGTHS = [pytest.param(25_000, 12), pytest.param(100_000, 60, marks=pytest.mark.full)]


def a_process(user: str, node: str = "evil") -> Process:
    return Process(node=node, pid=1, start_ticks=1, ppid=1, uid=1, user=user, comm="x", role="child")


def a_stat(state: str = "moving") -> RankStat:
    return RankStat(node="good", job="j", rank=0, pid=1, start_ticks=1, state=state)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "limit_cpu_s"), LENGTHS)
def test_redaction_of_pathological_long_texts_stays_within_its_cpu_limit(length: int, limit_cpu_s: int) -> None:
    program = (
        "from gconsole.text.secrets import names_a_secret, value_without_secrets\n"
        "from gconsole.text.secrets import without_secrets, words_without_secrets\n"
        "from gconsole.session.format.pseudonyms import Pseudonyms\n"
        f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({limit_cpu_s}, {limit_cpu_s}))\n"
        f"n = {length}\n"
        f"for name, made in {LONG!r}.items():\n"
        "    print(name, flush=True)\n"
        "    text = eval(made)\n"
        "    without_secrets(text); value_without_secrets(text, text); names_a_secret(text + '!')\n"
        "    words_without_secrets([text + '!', text])\n"
        "    Pseudonyms(b'k', ['node1'], ['joe']).in_text(text)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(LONG)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig-1 end", "x-*** end"),
        ("auth eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.", "auth ***"),
        ("pkg-eyJab.other-text.py", "pkg-eyJab.other-text.py"),
        ('{"db.password": "hunter22", "port": 1}', '{"db.password": ***, "port": 1}'),
        ("--my.auth-key  X --next", "--my.auth-key  *** --next"),
        ("a=b token-of-x", "a=b token-of-x"),
    ],
)
def test_redaction_covers_exactly_the_secret(text: str, wanted: str) -> None:
    from gconsole.text.secrets import without_secrets

    assert without_secrets(text) == wanted


@pytest.mark.parametrize("value", ["two words", "-two words", "two;words,more", 'two "words'])
def test_multi_word_secret_in_a_job_command_is_redacted_as_a_whole(value: str) -> None:
    command = ("mysql", "--password", value, f"--api-key={value}", f"DB_PASSWORD={value}", "--lr", "1")
    job = Job(job="j", command=command, launcher="env", nodes=("n1",), procs_per_node=1, gpus_per_node=0, world_size=1,
              master_addr="n1", master_port=1, created=1)  # fmt: skip
    hidden = ("mysql", "--password", "***", "--api-key=***", "DB_PASSWORD=***", "--lr", "1")
    assert Redactor()(job).command == hidden


@pytest.mark.parametrize("name", ["moving", "kind", "seq", "present", "gpu"])
def test_user_named_like_a_schema_word_does_not_corrupt_other_records(name: str) -> None:
    redact = Redactor(pseudonyms=Pseudonyms(b"k" * 32))
    redact(a_process(name))
    redact(Node(node="evil", hostname=name, user=name, boot_id="b", kernel="k", arch="a", python="3", uid=1, pid=1,
                sample_interval_ms=1))  # fmt: skip
    assert decode(encode(redact(a_stat()))).state == "moving"
    raw = redact(decode(b'{"kind":"quark","node":"good","seq":3,"x":{"y":"moving"}}'))
    assert isinstance(raw, RawRecord) and (kept := decode(encode(raw))).kind == "quark" and kept.seq == 3


def test_node_over_its_name_limit_has_only_its_own_texts_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudonyms, "MAX_NAMES_PER_NODE", 3)
    names = Pseudonyms(b"k" * 32, ["good", "evil"])
    redact = Redactor(pseudonyms=names)
    redact(a_process("alice", node="good"))
    for number in range(1000):
        redact(a_process(f"invented{number}"))
    assert len(names._users) == 4 and len(names._hosts) == 2
    assert redact.newly_silenced() == ["evil"] and redact.newly_silenced() == []
    assert "invented" not in encode(redact(a_process("invented7"))).decode()
    assert redact(Log(node="evil", source="agent", text="invented999 was here")).text == "***"
    raw = redact(RawRecord("quark", "evil", "a", 7, 0, b'{"kind":"quark","seq":7,"who":"invented999"}'))
    assert b"invented" not in encode(raw) and decode(encode(raw)).seq == 7
    assert redact(Log(node="good", source="agent", text="alice's step 7")).text.endswith("'s step 7")
    assert decode(encode(redact(a_stat()))).state == "moving"


def test_node_sets_in_text_add_no_host_names_and_stay_short() -> None:
    names = Pseudonyms(b"k" * 32, ["node1"])
    redacted = names.in_text("node[1-16384] " * 1000)
    assert "node" not in redacted and len(redacted) < 20_000
    assert "node2" not in names.in_text("node[1-4]") and len(names._hosts) == 1
    assert names.in_text("rank[0-16383]") == "rank[0-16383]"


@pytest.mark.parametrize("content", [b"", b"short"])
def test_empty_or_short_pseudonym_key_is_rejected(tmp_path: Path, content: bytes) -> None:
    """A console killed while it wrote the key leaves an empty file; hashes with an empty key are not anonymous."""
    (tmp_path / ".pseudonyms").write_bytes(content)
    with pytest.raises(OSError, match="invalid key"):
        key_of_this_user(tmp_path)


def test_creating_the_pseudonym_key_leaves_no_temporary_file(tmp_path: Path) -> None:
    assert len(key_of_this_user(tmp_path)) == 32
    assert [path.name for path in tmp_path.iterdir()] == [".pseudonyms"]


async def test_recording_warns_about_a_node_whose_texts_it_redacts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pseudonyms, "MAX_NAMES_PER_NODE", 3)
    hub = Hub()
    published: list[Record] = []
    hub.subscribe(published.extend)
    recorder = Recorder(hub, tmp_path, retention.Limits(), lambda: [], hosts=["evil"])
    await recorder.start("night", Selection(anonymous=True))
    hub.publish([a_process(f"invented{number}") for number in range(10)])
    await recorder.stop("night")
    hub.publish([])
    [warning] = [one for one in published if isinstance(one, Log) and one.severity == "warning"]
    assert "evil" in warning.text and warning.try_
    assert b"invented" not in b"".join(encode(record) for record in records(tmp_path / "night"))
