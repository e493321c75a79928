"""A package is missing on the second node."""

import os
import time

from common import join, steps

time.sleep(4)
if os.environ["GROUP_RANK"] == "1":
    import flash_attention_kernels  # noqa: F401
join()
steps()
