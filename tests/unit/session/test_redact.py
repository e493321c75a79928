"""Redaction: secrets are never written, locals only on request, pseudonyms are consistent everywhere."""

import re

import pytest

from gconsole.records import (
    AsyncTask,
    Failure,
    Local,
    Log,
    Mark,
    Node,
    NodeState,
    Process,
    RawRecord,
    Stack,
    StackFrame,
    decode,
    encode,
)
from gconsole.session.format.pseudonyms import Pseudonyms, key_of_this_user
from gconsole.session.format.redact import Redactor
from gconsole.text.secrets import without_secrets, words_without_secrets

SECRETS = {
    "python train.py --wandb-api-key 0123456789abcdef --lr 3e-4": "0123456789abcdef",
    "python train.py --api_key=0123456789abcdef": "0123456789abcdef",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG python x.py": "wJalrXUtnFEMI/K7MDENG",
    "env PGPASSWORD='two words' psql": "two words",
    'export MY_TOKEN="a b c" && run': "a b c",
    "curl -H 'Authorization: Bearer abcdef0123456789'": "abcdef0123456789",
    "pip install --index-url https://ci:hunter22@pypi.corp/simple": "hunter22",
    "huggingface-cli login hf_AbCdEfGhIjKlMnOpQrSt": "hf_AbCdEfGhIjKlMnOpQrSt",
    "git clone https://ghp_0123456789abcdefghijABCDEF@github.com/x/y": "ghp_0123456789abcdefghijABCDEF",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "token: s3cr3t, then more": "s3cr3t",
    "see app_token.py:8a8d-0123": "8a8d-0123",
    "--password hunter22 --user me": "hunter22",
    "pip install --index-url https://0123456789abcdefghij@pypi.corp/simple": "0123456789abcdefghij",
    "azcopy https://a.blob.example/c?sv=2024&sig=AbCd%2F12345678&se=1": "AbCd%2F12345678",
    "curl https://api.example/x?key=0123456789abc": "0123456789abc",
    'login(token="hf_x", password="two words")': "two words",
    "TOKEN='it'\"'\"'s two words' python": "two words",
    "'--api-key=two words' --next": "two words",
    "--password two\\ words --next": "words",
    "os.environ['TOKEN'] = 'two words'": "two words",
    'environ.setdefault("HF_TOKEN", "two words")': "two words",
    "{'password': 'two words'}": "two words",
    r"{\"token\": \"two words\"}": "two words",
    "password: str = 'two words'": "two words",
    'if token == "two words":': "two words",
    'token = str("two words")': "two words",
    'token = b"two" + "two words"': "two words",
    'token = "two words that are cut o': "words",
    "openai sk-proj-0123456789abcdefghij": "sk-proj-0123456789abcdefghij",
}
HARMLESS = (
    "python train.py --lr 3e-4 --tokenizer /models/llama --max-tokens 4096",
    "torchrun --nproc-per-node 8 --rdzv-endpoint 10.0.0.1:29500 train.py",
    "python -m vllm.entrypoints.api_server --port 8000",
    "git clone ssh://git@github.com/x/y and https://alice@pypi.corp/simple?page=2&keyword=x",
    "rank 1 is in file I/O in tokenizer_tables.py:88 <module> and has not entered all_reduce (api_key.py:7 step).",
    "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.",
)


@pytest.mark.parametrize("text", SECRETS)
def test_secret_value_is_redacted_and_its_name_is_kept(text):
    hidden = without_secrets(text)
    assert SECRETS[text] not in hidden
    assert "***" in hidden
    assert without_secrets(hidden) == hidden


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_not_redacted(text):
    if "tokens" in text:  # a name containing "token" is redacted with its value, to be on the safe side
        assert "--lr 3e-4" in without_secrets(text)
        return
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("words", "redacted"),
    [
        (("train.py", "--api-key", "X9", "--lr", "1"), ("train.py", "--api-key", "***", "--lr", "1")),
        (("--api-key", "two words", "x"), ("--api-key", "***", "x")),
        (("--api-key", "--next"), ("--api-key", "--next")),
        (("env", "WANDB_API_KEY=X Y", "python"), ("env", "WANDB_API_KEY=***", "python")),
    ],
)
def test_argument_after_a_secret_flag_is_redacted_in_an_argument_list(
    words: tuple[str, ...], redacted: tuple[str, ...]
) -> None:
    assert words_without_secrets(words) == redacted


