"""A warm cache of the agent on a node: its modules, compiled code and py-spy.

Compiling and uploading these costs a new node 0.5 s of CPU time. Nodes of a rig start with a warm cache, unless the
test is about a node's first start (`Rig(is_first_start=True)`).
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import pythons

STORE = Path(__file__).resolve().parents[3] / "build" / "agent-cache"
DEADLINE_S = 60.0
# Standard input is the preamble and the archive, argv[1] the folder for compiled code.
_COMPILE = """
import sys, zlib
stdin = sys.stdin.buffer
header = stdin.readline().split()
payload, boot_bytes = stdin.read(int(header[2])), int(header[3])
exec(zlib.decompress(payload[:boot_bytes]))
importer = BundleImporter()
importer.add(payload[boot_bytes:].partition(b"\\n")[2])
importer.add(stdin.read())
sys.meta_path.insert(0, importer)
importer.use_code_dir(sys.argv[1])
for name in SELDOM:
    importer._keep(importer.modules[name][0], importer._pruned(name))
"""


def folder() -> Path:
    """The cache for the nodes' default Python, created by the first process that needs it; keyed by its contents."""
    from gconsole.fleet.deploy import agent_payload
    from gconsole.fleet.deploy.binaries import PY_SPY, Binaries

    python = pythons.own_python()
    version = os.path.realpath(python).replace("/", "_")
    built = agent_payload.build()
    place = STORE / f"{built.digest[:32]}{version}"
    if place.exists():
        return place
    STORE.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=STORE))
    for part in ("blob", "code", "run"):
        (draft / part).mkdir(0o700)
    argv = [str(python), "-I", "-S", "-B", "-c", _COMPILE, str(draft / "code")]
    subprocess.run(argv, input=built.preamble + built.archive, check=True, timeout=DEADLINE_S)
    archive = draft / "blob" / f"payload-{built.archive_digest}"
    archive.write_bytes(built.archive)
    archive.chmod(0o600)
    binary = Binaries().get(PY_SPY, os.uname().machine)
    if binary is not None:
        blob = draft / "blob" / binary.digest
        blob.write_bytes(binary.content)
        blob.chmod(0o700)
    try:
        draft.rename(place)
    except OSError:  # another process was first
        shutil.rmtree(draft)
    return place
