"""One rank is never started; the others wait for it in init_process_group."""

from datetime import timedelta

import torch.distributed as dist
from common import ready

ready()
dist.init_process_group("gloo", timeout=timedelta(hours=1))
