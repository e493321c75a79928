"""Makes `import torch` cheaper in the jobs: without the meta kernels that torch.compile, optimizers and DDP use.

They are half of the import's CPU time (1 of 2.3 s), and each rank and each launcher of a test imports torch. Launchers
never need them; ranks are left as they are where LIGHT_TORCH is `launchers`.
"""

import os
import sys
import types

if "torch.distributed.run" in sys.orig_argv or os.environ.get("LIGHT_TORCH") == "ranks":
    sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")
