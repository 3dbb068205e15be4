"""What `main.rs` expects: five steps of distillation in float64, with a teacher in eval mode.

    python3 golden.py > expected.txt
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)
BATCH, TEMPERATURE = 6, 4.0


def spread(shape, salt):
    """Numbers around 0 that look random, as f32 has them."""
    index = torch.arange(torch.Size(shape).numel())
    numbers = (((index * 7919 + salt * 104_729) % 1009) / 1009.0 - 0.5).to(torch.float32)
    return numbers.double().reshape(shape)


teacher = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 5)).eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 5))
names = {"teacher": ("fc1", "norm", None, None, "fc2"), "student": ("fc1", None, "fc2")}
values = {}
for part, module in (("teacher", teacher), ("student", student)):
    for name, layer in zip(names[part], module):
        for key, value in (layer.state_dict() if name else {}).items():
            if key == "num_batches_tracked":
                continue
            positive = key == "running_var" or name == "norm" and key == "weight"
            value.copy_(spread(value.shape, len(values) + 1) + positive)
            values[f"{part}.{name}.{key}"] = value

optimizer = torch.optim.AdamW(student.parameters(), lr=0.01)
labels = torch.arange(BATCH) * 2 % 5
losses = []
for step in range(5):
    x = spread((BATCH, 4), 50 + step)
    logits = student(x)
    kl = F.kl_div(
        F.log_softmax(logits / TEMPERATURE, -1), F.log_softmax(teacher(x) / TEMPERATURE, -1), reduction="batchmean", log_target=True
    )
    loss = 0.5 * F.cross_entropy(logits, labels) + 0.5 * TEMPERATURE**2 * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for name, value in {"losses": torch.tensor(losses), **values}.items():
    print(name, *(f"{number:.9g}" for number in value.flatten().tolist()))