def test_redaction_does_not_modify_the_original_record():
    process = Process(pid=1, start_ticks=1, ppid=0, uid=0, comm="python", cmdline="x --token abc", role="python")
    written = Redactor()(process)
    assert process.cmdline == "x --token abc"
    assert written.cmdline == "x --token ***"


def test_a_record_without_a_secret_is_not_copied():
    process = Process(pid=1, start_ticks=1, ppid=0, uid=0, comm="python", cmdline="python train.py", role="python")
    assert Redactor()(process) is process


def stack(**changes):
    return Stack(capture="c", sample=0, job="j", rank=0, pid=1, start_ticks=1, status="ok", **changes)


def test_locals_are_recorded_only_on_request_and_secret_ones_are_redacted():
    record = stack(locals=(Local(0, "loss", "2.5"), Local(0, "hf_token", "abc"), Local(0, "url", "http://u:pw@h/")))
    assert Redactor()(record).locals is None
    kept = Redactor(locals_too=True)(record).locals
    assert [(local.name, local.value) for local in kept] == [
        ("loss", "2.5"), ("hf_token", "***"), ("url", "http://u:***@h/")
    ]  # fmt: skip


def test_a_line_of_source_that_holds_a_secret_is_redacted():
    record = stack(frames=(StackFrame("f", "a.py", 1, source='login(token="hf_AbCdEfGhIjKlMnOpQrSt")'),))
    assert "AbCdEf" not in Redactor()(record).frames[0].source
    task = AsyncTask(name="GET https://u:planted@h/", frames=record.frames)
    redacted = Redactor()(stack(tasks=(task,))).tasks[0]
    assert "AbCdEf" not in redacted.frames[0].source and "planted" not in redacted.name


def test_logs_marks_and_failures_are_redacted_too():
    redact = Redactor()
    assert "abc" not in redact(Log(source="kernel", text="password=abc")).text
    assert "abc" not in redact(Mark(text="password=abc")).text
    failed = NodeState(node="n", state="failed", error=Failure("auth", "tried https://u:abc@h/", ""))
    assert "abc" not in redact(failed).error.text


# -- pseudonyms --------------------------------------------------------------------------------------------------------

KEY = b"k" * 32


def anonymous(*hosts):
    return Redactor(pseudonyms=Pseudonyms(KEY, hosts))


def test_host_has_the_same_pseudonym_in_node_fields_and_texts():
    redact = anonymous("gpu-a", "gpu-b")
    head = redact(Log(node="gpu-a", source="console", text="gpu-a: refused by gpu-b.cluster.example:22"))
    (name,) = {head.node, head.text.split(":")[0]}
    assert name.startswith("host-")
    assert "gpu-" not in head.text
    assert "cluster.example" not in head.text
    other = redact(Log(node="gpu-b", source="console", text="up"))
    assert other.node in head.text
    assert other.node != head.node


@pytest.mark.parametrize("form", ["GPU-A7", "Gpu-A7", "gpu-a7.hpc.corp.example", "GPU-A7.HPC.CORP.EXAMPLE"])
def test_host_is_replaced_in_any_case(form):
    redact = anonymous("gpu-a7")
    text = redact(Log(source="kernel", text=f"connect to {form}: refused; http://{form}:80/x")).text
    name = redact(Log(node="gpu-a7", source="agent", text="")).node
    assert text == f"connect to {name}: refused; http://{name}:80/x"
    upper = anonymous("GPU-A7")(Log(node="GPU-A7", source="agent", text="gpu-a7 GPU-A7"))
    assert upper.text == f"{upper.node} {upper.node}" and "7" not in re.sub("host-[0-9a-f]+", "", upper.text)


