"""Checks of the user: a TOML file with rules in SQL and commands."""

import sys
from pathlib import Path

import pytest

from gconsole.analysis.checks.result import CheckResult
from gconsole.monitor.node_checks import CheckedNode, exit_code, to_json, to_text
from gconsole.records import Capacity, NodeSetting, encode
from gconsole.session.query.own_checks import BadChecks, read_checks, with_own_checks

NODES = [CheckedNode("n1", True, (CheckResult("gpu_ecc", "pass", "error"),)), CheckedNode("n2", True),
         CheckedNode("n3", False)]  # fmt: skip
SCRATCH = """
[[check]]
id = "scratch_mounted"
what = "/scratch is mounted"
sql = "SELECT node, 'swappiness is ' || value FROM setting WHERE subject = 'vm.swappiness' AND value <> '10'"
severity = "error"
remedy = "mount /scratch"
"""


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.ndjson"
    sent = [NodeSetting(node=name, name="sysctl", subject="vm.swappiness", value=value, seq=1, agent="a", t=1, rx=1)
            for name, value in (("n1", "10"), ("n2", "60"))]  # fmt: skip
    sent.append(Capacity(node="n1", type="file_system", path="/", seq=2, agent="a", t=1, rx=1))
    path.write_bytes(b"".join(encode(record) + b"\n" for record in sent))
    return path


def written(tmp_path, text):
    path = tmp_path / "checks.toml"
    path.write_text(text)
    return path


def results(tmp_path, text, records=None):
    nodes = with_own_checks(NODES, read_checks(written(tmp_path, text)), records)
    assert nodes[2].checks == ()  # not reached
    return {node.node: node.checks[-1] for node in nodes[:2]}


def test_rule_fails_the_nodes_of_its_rows_with_their_text_and_the_remedy(tmp_path, records):
    mine = results(tmp_path, SCRATCH, records)

    assert mine["n1"] == CheckResult("scratch_mounted", "pass", "error")
    assert mine["n2"] == CheckResult("scratch_mounted", "fail", "error", "swappiness is 60", "mount /scratch")


def test_results_are_in_text_json_and_exit_code(tmp_path, records):
    nodes = with_own_checks(NODES, read_checks(written(tmp_path, SCRATCH)), records)

    assert "✖ scratch_mounted           n2  swappiness is 60" in to_text(nodes).splitlines()
    assert '"scratch_mounted"' in to_json(nodes)
    assert exit_code(nodes, "error") == 1


def test_file_is_read_again_at_every_run(tmp_path, records):
    path = written(tmp_path, SCRATCH)
    before = read_checks(path)
    path.write_text(SCRATCH.replace("'10'", "'60'"))

    assert before[0].sql != read_checks(path)[0].sql


@pytest.mark.parametrize(("sql", "text"), [
    ("SELECT nope FROM setting", "nope"), ("SELECT value FROM setting", "the first column must be the node"),
    ("DELETE FROM setting", ""), ("SELEC", ""),
])  # fmt: skip
def test_rule_that_cannot_be_evaluated_is_unknown_and_never_passed(tmp_path, records, sql, text):
    mine = results(tmp_path, f'[[check]]\nid = "mine"\nsql = "{sql}"\n', records)

    assert {result.state for result in mine.values()} == {"unknown"}
    assert text in mine["n1"].text


@pytest.mark.parametrize(("code", "state", "text"), [
    ("print('fine')", "pass", ""), ("print('disk of ' + sys.argv[1]); sys.exit(1)", "fail", "disk of n1"),
    ("sys.exit(1)", "fail", "is fine"), ("sys.exit(7)", "unknown", "ended with status 7"),
    ("print('\\x1b[31mred\\x07'); sys.exit(1)", "fail", "red"),
    ("import time; time.sleep(60)", "unknown", "did not end"),
])  # fmt: skip
def test_command_passes_fails_or_is_unknown_by_its_status(tmp_path, code, state, text):
    script = tmp_path / "script.py"
    script.write_text("import sys\n" + code)
    limit = 2 if "sleep" in code else 60
    mine = results(tmp_path, f'[[check]]\nid = "mine"\nwhat = "is fine"\ntimeout_s = {limit}\n'
                              f'command = ["{sys.executable}", "{script}", "{{node}}"]\n')  # fmt: skip

    assert mine["n1"].state == state
    assert text in mine["n1"].text and mine["n1"].text.isprintable()


def test_command_that_does_not_exist_is_unknown(tmp_path):
    mine = results(tmp_path, '[[check]]\nid = "mine"\ncommand = ["/no/such/program"]\n')

    assert (mine["n1"].state, mine["n1"].text) == ("unknown", "/no/such/program: No such file or directory")


def test_name_of_a_node_is_one_argument_and_no_shell_command(tmp_path):
    node = CheckedNode("x; touch pwned", True)
    path = written(tmp_path, f'[[check]]\nid = "mine"\ncommand = ["{sys.executable}", "-c", "", "{{node}}"]\n')

    (checked,) = with_own_checks([node], read_checks(path), None)

    assert checked.checks[0].state == "pass"
    assert not Path("pwned").exists()


@pytest.mark.parametrize(("text", "words"), [
    ("check = 3", "check"), ('[[check]]\nid = "Mine"\nsql = "SELECT 1"', "id"),
    ('[[check]]\nid = "mine"', "sql or command"),
    ('[[check]]\nid = "mine"\nsql = "x"\ncommand = ["y"]', "sql or command"), ("[[check", "checks.toml"),
    ('[[check]]\nid = "gpu_ecc"\nsql = "x"', "gpu_ecc is taken"), ('[[check]]\nid = "mine"\nsqll = "x"', "sqll"),
    ('[[check]]\nid = "mine"\nsql = "x"\n[[check]]\nid = "mine"\nsql = "y"', "mine is taken"),
    ('[[check]]\nid = "mine"\nsql = "x"\nseverity = "fatal"', "fatal"),
])  # fmt: skip
def test_file_with_a_mistake_is_refused_with_its_name_and_the_mistake(tmp_path, text, words):
    with pytest.raises(BadChecks) as refused:
        read_checks(written(tmp_path, text))

    assert "checks.toml" in str(refused.value) and words in str(refused.value)
