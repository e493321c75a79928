"""What a node proves about the Python of a job before it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gconsole_remote.jobs import python_check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")


def checked(folder: Path, **fields: object) -> dict:
    args = {"interpreter": sys.executable, "launcher": None, "script": None, "module": None, "needs": [],
            "imports": False, "env": {}, **fields}  # fmt: skip
    return python_check.check(args, str(folder))


def test_versions_come_from_the_interpreter_of_the_job_in_its_environment(tmp_path: Path) -> None:
    (tmp_path / "own" / "torch").mkdir(parents=True)
    (tmp_path / "own" / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    info = tmp_path / "own" / "torch-9.8.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n")
    result = checked(tmp_path, needs=["torch"], env={"PYTHONPATH": str(tmp_path / "own")})
    assert result["problems"] == []
    assert result["python"]["versions"]["torch"] == "9.8.7"
    assert result["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_missing_packages_scripts_and_modules_are_problems(tmp_path: Path) -> None:
    assert checked(tmp_path, script="train.py")["problems"] == [f"script {tmp_path}/train.py does not exist"]
    assert "module nosuch is not installed" in checked(tmp_path, module="nosuch.main")["problems"][0]
    assert checked(tmp_path, needs=["nosuch"])["problems"] == [f"nosuch is not installed for {sys.executable}"]


def test_syntax_errors_are_problems_and_imports_only_on_request(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import json, nosuch\nimport helper\ntry:\n    import absent\nexcept ImportError:\n    pass\n")
    (tmp_path / "helper.py").write_text("raise SystemExit('imported')")
    assert checked(tmp_path, script="train.py")["problems"] == []
    [problem] = checked(tmp_path, script="train.py", imports=True)["problems"]
    assert problem == f"{script} imports nosuch, not installed for this Python"
    script.write_text("x = (\n")
    assert f"{script}, line 1" in checked(tmp_path, script="train.py")["problems"][0]


def test_broken_interpreter_is_a_problem_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'libpython.so: cannot open' >&2\nexit 127\n")
    broken.chmod(0o755)
    assert checked(tmp_path, interpreter=str(broken))["problems"] == [
        f"{broken} does not run: libpython.so: cannot open"
    ]
    launcher = tmp_path / "torchrun"
    launcher.write_text("#!/bin/sh\nexec python\n")
    launcher.chmod(0o755)
    assert checked(tmp_path, interpreter=None, launcher=str(launcher)) == {"problems": [], "python": None}


def test_interpreter_of_the_launcher_is_read_from_its_first_line(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(f"#!{os.path.realpath(sys.executable)}\n")
    launcher.chmod(0o755)
    result = checked(tmp_path, interpreter=None, launcher=str(launcher))
    assert result["python"]["interpreter"] == os.path.realpath(sys.executable)


def test_slow_interpreter_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python3"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(python_check, "TIMEOUT_S", 0.2)
    assert checked(tmp_path, interpreter=str(slow)) == {"problems": [], "python": None}
