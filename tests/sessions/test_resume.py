"""`r` with the name of a crashed recording resumes it, and buffered records of lingering agents are added."""

import os
import shutil
import signal
from collections import defaultdict

import pytest
from local_program import GCONSOLE, Program, wait_for_end
from tmux import Tmux

from gconsole.records import Gap, Gpu
from gconsole.session.format import reader
from gconsole.session.format.layout import named


class ConsoleTerminals:
    """Consoles on terminals, all of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self._open = program, []

    def open(self) -> Tmux:
        terminal = Tmux(f"{GCONSOLE} {self.program.hosts}", self.program.env)
        self._open.append(terminal)
        terminal.until("1/1 nodes")
        return terminal

    def records(self, terminal: Tmux, name: str) -> None:
        """Press `r`, enter the name, and wait until the header shows it."""
        terminal.press("r")
        terminal.until("Record")
        terminal.press(name, "Enter")
        terminal.until(f"REC {name}")

    def crash(self, terminal: Tmux) -> None:
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.until_gone()

    def close(self) -> None:
        for terminal in self._open:
            terminal.close()


@pytest.fixture
def screens(tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    program = Program(tmp_path)
    program.write(linger_s=120)
    made = ConsoleTerminals(program)
    yield made
    made.close()
    for process in program.running:
        process.kill()
        process.communicate()


def recorded(program: Program) -> tuple[dict[str, list[int]], list[Gap]]:
    """Sequence numbers of every agent that sent GPU records, and the counted gaps. A torn tail is skipped."""
    numbers, figures = defaultdict(list), set()
    records = list(reader.lenient(named("night", program.folder).path, lambda damage: None))
    for record in records:
        numbers[record.agent].append(record.seq)
        if isinstance(record, Gpu):
            figures.add(record.agent)
    return {agent: numbers[agent] for agent in figures}, [record for record in records if isinstance(record, Gap)]


def gpus(program: Program) -> int:
    return program.counts("night").get("gpu", 0)


def test_crashed_recording_resumes_from_the_screen_without_losing_records(screens):
    program = screens.program
    first = screens.open()
    screens.records(first, "night")
    program.wait_for("night", "gpu", 6)
    screens.crash(first)
    numbers, _ = recorded(program)
    ((agent, before),) = numbers.items()

    second = screens.open()  # it has its own agent by now
    screens.records(second, "night")
    program.wait_for("night", "gpu", gpus(program) + 12)
    screens.crash(second)
    status, _, err = wait_for_end(program.record("night", "--for", "3s"))  # and the command attaches to the same agents
    assert status == 0, err

    numbers, gaps = recorded(program)
    assert gaps == []
    after = numbers[agent][len(before) :]
    assert after == list(range(before[-1] + 1, before[-1] + 1 + len(after))), "no duplicates after two crashes"
    assert [record.agent for record in program.records("night") if isinstance(record, Gpu)][-1] == agent
    parts = named("night", program.folder).read().parts
    assert [part.how for part in parts] == ["crashed", "crashed", "stopped"]
    assert len({part.console for part in parts}) == 1, "one console id"
    assert list(program.cache.glob("run/*.sock")) == [], "no agent lingers after a normal exit"
