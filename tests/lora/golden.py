"""Writes expected.txt: losses and parameters of `Tuned` in main.rs, with PyTorch in float64.

A map with an adapter is PEFT's `LoraLayer.forward`: `result = base_layer(x) + lora_B(lora_A(x)) * scaling`, `scaling = lora_alpha / r`.
"""

import math
import torch

torch.set_default_dtype(torch.float64)
RANK, ALPHA = 2, 6.0


def spread(count, salt):
    return [((index * 7919 + salt * 104729) % 1009) / 1009 - 0.5 for index in range(count)]


def numbers(shape, salt):
    values = torch.tensor(spread(math.prod(shape), salt), dtype=torch.float32)
    return values.double().reshape(shape)


SHAPES = {
    "embed.weight": (7, 8),
    "inner.weight": (8, 8),
    "inner.bias": (8,),
    "attn.in_proj_weight": (24, 8),
    "attn.in_proj_bias": (24,),
    "attn.out_proj.weight": (8, 8),
    "attn.out_proj.bias": (8,),
    "out.weight": (8, 6),
    "inner.lora_A.weight": (2, 8),
    "inner.lora_B.weight": (8, 2),
    "attn.lora_A.weight": (2, 8),
    "attn.lora_B.weight": (24, 2),
    "attn.out_proj.lora_A.weight": (2, 8),
    "attn.out_proj.lora_B.weight": (8, 2),
    "out.lora_A.weight": (2, 8),
    "out.lora_B.weight": (6, 2),
    "head.weight": (5, 6),
    "head.bias": (5,),
}
P = {name: numbers(shape, salt) for salt, (name, shape) in enumerate(SHAPES.items())}
TRAINED = [name for name in P if "lora_" in name or name.startswith("head")]
for name in TRAINED:
    P[name].requires_grad_()


def adapted(x, weight, bias, stem):
    y = x @ weight.T + (0.0 if bias is None else bias)
    return y + (x @ P[stem + "lora_A.weight"].T) @ P[stem + "lora_B.weight"].T * (ALPHA / RANK)


def forward(tokens):
    x = P["embed.weight"][tokens]
    x = torch.tanh(adapted(x, P["inner.weight"], P["inner.bias"], "inner."))
    qkv = adapted(x, P["attn.in_proj_weight"], P["attn.in_proj_bias"], "attn.")
    heads = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in qkv.chunk(3, -1)]
    y = torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    x = x + adapted(y, P["attn.out_proj.weight"], P["attn.out_proj.bias"], "attn.out_proj.")
    x = torch.nn.functional.gelu(adapted(x, P["out.weight"].T, None, "out."))
    return x @ P["head.weight"].T + P["head.bias"]


tokens = torch.tensor([index * 5 % 7 for index in range(3 * 4)]).reshape(3, 4)
target = torch.tensor([index * 3 % 5 for index in range(3 * 4)])
optimizer = torch.optim.AdamW([P[name] for name in TRAINED], lr=0.01, weight_decay=0.1)
with open("expected.txt", "w") as file:
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(tokens).flatten(0, 1), target)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    tensors = {"losses": losses, "output": forward(tokens).flatten().tolist()}
    tensors |= {name: P[name].flatten().tolist() for name in TRAINED}
    for name, values in tensors.items():
        file.write(f"{name} {' '.join(f'{value:.9g}' for value in values)}\n")
