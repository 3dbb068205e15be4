"""Layers inside of `lengths` and `segments` in PyTorch, in float64 from float32 inputs: python lengths.py

A case has `input.*`, `n` of each sample or the segment of each step as `steps`, parameters, the output and all gradients of
`sum(output * grad_output)`. What is not to be read is 0 here: the test poisons it.
"""

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(11)
tensors = {}
BATCH, STEPS = 4, 5


def leaf(*shape):
    return torch.randn(*shape).double().requires_grad_()


def save(name, steps, inputs, parameters, output):
    slope = torch.randn(output.shape).double()
    (output * slope).sum().backward()
    tensors[f"{name}.steps"] = torch.tensor(steps)
    tensors[f"{name}.output"] = output.detach().float()
    tensors[f"{name}.grad_output"] = slope.float()
    for kind, values in (("input", inputs), ("param", parameters)):
        for key, value in values.items():
            tensors[f"{name}.{kind}.{key}"] = value.detach().float().contiguous()
            tensors[f"{name}.grad_{kind}.{key}"] = value.grad.float().contiguous()


def leaves(all):
    """As float32 has them."""
    return {key: value.detach().float().double().requires_grad_() for key, value in all.items()}


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(q, k, v, count, kv_heads, visible, bias=None, scale=None):
    """SDPA; `visible` [B, 1, T, M]. Rows that see nothing are 0."""
    q, k, v = heads(q, count), heads(k, kv_heads), heads(v, kv_heads)
    mask = visible if bias is None else bias.masked_fill(~visible, float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=kv_heads != count)
    return y.transpose(1, 2).flatten(2)


def shown(lengths, queries, keys, causal=False, window=None):
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen &= j <= i
    if window:
        seen &= (i - j).abs() < window
    return seen & (torch.arange(keys) < torch.tensor(lengths)[:, None])[:, None, None, :]


def cross(name, lengths, queries, kv_heads=2, bias=None, scale=None, **hides):
    """`Attention(q, m, m)` of 2 heads."""
    all = leaves({"q": torch.randn(BATCH, queries, 6), "m": torch.randn(BATCH, STEPS, 3 * kv_heads)})
    if bias is not None:
        all["bias"] = torch.randn(BATCH, *bias).float().double().requires_grad_()
    added = all["bias"][:, None] if bias is not None else None
    if added is not None and added.shape[-2] == 1:
        added = added.expand(-1, -1, queries, -1)
    with torch.no_grad():
        for sample, length in enumerate(lengths):
            all["m"][sample, length:] = 0
    y = attend(all["q"], all["m"], all["m"], 2, kv_heads, shown(lengths, queries, STEPS, **hides), added, scale)
    save(name, lengths, all, {}, y)


def own(name, visible, steps, positions=None):
    """`MultiHeadAttention(2)`, after a table of positions is added, if there is one."""
    all = leaves({"x": torch.randn(BATCH, STEPS, 6)})
    parameters = leaves(
        {
            "in_proj_weight": torch.randn(18, 6) / 2,
            "in_proj_bias": torch.randn(18) / 2,
            "out_proj.weight": torch.randn(6, 6) / 2,
            "out_proj.bias": torch.randn(6) / 2,
        }
    )
    x = all["x"]
    if positions is not None:
        parameters["table"] = torch.randn(STEPS, 6).float().double().requires_grad_()
        x = x + parameters["table"][positions]
    q, k, v = F.linear(x, parameters["in_proj_weight"], parameters["in_proj_bias"]).chunk(3, -1)
    y = F.linear(attend(q, k, v, 2, 2, visible), parameters["out_proj.weight"], parameters["out_proj.bias"])
    save(name, steps, all, parameters, y)


def recurrent(name, kind, lengths, **options):
    """Samples without steps are left out, and are 0."""
    full = [sample for sample, length in enumerate(lengths) if length > 0]
    x = leaves({"x": torch.randn(BATCH, STEPS, 3)})["x"]
    layer = kind(3, 2, batch_first=True, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.float().double())
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x[full], torch.tensor([lengths[sample] for sample in full]), batch_first=True, enforce_sorted=False
    )
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=STEPS)
    all = torch.zeros(BATCH, STEPS, y.shape[-1]).double()
    all[full] = y
    save(name, lengths, {"x": x}, dict(layer.named_parameters()), all)