@pytest.mark.parametrize(
    "text",
    ["mail to jane.doe@corp.example: quota", "<Jane.Doe+x@mail.corp.example>", "joined hpc.corp.example",
     "HPC.CORP.EXAMPLE", "link ib0 00:11:22:aa:bb:cc up", "dev 00-11-22-AA-BB-CC",
     "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c2:a3:f4",
     "port GUID 506b:4b03:00c2:a3f4", "boot 7a9c0b12-3d4e-4f60-8a71-1c2d3e4f5a6b was 3 h ago"],
)  # fmt: skip
def test_addresses_of_mail_and_hardware_domains_and_boot_ids_are_replaced(text):
    redact = anonymous("gpu-a.hpc.corp.example")
    node = redact(Node(node="gpu-a", hostname="gpu-a.hpc.corp.example", boot_id="7a9c0b12-3d4e-4f60-8a71-1c2d3e4f5a6b",
                       kernel="k", arch="x", python="3", uid=1, user="u", pid=1, sample_interval_ms=1))  # fmt: skip
    shown = redact(Log(node="gpu-a", source="agent", text=text)).text
    left = re.sub(r"(host|user|mac|boot)-[0-9a-f]{10}", "", shown)
    assert left != text
    for secret in ("corp", "jane", "hpc", "11:22", "11-22", "4b03", "4b:03", "3d4e"):
        assert secret not in left.lower(), shown
    assert node.boot_id != "7a9c0b12-3d4e-4f60-8a71-1c2d3e4f5a6b"
    if "boot" in text:
        assert node.boot_id in shown, "the same boot has the same pseudonym everywhere"


def test_boots_of_a_node_stay_distinguishable():
    redact = anonymous()
    fields = {"node": "a", "hostname": "a", "kernel": "k", "arch": "x", "python": "3", "uid": 1, "user": "u", "pid": 1,
              "sample_interval_ms": 1}  # fmt: skip
    first, again, second = (redact(Node(boot_id=boot, **fields)).boot_id for boot in ("x-1", "x-1", "x-2"))
    assert first == again != second and "x-" not in first


def test_host_name_inside_a_longer_name_is_not_replaced():
    text = anonymous("node1")(Log(source="console", text="node10 node1 xnode1 node1-ib /data/node1/x")).text
    assert text.split()[0] == "node10"
    assert text.split()[2] == "xnode1"
    assert text.split()[3] == f"{text.split()[1]}-ib", "name of the same host on another network"
    assert "node1" not in text.split()[1] + text.split()[4]


def test_node_set_is_expanded_into_the_pseudonyms_of_its_hosts():
    redact = anonymous("gpu-1", "gpu-2")
    text = redact(Log(source="console", text="gpu-[1-2]: 535; gpu-[1-2,7].x.example; a[0-3] = b[1]")).text
    one, two = (redact(Log(node=name, source="agent", text="")).node for name in ("gpu-1", "gpu-2"))
    assert text.startswith(f"{one},{two}: 535; ") and text.endswith("; a[0-3] = b[1]")
    assert "gpu-" not in text


@pytest.mark.parametrize(
    "address", ["10.20.30.40", "192.168.1.7", "fe80::1ff:fe23:4567:890a", "2001:db8::7", "fd00:1:2:3:4:5:6:7"]
)
def test_ip_address_is_replaced_by_a_host_pseudonym(address):
    redact = anonymous()
    text = redact(Log(source="console", text=f"rank 3 to {address}: refused; job x@{address}")).text
    assert address not in text and text.count("host-") == 2
    assert len(set(re.findall(r"host-[0-9a-f]{10}", text))) == 1


