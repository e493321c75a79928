"""Job key: equal on all nodes of a job, different between jobs."""

import pytest

from gconsole_remote.proc.job_id import job_key, master_key
from gconsole_remote.proc.rank_variables import claim_of, claim_of_argv, rendezvous_of_argv

TORCH = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def key(env, uid=1000, machine="boot-a net:[1]"):
    return job_key(env, claim_of(env, "environ"), uid, lambda: machine)


def test_elastic_job_id_combines_run_id_and_master_on_every_node():
    env = {**TORCH, "TORCHELASTIC_RUN_ID": "llama"}
    assert key(env) == "llama@10.0.0.1:29500"
    assert key(env) == key({**env, "RANK": "3"}, machine="boot-b net:[2]")


def test_run_id_none_is_ignored():
    assert key({**TORCH, "TORCHELASTIC_RUN_ID": "none"}) == key(TORCH)


def test_job_id_without_run_id_depends_on_master_size_and_user():
    assert key(TORCH).startswith("10.0.0.1:29500~")
    assert key(TORCH) == key({**TORCH, "RANK": "2"}, machine="boot-b net:[2]")
    assert key(TORCH) != key({**TORCH, "WORLD_SIZE": "8"})
    assert key(TORCH) != key(TORCH, uid=1001)
    assert key(TORCH) == master_key("10.0.0.1", 29500, 4, 1000)


def test_loopback_master_gives_a_different_job_id_per_node():
    for address in ("127.0.0.1", "localhost", "::1", "127.0.1.1"):
        for more in ({}, {"TORCHELASTIC_RUN_ID": "100"}):
            env = {**TORCH, **more, "MASTER_ADDR": address}
            assert key(env) != key(env, machine="boot-b net:[1]")
            assert key(env) != key(env, machine="boot-a net:[2]"), "loopback differs between network namespaces"
            assert key(env) == key({**env, "RANK": "1"})


def test_slurm_step_and_torch_master_port_form_the_job_id():
    slurm = {"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    assert key(slurm) == "slurm-1234.0"
    assert key({**slurm, **TORCH}) == "slurm-1234.0:29500"
    assert key({**slurm, "MASTER_PORT": "29500"}) == "slurm-1234.0", "some ranks set it earlier than others"
    assert key({**TORCH, "SLURM_JOB_ID": "1234"}) == "slurm-1234:29500"


def test_mpirun_namespace_distinguishes_jobs_in_one_slurm_allocation():
    env = {"SLURM_JOB_ID": "1", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    assert key({**env, "PMIX_NAMESPACE": "prterun-n1-7@1"}) == "slurm-1/prterun-n1-7@1"
    assert key({**env, "PMIX_NAMESPACE": "slurm.pmix.1.0"}) == "slurm-1"


def test_mpirun_job_id_ignores_a_master_set_at_run_time():
    env = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-n1-7@1"}
    assert key(env) == key({**env, **TORCH, "MASTER_ADDR": "127.0.0.1"}) == "pmix-prterun-n1-7@1"


def test_two_trainers_in_one_ray_job_have_different_job_ids():
    env = {**TORCH, "RAY_JOB_ID": "01000000"}
    assert key(env) == "ray-01000000@10.0.0.1:29500"
    assert key(env) != key({**env, "MASTER_PORT": "29501"})


def test_job_without_identifiers_is_never_merged_across_nodes():
    env = {"PMI_RANK": "0", "PMI_SIZE": "2"}
    assert key(env).startswith("local~")
    assert key(env) != key(env, machine="boot-b net:[1]")


def test_job_id_is_short_and_printable_for_any_environment():
    name = key({**TORCH, "TORCHELASTIC_RUN_ID": "x\x1b[2J\n" * 1000})
    assert name.isprintable()
    assert len(name) <= 140


def test_job_started_by_gconsole_keeps_its_given_name():
    assert key({**TORCH, "GCONSOLE_JOB": "train-3f9a1c"}) == "train-3f9a1c@10.0.0.1:29500"
    both = {**TORCH, "GCONSOLE_JOB": "train-3f9a1c", "TORCHELASTIC_RUN_ID": "train-3f9a1c"}
    assert key(both) == "train-3f9a1c@10.0.0.1:29500"


@pytest.mark.parametrize(
    ("arguments", "rendezvous"),
    [
        (["--dist-url", "tcp://10.0.0.1:29500"], "10.0.0.1:29500"),
        (["--dist_url=tcp://Node1:29500"], "node1:29500"),
        (["--init-method", "tcp://[fe80::1]:4000"], "fe80::1:4000"),
        (["--init_method=tcp://10.0.0.1:29500?timeout=60"], "10.0.0.1:29500"),
        (["--master_addr", "10.0.0.1", "--master_port", "29501"], "10.0.0.1:29501"),
        (["--master-addr=10.0.0.1", "--master-port=29501"], "10.0.0.1:29501"),
        (["--coordinator_address=10.0.0.1:1234"], "10.0.0.1:1234"),
    ],
)
def test_rank_and_rendezvous_of_arguments_name_the_job_alike_on_every_node(arguments, rendezvous):
    keys = set()
    for rank, machine in ((0, "boot-a net:[1]"), (3, "boot-b net:[1]")):
        argv = ["python", "train.py", "--rank", str(rank), "--world-size", "4", *arguments]
        claim = claim_of_argv(argv, {})
        keys.add(job_key(rendezvous_of_argv(argv), claim, 1000, lambda machine=machine: machine))
    [name] = keys
    assert name.startswith(rendezvous + "~")


def test_process_id_and_number_of_processes_are_a_rank_and_a_size():
    argv = ["python", "train.py", "--process_id=3", "--num_processes", "4"]
    claim = claim_of_argv(argv, {})
    assert (claim.rank, claim.world_size) == (3, 4)
    assert claim_of_argv(argv[:3], {}) is None
    assert claim_of_argv(["accelerate", "launch", "--num_processes", "4"], {}) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dist-url", "env://"],
        ["--init-method", "file:///shared/meet"],
        ["--queue", "tcp://10.0.0.1:5555"],
        ["tcp://10.0.0.1:5555"],
        ["--dist-url", "tcp://10.0.0.1:99999"],
        ["--dist-url", "tcp://:29500"],
        ["--dist-url"],
        ["--master-addr", "10.0.0.1"],
    ],
)
def test_arguments_that_name_no_rendezvous(arguments):
    assert rendezvous_of_argv(["python", "train.py", *arguments]) == {}


def test_rendezvous_of_arguments_on_a_loopback_address_is_of_the_machine():
    argv = ["python", "train.py", "--rank=0", "--world-size=2", "--dist-url=tcp://localhost:29500"]
    claim, rendezvous = claim_of_argv(argv, {}), rendezvous_of_argv(argv)
    keys = {job_key(rendezvous, claim, 1000, lambda machine=machine: machine) for machine in ("a", "b")}
    assert len(keys) == 2
