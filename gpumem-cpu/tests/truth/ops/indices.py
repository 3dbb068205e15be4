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
        # Nothing flows through places.
        if not key.startswith("idx") and used[key].grad is not None:
            kept[f"{name}.grad_input.{key}"] = used[key].grad.float().contiguous()
    kept[f"{name}.output"] = y.detach().float().contiguous()
    kept[f"{name}.grad_output"] = dy


# Rows of a table, which is the same in all samples: the first axis is no batch.
case("tokens_slice", lambda idx, w: F.embedding(idx[:, 1:], w), idx=(7, (4, 5)), w=(7, 3))
case("tokens_select", lambda idx, w: F.embedding(idx.reshape(4, 2, 3)[:, :, 1], w), idx=(7, (4, 6)), w=(7, 3))
case("tokens_transpose", lambda idx, w: F.embedding(idx.reshape(4, 2, 3).transpose(1, 2), w), idx=(7, (4, 6)), w=(7, 3))
case("tokens_expand", lambda idx, w: F.embedding(idx[:, None].expand(-1, 2, -1), w), idx=(7, (4, 3)), w=(7, 3))


def argmax(x, w):
    return F.embedding(x.argmax(1), w) * x.mean(1)[..., None]


case("argmax", argmax, x=(4, 5, 3), w=(5, 2))
case("argmax_last", lambda x, w: F.embedding(x.argmax(-1), w), x=(4, 3, 6), w=(6, 2))
case("top_k", lambda x: x.topk(3, -1).values, x=(4, 3, 7))
case("top_k_maps", lambda x: x.topk(2, 1, largest=False).values, x=(4, 5, 2, 3))
case("top_k_sort", lambda x: x.sort(-1, descending=True).values, x=(4, 9))
case("top_k_indices", lambda x, y: y.gather(1, x.topk(2, 1).indices), x=(4, 5, 3), y=(4, 5, 3))
case("top_k_rows", lambda x, y: y.take_along_dim(x.topk(3, -1).indices[..., None], 1), x=(4, 6), y=(4, 6, 2))
case("gather_first", lambda x, idx: x.gather(1, idx), x=(4, 5, 3), idx=(5, (4, 7, 3)))
case("gather_middle", lambda x, idx: x.gather(2, idx), x=(4, 2, 5, 3), idx=(5, (4, 2, 4, 3)))
case("gather_last", lambda x, idx: x.gather(-1, idx), x=(4, 3, 5), idx=(5, (4, 3, 8)))
case("gather_part", lambda x, idx: x.gather(2, idx), x=(4, 4, 5, 3), idx=(5, (4, 2, 6, 1)))
case("gather_vector", lambda x, idx: x.gather(1, idx), x=(4, 5), idx=(5, (4, 3)))
case("gather_table", lambda w, idx: w[None].expand(4, -1, -1).gather(1, idx), w=(5, 3), idx=(5, (4, 7, 3)))
# Places of learned values are the same for all samples.
case("top_k_table", lambda w, x: x + w.topk(2, 0).values, w=(5, 3), x=(4, 2, 3))
# A router that chooses two of four experts for each token, as Mixtral's.
case(
    "router",
    lambda x, y: (y.gather(2, x.topk(2, -1).indices) * x.topk(2, -1).values.softmax(-1)).sum(-1),
    x=(4, 3, 4),
    y=(4, 3, 4),
)
case("scatter_first", lambda idx, x, y: x.scatter_add(1, idx, y), idx=(5, (4, 7, 3)), x=(4, 5, 3), y=(4, 7, 3))
case("scatter_middle", lambda idx, x, y: x.scatter_add(2, idx, y), idx=(5, (4, 2, 9, 3)), x=(4, 2, 5, 3), y=(4, 2, 9, 3))
case("scatter_part", lambda idx, x, y: x.scatter_add(1, idx, y[:, :2, :3]), idx=(5, (4, 2, 3)), x=(4, 5, 3), y=(4, 4, 5))
# Messages of edges to nodes, as a graph network adds them up.
case(
    "scatter_messages",
    lambda idx, x: torch.zeros(4, 5, 3, dtype=x.dtype).scatter_add(1, idx[..., None].expand(-1, -1, 3), x.tanh()),
    idx=(5, (4, 8)),
    x=(4, 8, 3),
)
# What is added is the value itself.
case("scatter_itself", lambda idx, x: x.scatter_add(-1, idx, x), idx=(6, (4, 2, 6)), x=(4, 2, 6))
case("scatter_table", lambda idx, w, y: w[None].expand(4, -1, -1).scatter_add(1, idx, y), idx=(5, (4, 7, 3)), w=(5, 3), y=(4, 7, 3))
case("scatter_places", lambda x, y: y.scatter_add(1, x.topk(2, 1).indices, x.topk(2, 1).values), x=(4, 5, 3), y=(4, 5, 3))

save_file(kept, Path(__file__).parent / "indices.safetensors")