LENGTHS = [5, 2, 0, 3]
cross("cross", LENGTHS, 5)
cross("cross_of_more_queries", [1, 4, 5, 0], 7, scale=0.3)
cross("cross_causal", LENGTHS, 5, causal=True)
cross("cross_window", LENGTHS, 5, window=2)
cross("cross_causal_window", [5, 1, 0, 3], 5, causal=True, window=2)
cross("cross_shared", LENGTHS, 5, kv_heads=1)
cross("cross_matrix", LENGTHS, 5, bias=(5, 5))
cross("cross_row", LENGTHS, 5, bias=(1, 5))
own("own", shown(LENGTHS, STEPS, STEPS), LENGTHS)
own("own_causal", shown(LENGTHS, STEPS, STEPS, causal=True), LENGTHS)

for reduction in ("sum", "mean", "max"):
    x = leaves({"x": torch.randn(BATCH, STEPS, 3)})["x"]
    rows = []
    for sample, length in enumerate(LENGTHS):
        first = x[sample, :length]
        value = getattr(first, {"max": "amax"}.get(reduction, reduction))(0) if length else torch.zeros(3).double()
        rows.append(value)
    save(reduction, LENGTHS, {"x": x}, {}, torch.stack(rows))

recurrent("lstm", torch.nn.LSTM, [5, 2, 0, 3])
recurrent("lstm_both", torch.nn.LSTM, [3, 1, 5, 0], bidirectional=True, num_layers=2)
recurrent("lstm_projected", torch.nn.LSTM, [3, 1, 5, 0], bidirectional=True, proj_size=1)
recurrent("gru_both", torch.nn.GRU, [5, 4, 1, 2], bidirectional=True)
recurrent("rnn_both", torch.nn.RNN, [2, 5, 0, 5], bidirectional=True, bias=False)

MASK = torch.arange(STEPS) < torch.tensor(LENGTHS)[:, None]
WEIGHTS = torch.tensor([0.5, 2.0, 1.25]).double()
for name, loss, targets in (
    ("mse", lambda x, y: F.mse_loss(x, y), torch.randn),
    ("huber_sum", lambda x, y: F.huber_loss(x, y, reduction="sum", delta=0.5), torch.randn),
    ("bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=WEIGHTS), torch.rand),
    ("kl_batch", lambda x, y: F.kl_div(x, y, reduction="sum") / BATCH, torch.rand),
    ("loss_mean", lambda x, y: x.mean() + 0.0 * y.sum(), torch.randn),
):
    x = leaves({"x": torch.randn(BATCH, STEPS, 3)})["x"]
    y = targets(BATCH, STEPS, 3).float()
    value = loss(x[MASK], y.double()[MASK])
    value.backward()
    tensors[f"{name}.steps"] = torch.tensor(LENGTHS)
    tensors[f"{name}.input.x"], tensors[f"{name}.grad_input.x"] = x.detach().float(), x.grad.float()
    tensors[f"{name}.target"], tensors[f"{name}.output"] = y, value.detach().float().reshape(1)

# Numbers of segments need not follow each other.
SEGMENTS = torch.tensor([[0, 0, 1, 1, 1], [3, 3, 3, 3, 3], [0, 1, 2, 3, 9], [7, 7, 7, 8, 8]])
same = (SEGMENTS[:, :, None] == SEGMENTS[:, None, :])[:, None]
earlier = torch.ones(STEPS, STEPS, dtype=torch.bool).tril()
start = (SEGMENTS[:, None, :] < SEGMENTS[:, :, None]).sum(-1)
positions = torch.arange(STEPS) - start
own("segments", same, SEGMENTS.tolist(), positions)
own("segments_causal", same & earlier, SEGMENTS.tolist(), positions)

# Each document of a row alone is what the row has of it.
found, parameters = tensors["segments_causal.output"], {key: tensors[f"segments_causal.param.{key}"].double() for key in
    ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias", "table")}
for row in range(BATCH):
    for number in SEGMENTS[row].unique():
        document = tensors["segments_causal.input.x"][row][SEGMENTS[row] == number].double()[None]
        document = document + parameters["table"][: document.shape[1]]
        q, k, v = F.linear(document, parameters["in_proj_weight"], parameters["in_proj_bias"]).chunk(3, -1)
        y = attend(q, k, v, 2, 2, torch.ones(document.shape[1], document.shape[1], dtype=torch.bool).tril())
        y = F.linear(y, parameters["out_proj.weight"], parameters["out_proj.bias"])[0].float()
        assert torch.allclose(found[row][SEGMENTS[row] == number], y, atol=1e-6)

save_file(tensors, "lengths.safetensors")
