"""Rank 0 has an index out of range on its GPU (the messages alone: there is no GPU here)."""

import sys

from common import join, steps


def embed():
    sys.stderr.write(
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [33,0,0], thread: [64,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.\n"
    )
    raise RuntimeError(
        "CUDA error: device-side assert triggered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


if join() == 0:
    embed()
steps()
