"""Lightning; rank 1 sends its metrics to a server that never answers, unless HEALTHY is set."""

import os
import socket
import sys
import time

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.number = 0

    def training_step(self, batch):
        self.number += 1
        if self.number == 5:
            sys.stdout.write(f"READY rank={os.environ['RANK']} pid={os.getpid()}\n")
            sys.stdout.flush()
        if self.number == 50 and self.global_rank == 1 and not os.environ.get("HEALTHY"):
            self.push_metrics()
        time.sleep(0.02)
        return self.layer(batch).mean()

    def push_metrics(self):
        server = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(server.getsockname()) as connection:
            connection.recv(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_epochs=10**9, **quiet)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(10_000, 8), batch_size=2))
