"""What `main.rs` expects: two steps of plain gradient descent in float64 with values that all samples share.

    python3 golden.py > expected.txt

Each line is a network, a name and numbers: the losses of both steps, then every parameter after them.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
BATCH, LR = 4, 0.5


def spread(shape, salt):
    """Numbers around 0 that look random, as f32 has them."""
    index = torch.arange(torch.Size(shape).numel())
    numbers = (((index * 7919 + salt * 104_729) % 1009) / 1009.0 - 0.5).to(torch.float32)
    return numbers.double().reshape(shape)


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def attend(q, k, v, heads):
    split = lambda t: t.unflatten(-1, (heads, -1)).transpose(-2, -3)
    return F.scaled_dot_product_attention(split(q), split(k), split(v)).transpose(-2, -3).flatten(-2)


def prompt(p, x):
    x = torch.cat((p["prompt"].expand(len(x), -1, -1), x), 1)
    return linear(p, "out", attend(*linear(p, "qkv", x).chunk(3, -1), 2))


def queries(p, x):
    q = p["queries"]
    q = q + linear(p, "own", attend(*linear(p, "qkv", q).chunk(3, -1), 2))
    q = F.layer_norm(q, (4,), p["norm.weight"], p["norm.bias"])
    q = linear(p, "q", q).expand(len(x), -1, -1)
    return linear(p, "out", attend(q, linear(p, "k", x), linear(p, "v", x), 2))


def computed(p, x):
    return F.linear(torch.tanh(x), torch.tanh(p["a"] @ p["b"]))


def adjacency(p, x):
    return torch.softmax(p["graph"], -1) @ linear(p, "map", x)


def squared(p, x):
    return x @ (p["root"] @ p["root"])


def upsampled(p, x):
    grid = F.interpolate(p["grid"][None], size=(6, 5), mode="bilinear")
    return torch.tanh(F.conv2d(x, p["conv.weight"], p["conv.bias"]) + grid)


def side_by_side(p, x):
    both = torch.cat((p["one"], p["other"] * 2), 1)
    return torch.cat((linear(p, "map", x), both.expand(len(x), -1, -1)), 2)


def filtered(p, x):
    x = torch.tanh(F.conv2d(x, torch.tanh(p["filters"]), padding=1))
    return F.conv2d(x, p["groups"], stride=2, groups=2) + p["shift"]


def filtered_signal(p, x):
    return F.conv1d(x, torch.tanh(p["filters"]), padding=2, dilation=2)


def filtered_volume(p, x):
    return F.conv3d(x, torch.tanh(p["filters"]), padding=1)


SEQUENCE = (3, 4)
NETWORKS = {
    "Prompt": (prompt, SEQUENCE, (5, 4), {"prompt": (2, 4), "qkv.weight": (12, 4), "qkv.bias": (12,), "out.weight": (4, 4), "out.bias": (4,)}),
    "Queries": (
        queries, SEQUENCE, (5, 4),
        {"queries": (5, 4), "qkv.weight": (12, 4), "qkv.bias": (12,), "own.weight": (4, 4), "own.bias": (4,), "norm.weight": (4,), "norm.bias": (4,),
         "q.weight": (4, 4), "q.bias": (4,), "k.weight": (4, 4), "k.bias": (4,), "v.weight": (4, 4), "v.bias": (4,), "out.weight": (4, 4), "out.bias": (4,)},
    ),
    "Computed": (computed, SEQUENCE, (3, 6), {"a": (6, 2), "b": (2, 4)}),
    "Adjacency": (adjacency, SEQUENCE, (5, 4), {"graph": (5, 3), "map.weight": (4, 4), "map.bias": (4,)}),
    "Squared": (squared, SEQUENCE, SEQUENCE, {"root": (4, 4)}),
    "Upsampled": (upsampled, (2, 6, 5), (3, 6, 5), {"conv.weight": (3, 2, 1, 1), "conv.bias": (3,), "grid": (3, 2, 3)}),
    "Filtered": (filtered, (2, 6, 5), (6, 3, 2), {"filters": (4, 2, 3, 3), "groups": (6, 2, 2, 2), "shift": (6, 1, 1)}),
    "FilteredSignal": (filtered_signal, (2, 7), (3, 7), {"filters": (3, 2, 3)}),
    "FilteredVolume": (filtered_volume, (2, 3, 4, 5), (3, 3, 4, 5), {"filters": (3, 2, 3, 3, 3)}),
    "SideBySide": (side_by_side, SEQUENCE, (3, 9), {"map.weight": (4, 4), "map.bias": (4,), "one": (3, 2), "other": (3, 3)}),
}

if __name__ == "__main__":
    for name, (forward, inputs, outputs, shapes) in NETWORKS.items():
        p = {key: (spread(shape, salt + 1) + (key == "norm.weight")).requires_grad_() for salt, (key, shape) in enumerate(shapes.items())}
        x, t = spread((BATCH, *inputs), 50), spread((BATCH, *outputs), 51)
        losses = []
        for _ in range(2):
            loss = F.mse_loss(forward(p, x), t)
            losses.append(loss.item())
            gradients = torch.autograd.grad(loss, list(p.values()))
            with torch.no_grad():
                for value, gradient in zip(p.values(), gradients):
                    value -= LR * gradient
        for key, values in {"losses": torch.tensor(losses), **p}.items():
            print(name, key, *(f"{value:.9g}" for value in values.flatten().tolist()))
