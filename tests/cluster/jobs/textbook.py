"""The training loop of PyTorch's tutorials, with a trainer class that counts its steps; gloo ranks of torchrun."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class State:
    def __init__(self):
        self.global_step = 0
        self.loss = None


class Trainer:
    def __init__(self, model):
        self.model, self.state = model, State()

    def train_one_epoch(self, training_loader, loss_fn, optimizer):
        running_loss = 0.0
        for step, (inputs, labels) in enumerate(training_loader):
            optimizer.zero_grad()
            outputs = self.model(inputs)
            loss = loss_fn(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            self.state.global_step += 1
            self.state.loss = loss
            if step == 2:
                sys.stdout.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")  # one write: ranks share the file
                sys.stdout.flush()
            time.sleep(0.05)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(8, 2))
    data = TensorDataset(torch.randn(200000, 8), torch.randint(0, 2, (200000,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    Trainer(model).train_one_epoch(DataLoader(data, batch_size=4), nn.CrossEntropyLoss(), optimizer)


main()
