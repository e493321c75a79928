"""Ray Train, which trains in a thread of each worker; rank 2 sleeps in its step, unless HEALTHY is set."""

import os
import sys
import tempfile
import threading

os.environ.update(RAY_DEDUP_LOGS="0", RAY_TRAIN_V2_ENABLED="1")
import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def training(config):
    import os
    import time

    import torch
    import torch.distributed as dist

    def wait_for_lease():
        time.sleep(36000)

    for number in range(10**9):
        dist.all_reduce(torch.ones(10))
        if number == 5:
            with open(config["ready"], "w") as pipe:
                pipe.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")
        if number == 50 and dist.get_rank() == 2 and not config["healthy"]:
            wait_for_lease()
        time.sleep(0.02)


def show_ready_lines(path):
    """What workers print goes to files of Ray's."""
    while True:
        with open(path) as pipe:
            for line in pipe:
                sys.stdout.write(line)
                sys.stdout.flush()


pipe = os.path.join(tempfile.mkdtemp(), "ready")
os.mkfifo(pipe)
threading.Thread(target=show_ready_lines, args=(pipe,), daemon=True).start()
config = {"ready": pipe, "healthy": bool(os.environ.get("HEALTHY"))}
workers = ScalingConfig(num_workers=int(os.environ["PER_NODE"]), use_gpu=False)
ray.init("local", num_cpus=8, include_dashboard=False, object_store_memory=100_000_000, _temp_dir="/var/tmp/ray")
TorchTrainer(training, train_loop_config=config, scaling_config=workers).fit()
