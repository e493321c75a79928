"""DeepSpeed ZeRO 2 on CPU: the optimizer step of rank 1 waits for a write to a full pipe, unless HEALTHY is set."""

import os

os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=os.environ.get("LOCAL_RANK", "0"))
import deepspeed
import torch
from common import ready

HEALTHY = bool(os.environ.get("HEALTHY"))


def offload_states():
    _, end = os.pipe()
    while True:
        os.write(end, bytes(65536))


class Shifted(torch.optim.SGD):
    count = 0

    def step(self, closure=None):
        self.count += 1
        if self.count == 20 and torch.distributed.get_rank() == 1 and not HEALTHY:
            offload_states()
        return super().step(closure)


torch.set_num_threads(1)
deepspeed.init_distributed("gloo", verbose=False)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=Shifted(model.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
for number in range(10**9):
    if number == 10:
        ready()
    loss = engine(torch.rand(4, 64)).sum()
    engine.backward(loss)
    engine.step()
