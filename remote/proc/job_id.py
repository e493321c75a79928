"""The name of a job: the same on every node of the job without communication, and different for two jobs.

The first that applies:

    slurm-1234.0            Slurm job and step; `:port` where RANK came with MASTER_PORT, `/namespace` under mpirun,
                            because one step or shell may run several jobs
    llama@10.0.0.1:29500    torchelastic's run id (not "none"), or the name given by `gconsole run`, and the master
    pmix-prterun-n1-77@1    Open MPI, PRRTE: a name of the mpirun
    ray-01000000@10.…:port  Ray's job and the master of this trainer
    10.0.0.1:29500~3fa1     the master alone, of the environment or the arguments (`--dist-url tcp://10.0.0.1:29500`).
                            Ports are reused (29500 is everybody's default): the suffix is of the world size and the
                            uid, which are the same on every node
    local~9c02              nothing at all: the suffix is of this machine, so nodes are never merged by mistake

A master on a loopback address names another machine on each node: there the suffix also holds the boot id and the
network namespace, so that two nodes are one job only where they share the loopback itself.
"""

import zlib

from .procfs import printable
from .rank_variables import number, slurm_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .rank_variables import Claim

#: Longest job name, in characters.
LONGEST = 128
#: Where the ranks of a job meet.
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


def job_key(env: "dict[str, str]", claim: "Claim", uid: "int | None", machine: "Callable[[], str]") -> str:
    """The job's name. `machine()` gives text for the machine and its network: boot id and network namespace."""
    master = _master(env)
    place = "~" + _digest(machine()) if master and _is_loopback(master) else ""
    unique = _unique_name(env)
    if unique:
        return printable(unique, LONGEST)
    shared = _shared_name(env, claim, master)
    if shared:
        return printable(shared, LONGEST) + place
    weak = "%s %s" % (claim.world_size, uid)
    if not master:
        return "local~" + _digest("%s %s %s" % (machine(), claim.launcher, weak))
    if place:
        weak = "%s %s" % (machine(), weak)
    return "%s~%s" % (printable(master, LONGEST), _digest(weak))


def master_key(address: str, port: int, world_size: "int | None", uid: "int | None") -> str:
    """The `job_key` of a job of which only master, size and user are known."""
    return "%s~%s" % (printable("%s:%s" % (_address(address), port), LONGEST), _digest("%s %s" % (world_size, uid)))


def local_key(label: str, machine: str) -> str:
    """The name of an unidentified job: `label` and a digest of the machine."""
    return "%s~%s" % (printable(label, LONGEST), _digest(machine))


def restart_family(env: "dict[str, str]", uid: "int | None") -> "tuple[Any, ...] | None":
    """The identity of an elastic job across restarts, also if the master's port changes; or None."""
    run = _run_id(env)
    return (run, _address(env.get("MASTER_ADDR", "")), slurm_step(env), uid) if run else None


def _unique_name(env: "dict[str, str]") -> "str | None":
    """A name that no other job anywhere has, or None."""
    if slurm_step(env):
        return None
    for prefix, name in (("pmix", "PMIX_NAMESPACE"), ("flux", "FLUX_JOB_ID"), ("pals", "PALS_APID")):
        if env.get(name):
            return "%s-%s" % (prefix, env[name])
    return None


def _shared_name(env: "dict[str, str]", claim: "Claim", master: "str | None") -> "str | None":
    """A name that several jobs may carry at a time, with what distinguishes them; or None."""
    step = slurm_step(env)
    if step:
        port = number(env.get("MASTER_PORT")) if claim.authority == 0 else None
        if port:
            return "slurm-%s:%d" % (step, port)
        namespace = env.get("PMIX_NAMESPACE", "")
        return "slurm-%s/%s" % (step, namespace) if namespace and "slurm" not in namespace else "slurm-" + step
    run = _run_id(env) or env.get("GCONSOLE_JOB")
    if run:
        return "%s@%s" % (run, master or "?")
    if env.get("RAY_JOB_ID"):
        return "ray-%s@%s" % (env["RAY_JOB_ID"], master) if master else "ray-" + env["RAY_JOB_ID"]
    return None


def _run_id(env: "dict[str, str]") -> "str | None":
    run = env.get("TORCHELASTIC_RUN_ID", "")
    return run if run not in ("", "none") else None


def _master(env: "dict[str, str]") -> "str | None":
    """`address:port` of the rendezvous, or None."""
    for address, port in (
        RENDEZVOUS,
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ):
        if env.get(address):
            return "%s:%s" % (_address(env[address]), number(env.get(port)) or "?")
    return env.get("JAX_COORDINATOR_ADDRESS") or None


def _address(text: str) -> str:
    return text.strip("[] ").lower()


def _is_loopback(master: str) -> bool:
    address = master.rpartition(":")[0]
    return address.startswith(("127.", "localhost", "ip6-localhost", "::ffff:127.")) or address == "::1"


def _digest(text: str) -> str:
    # crc32: four digits distinguish the few jobs that share a master, and hashlib costs memory
    return "%04x" % (zlib.crc32(text.encode("utf-8", "replace")) & 0xFFFF)
