"""Writes `indices.safetensors` beside it: what is looked up by indices, made of tokens or of numbers. PyTorch 2 in float64, from float32 inputs,
rounded to float32. Tensors of a case begin with its name; inputs called `idx` are tokens."""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

kept = {}


def case(name, function, **inputs):
    torch.manual_seed(sum(map(ord, name)))
    given = {}
    for key, shape in inputs.items():
        # The limit of tokens is written before their shape.
        if key.startswith("idx"):
            given[key] = torch.randint(shape[0], shape[1])
        else:
            given[key] = torch.randn(shape)
    used = {key: value if key.startswith("idx") else value.double().requires_grad_() for key, value in given.items()}
    y = function(**used)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    for key, value in given.items():
        kept[f"{name}.input.{key}"] = value
        if not key.startswith("idx"):
            kept[f"{name}.grad_input.{key}"] = used[key].grad.float().contiguous()
    kept[f"{name}.output"] = y.detach().float().contiguous()
    kept[f"{name}.grad_output"] = dy


# Rows of a table, which is the same in all samples: the first axis is no batch.
case("tokens_slice", lambda idx, w: F.embedding(idx[:, 1:], w), idx=(7, (4, 5)), w=(7, 3))
case("tokens_select", lambda idx, w: F.embedding(idx.reshape(4, 2, 3)[:, :, 1], w), idx=(7, (4, 6)), w=(7, 3))
case("tokens_transpose", lambda idx, w: F.embedding(idx.reshape(4, 2, 3).transpose(1, 2), w), idx=(7, (4, 6)), w=(7, 3))
case("tokens_expand", lambda idx, w: F.embedding(idx[:, None].expand(-1, 2, -1), w), idx=(7, (4, 3)), w=(7, 3))

save_file(kept, Path(__file__).parent / "indices.safetensors")
