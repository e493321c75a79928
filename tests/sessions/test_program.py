"""`gconsole record` with this machine as the node: killed, recovered, resumed, stopped from another terminal."""

import json
import signal
from collections import defaultdict

import pytest
from local_program import Program, wait_for_end

from gconsole.records import Gap, Mark, NodeState
from gconsole.session.format.layout import named


@pytest.fixture
def program(tmp_path):
    made = Program(tmp_path)
    made.write()
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def test_crashed_session_is_listed_recovered_and_verified(program):
    process = program.record("night")
    program.wait_for("night", "gpu", 4)
    assert program.state("night") == "recording"
    process.kill()
    wait_for_end(process)
    assert program.state("night") == "crashed"
    mended = program.run("sessions", "recover")
    assert mended.returncode == 0, mended.stderr
    assert mended.stdout.startswith("night: ")
    assert program.state("night") == "closed"
    verified = program.run("sessions", "verify", "night")
    assert (verified.returncode, ", ok" in verified.stdout) == (0, True)


def test_resumed_recording_has_no_gap_when_agents_linger(program):
    program.write(linger_s=60)
    process = program.record("night")
    program.wait_for("night", "gpu", 4)
    process.kill()
    wait_for_end(process)
    process = program.record("night")
    program.wait_for("night", "gpu", program.counts("night")["gpu"] + 4)
    process.send_signal(signal.SIGINT)
    status, _, err = wait_for_end(process)
    assert status == 0, err
    numbers = defaultdict(list)
    for record in program.records("night"):
        numbers[record.agent].append(record.seq)
    (agent,) = {record.agent for record in program.records("night") if type(record).__name__ == "Gpu"}
    assert numbers[agent] == list(range(1, len(numbers[agent]) + 1)), "one agent, no gap, no duplicate"
    assert not [record for record in program.records("night") if isinstance(record, Gap)]
    meta = named("night", program.folder).read()
    assert [part.how for part in meta.parts] == ["crashed", "stopped"]
    assert meta.parts[0].console == meta.parts[1].console
    assert meta.state == "closed"


def test_resumed_recording_counts_the_gap_without_lingering_agents(program):
    process = program.record("night")
    program.wait_for("night", "gpu", 4)
    process.kill()
    wait_for_end(process)
    process = program.record("night")
    program.wait_for("night", "gpu", program.counts("night")["gpu"] + 4)
    process.send_signal(signal.SIGINT)
    status, _, err = wait_for_end(process)
    assert status == 0, err
    (gap,) = [record for record in program.records("night") if isinstance(record, Gap)]
    assert gap.node == "here"
    assert gap.count > 0
    assert "console had crashed" in gap.reason


def test_sigint_closes_the_recording_and_exits_with_zero(program):
    process = program.record("night")
    program.wait_for("night", "gpu", 4)
    process.send_signal(signal.SIGINT)
    status, _, err = wait_for_end(process)
    assert status == 0, err
    assert "recorded night: " in err
    assert program.state("night") == "closed"


def test_recording_is_marked_and_stopped_from_another_terminal(program):
    process = program.record("night")
    program.wait_for("night", "gpu", 4)
    assert program.run("sessions", "mark", "night", "the switch was rebooted").returncode == 0
    program.wait_for("night", "mark", 1)
    stopped = program.run("sessions", "stop", "night")
    assert stopped.returncode == 0, stopped.stderr
    assert wait_for_end(process)[0] == 0
    assert [record.text for record in program.records("night") if isinstance(record, Mark)] == [
        "the switch was rebooted"
    ]
    assert program.state("night") == "closed"


def test_concurrent_recordings_keep_their_own_selection_of_records(program):
    figures = program.record("figures", "--metrics", "gpu", "--every", "1s")
    changes = program.record("changes", "--kinds", "node_state,log", "--redact")
    program.wait_for("figures", "gpu", 2)
    program.wait_for("changes", "node_state", 1)
    for process, codes in ((figures, {0}), (changes, {0, 3})):  # 3: it may end before its agent's first sample
        process.send_signal(signal.SIGINT)
        assert wait_for_end(process)[0] in codes
    counts = named("figures", program.folder).read().counts
    assert counts["gpu"] > 0
    assert "host" not in counts
    changes = program.records("changes")
    assert {type(record).__name__ for record in changes} <= {"ConsoleRecord", "Node", "NodeState", "Log", "Gap", "Mark"}
    assert {record.node for record in changes if isinstance(record, NodeState)} != {"here"}


def test_batch_record_option_writes_a_closed_session(program):
    run = program.run("batch", str(program.hosts), "--record", "job-7")
    assert run.returncode == 0, run.stderr
    assert named("job-7", program.folder).read().state == "closed"


def test_existing_session_name_is_rejected_and_the_session_kept(program):
    wait_for_end(program.record("night", "--for", "1s"))  # may be too short for the first tick
    before = program.records("night")
    again = program.run("record", str(program.hosts), "--name", "night", "--for", "1s")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert program.records("night") == before


def test_sessions_are_renamed_merged_and_deleted_by_name(program):
    wait_for_end(program.record("one", "--for", "1s"))
    assert program.run("sessions", "rename", "one", "first").returncode == 0
    merged = program.run("sessions", "merge", "first", "--into", "all")
    assert merged.returncode == 0, merged.stderr
    assert program.run("sessions", "delete", "first", "--yes").returncode == 0
    wait_for_end(program.record("two", "--for", "3s"))
    compared = json.loads(program.run("diff", "all", "two", "--json").stdout)
    assert (compared["a"], compared["b"]) == ("all", "two")
    assert program.run("sessions", "delete", "two", "--yes").returncode == 0
    listed = json.loads(program.run("sessions", "list", "--json").stdout)
    assert [(entry["name"], entry["state"]) for entry in listed] == [("all", "closed")]
    assert program.run("sessions", "show", "first").returncode == 2


def test_session_gives_the_same_report_as_its_records(program, tmp_path):
    assert program.run("batch", str(program.hosts), "--record", "night", "--records",
                       str(tmp_path / "night.ndjson")).returncode == 0  # fmt: skip
    reports = []
    for source in ("night", tmp_path / "night.ndjson"):
        run = program.run("batch", "--from", str(source), "-o", str(tmp_path / "report.json"))
        assert run.returncode == 0, run.stderr
        reports.append(json.loads((tmp_path / "report.json").read_text()))
    assert reports[0]["nodes"] == reports[1]["nodes"]
    assert reports[0]["gpus"] == reports[1]["gpus"]
    assert program.run("diagnose", "night").returncode in (0, 3)
    assert program.run("diagnose", "nothing-of-that-name").returncode == 2
