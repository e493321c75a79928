"""pynvml as sent to a node: only the parts that the agent uses, unmodified and with their dependencies."""

import ast
import json
import subprocess
from pathlib import Path

import pynvml
import pytest
from test_contract import VERSIONS, the_python

from gconsole.fleet.deploy import agent_payload as bundle
from gconsole_remote.agent import trim_module
from gconsole_remote.agent.bootstrap import BundleImporter

REMOTE = Path(trim_module.__file__).parent
TRY = """
import ast, json, sys, types
sys.path.insert(0, sys.argv[1])
import trim_module
wanted = json.load(sys.stdin)
code = compile(trim_module.prune(open(sys.argv[2], "rb").read(), wanted), "pruned", "exec", optimize=2)
module = sys.modules["pynvml"] = types.ModuleType("pynvml")
exec(code, module.__dict__)
try:
    module.nvmlInit()
except module.NVMLError as error:
    known = set(wanted) & set(sys.argv[3].split())
    print(type(error).__name__, len(module.__dict__), known <= set(module.__dict__))
"""


def wanted():
    return _importer().modules["pynvml"][3]


def _importer():
    importer = BundleImporter()
    importer.add(bundle.build().archive)
    return importer


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_pruned_module_runs_and_has_every_name_that_the_agent_uses(version):
    known = " ".join(name for name in wanted() if hasattr(pynvml, name))
    argv = [the_python(version), "-I", "-c", TRY, str(REMOTE), pynvml.__file__, known]
    done = subprocess.run(argv, input=json.dumps(wanted()), capture_output=True, text=True, check=False)

    assert done.stderr == ""
    error, names, is_complete = done.stdout.split()
    assert (error, is_complete) == ("NVMLError_LibraryNotFound", "True")
    assert int(names) < len(vars(pynvml)) / 3


@pytest.mark.slow
def test_pruned_statements_are_unchanged_and_in_order():
    source = Path(pynvml.__file__).read_bytes()
    whole = [ast.dump(statement) for statement in ast.parse(source).body]
    kept = [ast.dump(statement) for statement in trim_module.prune(source, wanted()).body]

    places = iter(whole)
    assert all(statement in places for statement in kept), "in order and unchanged"


def test_pruning_keeps_dependencies_and_statements_with_side_effects():
    source = b"""
import os
A, B = 1, 2
C = 3
D = os.getpid()
class E(object): x = C
def f(): return globals()["g"]
def g(): return E
def h(): pass
"""
    tree = trim_module.prune(source, ["f"])

    assert [type(statement).__name__ for statement in tree.body] == [
        "Import", "Assign", "Assign", "Assign", "ClassDef", "FunctionDef", "FunctionDef"]  # fmt: skip
    assert "h" not in ast.dump(tree)


def test_imports_that_nothing_kept_refers_to_are_removed():
    """pynvml imports ctypes.util, which loads subprocess and shutil, and does not use it."""
    source = b"""
from __future__ import division
import os.path, sys
import string as text
from ctypes import *
from ctypes.util import find_library
from functools import wraps
def f(): return sys.path
def g(): return text.capwords
"""
    tree = trim_module.prune(source, ["f"])

    assert [ast.unparse(statement) for statement in tree.body[:3]] == [
        "from __future__ import division", "import os.path, sys", "from ctypes import *"]  # fmt: skip
    assert len(tree.body) == 4


def test_names_kept_of_pynvml_are_all_that_the_agent_mentions():
    sources = [path.read_bytes() for path in REMOTE.parent.rglob("*.py")]
    mentioned = {name.decode() for source in sources for name in bundle._NVML_NAME.findall(source)}
    assert wanted() == sorted(mentioned)


def test_pruned_pynvml_has_a_different_digest_from_the_unpruned_module():
    importer = _importer()
    digest, _, _, names = importer.modules["pynvml"]

    assert importer.get_source("pynvml").encode() == Path(pynvml.__file__).read_bytes()
    assert bundle.Module(Path(pynvml.__file__).read_bytes(), is_package=False).digest() != digest
    assert "nvmlDeviceGetFieldValues" in names
