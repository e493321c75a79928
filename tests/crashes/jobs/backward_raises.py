"""A hook in the backward pass of rank 1 raises."""

import torch
from common import join, steps


def clip(gradient):
    raise ArithmeticError("gradient norm 1.2e9 exceeds 1e6")


if join() == 1:
    weight = torch.ones(4, requires_grad=True)
    weight.register_hook(clip)
    (weight * 2).sum().backward()
steps()
