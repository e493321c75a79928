"""The part that a process has in Ray, vLLM or SGLang, from what it shows: its title, arguments and variables.

These frameworks rename their processes (setproctitle), which is what `ps` shows; a title is what the process says of
itself. Where it has none, the part is a guess from the arguments, from the names of its variables or from its parent,
and says so.
"""

import re

from .programs import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Sequence

#: What a part that the process does not say itself ends with.
GUESS = " (guess)"
#: Characters of the names of classes and functions that are kept.
MAX_NAME = 48
#: Ray's own programs, by the file name of the executable or script.
_RAY_PROGRAMS = {
    "log_monitor.py": "ray log monitor",
    "monitor.py": "ray autoscaler",
    "agent.py": "ray dashboard agent",
    "dashboard.py": "ray dashboard",
}
_RAY_FOLDERS = re.compile(r"/ray/(?:core/src/ray|_private|dashboard|autoscaler|gcs|util)/")
#: Actors by the class in their title: those whose part is known.
_RAY_ACTORS = {
    "JobSupervisor": "ray job supervisor",
    "ServeController": "ray serve controller",
    "ProxyActor": "ray serve proxy (HTTP)",
    "HTTPProxyActor": "ray serve proxy (HTTP)",
    "RayTrainWorker": "ray train worker",
    "RayTrainWorker__execute": "ray train worker",
    "TrainController": "ray train controller",
    "TrainTrainable": "ray train controller",
    "RayWorkerWrapper": "vllm worker (ray actor)",
    "EngineCoreActor": "vllm engine core (ray actor)",
}
#: Titles `VLLM::NAME_SUFFIX` and `sglang::NAME_SUFFIX`, by the beginning of the name.
_SERVING = (
    (re.compile(r"^VLLM::(?:EngineCore|EngCore)"), "vllm engine core (scheduler)"),
    (re.compile(r"^VLLM::Worker"), "vllm worker"),
    (re.compile(r"^VLLM::(?:APIServer|ApiServer|API)"), "vllm API server"),
    (re.compile(r"^VLLM::DPCoordinator|^VLLM::DP_Coord"), "vllm coordinator of engines"),
    (re.compile(r"^VLLM::"), "vllm process"),
    (re.compile(r"^sglang::schedul"), "sglang scheduler"),
    (re.compile(r"^sglang::detoken"), "sglang detokenizer"),
    (re.compile(r"^sglang::(?:data_para|dp_)"), "sglang coordinator of engines"),
    (re.compile(r"^sglang::tokenizer"), "sglang tokenizer"),
    (re.compile(r"^sglang::"), "sglang process"),
)
#: Modules and subcommands that start a server.
_SERVERS = (
    (re.compile(r"^vllm\.entrypoints\.(?:openai\.)?(?:api_server|cli\.main)"), "vllm API server"),
    (re.compile(r"^sglang\.launch_server"), "sglang API server"),
)
#: The variable of Ray's workers.
_WORKER_VARIABLE = "RAY_JOB_ID"
_SPAWNED = "multiprocessing.spawn"
_TITLES = ("ray::", "VLLM::", "sglang::")


def framework_part(
    argv: "list[str]",
    comm: str,
    variables: "Collection[str]" = (),
    ancestors: "Sequence[str]" = (),
    uses_ray: bool = False,
) -> "str | None":
    """`ray actor Trainer`, `vllm engine core (scheduler)`, `ray driver (guess)`; None for other processes.

    `variables` are names in its environment, `ancestors` the parts of the processes above it, its parent's first;
    `uses_ray`: it has loaded Ray's library.
    """
    title = argv[0] if argv else comm
    if not title.startswith(_TITLES) and comm.startswith(_TITLES):
        title = comm  # cut to 15 characters
    if title.startswith("ray::"):
        return _ray_title(title[len("ray::") :])
    for pattern, part in _SERVING:
        if pattern.match(title):
            return part
    return _by_program(argv) or _guess(argv, variables, ancestors, uses_ray)


def _ray_title(name: str) -> str:
    """The part of a worker by its title: `IDLE`, a task's function, an actor's class and the method that it runs."""
    words = re.split(r"[.(\s]", name.strip(), maxsplit=1)
    owner, rest = words[0][:MAX_NAME], words[1] if len(words) > 1 else ""
    if owner in ("IDLE", "IDLE_SpillWorker", "IDLE_RestoreWorker"):
        return "ray worker (idle)"
    if owner in _RAY_ACTORS:
        return _RAY_ACTORS[owner]
    if owner[:1] == "_" and owner[1:] in _RAY_ACTORS:
        return _RAY_ACTORS[owner[1:]]
    if owner[:1].isupper() or rest or owner[:2].lstrip("_")[:1].isupper():
        return "ray actor " + owner
    return "ray task " + owner if owner else "ray worker"


def _by_program(argv: "list[str]") -> "str | None":
    kind, name, rest = program(argv)
    short = name.rpartition("/")[2]
    if short in _RAY_PROGRAMS and _RAY_FOLDERS.search(name):
        return _RAY_PROGRAMS[short]
    if kind == "module":
        for pattern, part in _SERVERS:
            if pattern.match(name):
                return part
    if kind == "script" and short == "vllm" and rest[:1] == ["serve"]:
        return "vllm API server"
    if short == "default_worker.py" and _RAY_FOLDERS.search(name):
        return "ray worker (starting)"
    return None


def _guess(argv: "list[str]", variables: "Collection[str]", ancestors: "Sequence[str]", uses_ray: bool) -> "str | None":
    above = ancestors[0] if ancestors else ""
    if any(_SPAWNED in argument for argument in argv[:4]):
        if above.startswith("vllm API server"):
            return "vllm engine core" + GUESS
        return "vllm worker" + GUESS if above.startswith("vllm engine core") else None
    if above.startswith("ray job supervisor"):
        return "ray driver" + GUESS
    if above.startswith("ray "):
        return None  # what a worker or driver started has its variables
    if _WORKER_VARIABLE in variables:
        return "ray worker" + GUESS
    return "ray driver" + GUESS if uses_ray else None
