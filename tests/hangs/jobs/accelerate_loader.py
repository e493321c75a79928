"""accelerate; a data loader worker of rank 0 opens a FIFO without a writer, unless HEALTHY is set."""

import os
import sys
import time

import torch
from accelerate import Accelerator


class Documents(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        if index == 4000 and not os.environ.get("HEALTHY"):
            path = f"/tmp/document-{os.getpid()}"
            os.mkfifo(path)
            open(path).read()
        return torch.ones(8)


accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(Documents(), batch_size=10, num_workers=1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for number, batch in enumerate(loader):
    accelerator.backward(model(batch).mean())
    optimizer.step()
    optimizer.zero_grad()
    if number == 5:
        sys.stdout.write(f"READY rank={os.environ['RANK']} pid={os.getpid()}\n")
        sys.stdout.flush()
    time.sleep(0.02)