@pytest.mark.parametrize(
    "text",
    ["NCCL 2.21.5 at 12:30:45", "0000:3b:00.0 fell off the bus", "c10d::ProcessGroupNCCL::wait", "127.0.0.1:29500",
     "std::vector<int>", "step 1.2.3", "::1 and 0.0.0.0", "/home/root/x", "x[0] y[1:2]", "driver 535.104.05",
     "numpy@1.26.4", "symbol memcpy@GLIBC_2.14", "@app.route", "GPU-7a9c0b12-3d4e-4f60-8a71-1c2d3e4f5a6b",
     "uuid 7a9c0b12-3d4e-4f60-8a71-1c2d3e4f5a6b", "00:00:00:00:00:00", "at 12:30:45 of 2026-11-24", "a@b"],
)  # fmt: skip
def test_text_that_only_resembles_an_address_or_name_is_kept(text):
    assert anonymous("gpu-1")(Log(source="console", text=text)).text == text


def test_unknown_user_name_in_a_home_path_is_replaced_by_a_pseudonym():
    redact = anonymous()
    stack_of = redact(
        stack(frames=(StackFrame("main", "/home/bob/src/train.py", 3), StackFrame("x", "/Users/bob/y.py", 1)))
    )
    assert "bob" not in encode(stack_of).decode() and "/src/train.py" in encode(stack_of).decode()
    process = redact(Process(pid=1, start_ticks=1, ppid=0, uid=1, user="bob", comm="x", role="python"))
    assert f"/home/{process.user}/src/train.py" == stack_of.frames[0].file


def test_user_name_equal_to_a_file_stem_is_replaced_before_its_suffix():
    redact = anonymous()
    process = redact(Process(pid=1, start_ticks=1, ppid=0, uid=1, user="train", comm="x", role="python",
                             cmdline="python train.py"))  # fmt: skip
    assert process.cmdline == f"python {process.user}.py"


def test_name_of_a_gateway_is_replaced_in_states_and_texts():
    redact = anonymous("gpu-a")
    lost = redact(Log(source="console", fault="gateway_lost", subject="bastion7", text="gateway bastion7: closed"))
    state = redact(NodeState(node="gpu-a", state="ok", via="bastion7"))
    assert state.via.startswith("host-")
    assert (lost.subject, lost.text) == (state.via, f"gateway {state.via}: closed")


def test_names_learned_from_later_records_are_replaced_in_earlier_ones():
    redact = anonymous()
    log = Log(source="kernel", text="killed a process of bob")
    redact.learn([log, Process(pid=1, start_ticks=1, ppid=0, uid=1, user="bob", comm="x", role="python")])
    assert "bob" not in redact(log).text


def test_hostnames_and_users_reported_by_a_node_are_replaced_by_pseudonyms():
    redact = anonymous("gpu-a")
    node = redact(Node(node="gpu-a", hostname="ip-10-1-2-3.corp.example", boot_id="b", kernel="k", arch="x", python="3",
                       uid=1000, user="alice", pid=1, sample_interval_ms=1000))  # fmt: skip
    assert node.hostname == redact(Log(node="gpu-a", source="agent", text="ip-10-1-2-3")).text
    process = redact(Process(node="gpu-a", pid=1, start_ticks=1, ppid=0, uid=1000, user="alice", comm="python",
                             cmdline="/home/alice/venv/bin/python train.py", role="python"))  # fmt: skip
    assert "alice" not in encode(process).decode()
    assert process.user in process.cmdline
    assert "venv/bin/python train.py" in process.cmdline


def test_a_record_of_an_unknown_kind_is_redacted_as_well():
    line = b'{"kind":"new_kind","node":"gpu-a","agent":"a","seq":1,"rx":5,"where":["on gpu-a"],"n":5}'
    raw = decode(line)
    assert isinstance(raw, RawRecord)
    assert b"gpu-a" not in encode(anonymous("gpu-a")(raw))


def test_the_same_key_gives_the_same_names_and_another_key_others():
    one, two = Pseudonyms(KEY), Pseudonyms(KEY)
    assert one.host("gpu-a") == two.host("gpu-a")
    assert one.host("gpu-a") != Pseudonyms(b"x" * 32).host("gpu-a")


def test_pseudonym_key_is_created_once_with_mode_0600(tmp_path):
    key = key_of_this_user(tmp_path)
    assert key_of_this_user(tmp_path) == key
    assert (tmp_path / ".pseudonyms").stat().st_mode & 0o777 == 0o600
