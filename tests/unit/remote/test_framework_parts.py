"""The part of a process in Ray, vLLM or SGLang, from its title, arguments, variables and ancestors."""

import pytest

from gconsole_remote.proc.framework_parts import framework_part

SPAWNED = ["/venv/bin/python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"]


@pytest.mark.parametrize(
    ("argv", "comm", "part"),
    [
        (["ray::IDLE"], "ray::IDLE", "ray worker (idle)"),
        (["ray::Trainer.step"], "ray::Trainer.st", "ray actor Trainer"),
        (["ray::RolloutWorker"], "ray::RolloutWor", "ray actor RolloutWorker"),
        (["ray::WorkerDict.actor_rollout_generate"], "ray::WorkerDict", "ray actor WorkerDict"),
        (["ray::RolloutWorker.sample()"], "ray::RolloutWor", "ray actor RolloutWorker"),
        (["ray::preprocess"], "ray::preprocess", "ray task preprocess"),
        (["ray::_RayTrainWorker__execute.get_next"], "ray::_RayTrainW", "ray train worker"),
        (["ray::JobSupervisor"], "ray::JobSupervi", "ray job supervisor"),
        (["ray::ServeController.listen_for_change"], "ray::ServeContr", "ray serve controller"),
        ([], "ray::Trainer.st", "ray actor Trainer"),
        (["VLLM::EngineCore_DP0"], "VLLM::EngineCor", "vllm engine core (scheduler)"),
        (["VLLM::EngineCore"], "VLLM::EngineCor", "vllm engine core (scheduler)"),
        (["VLLM::Worker_TP1"], "VLLM::Worker_TP", "vllm worker"),
        (["VLLM::APIServer_0"], "VLLM::APIServer", "vllm API server"),
        (["sglang::scheduler_TP0"], "sglang::schedul", "sglang scheduler"),
        (["sglang::detokenizer"], "sglang::detoken", "sglang detokenizer"),
        (["/venv/bin/python3", "/venv/bin/vllm", "serve", "org/model"], "vllm", "vllm API server"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--port", "8000"], "python3", "vllm API server"),
        (["python3", "-m", "sglang.launch_server", "--model", "m"], "python3", "sglang API server"),
        (["python3", "/v/ray/dashboard/agent.py"], "python3", "ray dashboard agent"),
        (["python3", "/home/user/agent.py"], "python3", None),
        (["python3", "train.py"], "python3", None),
        (["/venv/bin/vllm", "bench", "latency"], "vllm", None),
        ([], "python3", None),
    ],
)
def test_part_is_what_the_process_says_of_itself(argv, comm, part):
    assert framework_part(argv, comm) == part


@pytest.mark.parametrize(
    ("argv", "more", "part"),
    [
        (["python3", "train.py"], {"uses_ray": True}, "ray driver (guess)"),
        (["python3", "train.py"], {"ancestors": ["ray job supervisor"]}, "ray driver (guess)"),
        (["python3", "-c", "…"], {"variables": ["RAY_JOB_ID"]}, "ray worker (guess)"),
        (["python3", "load.py"], {"variables": ["RAY_JOB_ID"], "ancestors": ["ray actor Trainer"]}, None),
        (SPAWNED, {"ancestors": ["vllm API server"]}, "vllm engine core (guess)"),
        (SPAWNED, {"ancestors": ["vllm engine core (scheduler)", "vllm API server"]}, "vllm worker (guess)"),
        (SPAWNED, {}, None),
    ],
)
def test_part_that_a_process_does_not_state_is_marked_as_a_guess(argv, more, part):
    assert framework_part(argv, "python3", **more) == part


def test_names_are_bounded():
    assert len(framework_part(["ray::" + "A" * 10_000], "ray::AAA")) < 64
