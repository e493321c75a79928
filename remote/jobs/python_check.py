"""Whether the Python of a job can start its script on this node, and which versions it has."""

import json
import os

from ..agent import commands
from ..proc.procfs import printable
from . import python_facts
from .preflight import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields

#: Seconds; a cold interpreter on a network file system takes some.
TIMEOUT_S = 10.0
_MAX_PROBLEMS = 8


def check(args: "Fields", workdir: str) -> "Fields":
    """{"problems", "python"}: why the job's Python cannot start it, and `python_facts` of it.

    `python` is None where the interpreter is unknown or did not answer in time, which proves nothing.
    """
    script = os.path.join(workdir, args["script"]) if args["script"] is not None else None
    if script is not None and not os.path.isfile(script):
        return {"problems": ["script %s does not exist" % script], "python": None}
    interpreter = _interpreter(args, workdir)
    if interpreter is None:
        return {"problems": [], "python": None}
    facts = _facts(interpreter, args, script, workdir)
    if isinstance(facts, str):
        return {"problems": ["%s does not run: %s" % (interpreter, facts)], "python": None}
    if facts is None:
        return {"problems": [], "python": None}
    problems = ["%s is not installed for %s" % (name, interpreter)
                for name in args["needs"] if facts["versions"].get(name) is None]  # fmt: skip
    problems += [printable(str(text), 500) for text in facts["problems"]][:_MAX_PROBLEMS]
    versions = {name: printable(str(text), 60) if text else None for name, text in facts["versions"].items()}
    python = {"interpreter": interpreter, "version": printable(str(facts["version"]), 60), "versions": versions}
    return {"problems": problems, "python": python}


def _interpreter(args: "Fields", workdir: str) -> "str | None":
    """The path of the interpreter: the one named, else the one in the first line of the launcher's script."""
    if args["interpreter"] is not None:
        return find_program(args["interpreter"], workdir)
    launcher = find_program(args["launcher"], workdir) if args["launcher"] is not None else None
    if launcher is None:
        return None
    with open(launcher, "rb") as file:
        line = file.readline(4096)
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if len(words) == 2 and os.path.basename(words[0]) == "env":
        words = words[1:]
    if not words or not os.path.basename(words[0]).startswith(("python", "pypy")):
        return None
    return find_program(words[0], workdir)


def _facts(interpreter: str, args: "Fields", script: "str | None", workdir: str) -> "Fields | str | None":
    """The facts; why the interpreter does not run; None if it is too slow to tell."""
    wanted = {"script": script, "module": args["module"], "imports": args["imports"],
              "packages": ["torch", "accelerate"], "folder": workdir}  # fmt: skip
    source = "%s\n\nmain(%r)\n" % (commands.source_of(python_facts.__name__), json.dumps(wanted))
    environment = dict(os.environ, **args["env"])
    try:
        status, out, err = commands.run_apart(
            "python_facts", TIMEOUT_S, python=interpreter, given=source.encode("utf-8"), env=environment
        )
    except OSError as error:
        return error.strerror or str(error)
    except commands.CommandTimeout:
        return None
    for line in out.decode("utf-8", "replace").splitlines():
        if line.startswith(python_facts.MARK):
            try:
                facts: Fields = json.loads(line[len(python_facts.MARK) :])
                return facts
            except ValueError:
                return None
    lines = err.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1], 300) if lines else "exit status %s" % status
