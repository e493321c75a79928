"""Versions of packages that a job would get on a node, read from names of folders."""

from __future__ import annotations

from pathlib import Path

from gconsole_remote.proc.packages import package_versions


def installed(prefix: Path, *packages: str) -> None:
    for package in packages:
        (prefix / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info").mkdir(parents=True)
    (prefix / "bin").mkdir(exist_ok=True)


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_versions_are_those_of_the_interpreter_of_torchrun(tmp_path: Path) -> None:
    installed(tmp_path / "venv", "torch-2.3.0+cu121", "accelerate-1.0.1", "torchvision-0.18.0")
    installed(tmp_path / "system", "torch-1.0.0")
    path = tmp_path / "path"
    path.mkdir()
    program(path / "torchrun", f"#!{tmp_path}/venv/bin/python3\n")
    program(tmp_path / "system" / "bin" / "python3", "")
    both = f"{path}:{tmp_path}/system/bin"
    assert list(package_versions(both)) == [("package", "torch", "2.3.0+cu121"), ("package", "accelerate", "1.0.1")]
    assert list(package_versions(f"{tmp_path}/system/bin")) == [("package", "torch", "1.0.0")]


def test_node_without_torch_has_no_version(tmp_path: Path) -> None:
    program(tmp_path / "torchrun", "#!/bin/sh\n")
    program(tmp_path / "python3", "")
    assert list(package_versions(str(tmp_path))) == []
