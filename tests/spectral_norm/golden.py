"""What `main.rs` expects: three training steps in float64 with `torch.nn.utils.parametrizations.spectral_norm`, and a forward pass after them.

    python3 golden.py > expected.txt

Each line is a network, a name and numbers.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.set_default_dtype(torch.float64)
BATCH, LR = 4, 0.5


def spread(shape, salt):
    """Numbers around 0 that look random, as f32 has them."""
    index = torch.arange(torch.Size(shape).numel())
    numbers = (((index * 7919 + salt * 104_729) % 1009) / 1009.0 - 0.5).to(torch.float32)
    return numbers.double().reshape(shape)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(2, 3, 3, padding=1))
        self.up = spectral_norm(nn.ConvTranspose2d(3, 2, 2, stride=2))
        self.fc = spectral_norm(nn.Linear(24, 4, bias=False))

    def forward(self, x):
        x = torch.tanh(self.conv(x))
        x = F.avg_pool2d(torch.tanh(self.up(x)), 2)
        return self.fc(x.flatten(1))


class Twice(nn.Module):
    """A layer with a use in eval mode and one in training mode."""

    def __init__(self):
        super().__init__()
        self.w = spectral_norm(nn.Linear(4, 4))

    def forward(self, x):
        self.w.eval()
        x = torch.tanh(self.w(x))
        self.w.train(self.training)
        return self.w(x)


for name, module, shape in (("Critic", Critic(), (2, 4, 3)), ("Twice", Twice(), (4,))):
    state = {key: value for key, value in module.state_dict().items()}
    with torch.no_grad():
        for salt, (key, value) in enumerate(sorted(state.items())):
            value.copy_(spread(value.shape, salt + 1))
            if key.endswith(("_u", "_v")):
                value.copy_(F.normalize(value, dim=0).float())
    parameters = list(module.parameters())
    losses = []
    module.train()
    for step in range(3):
        loss = F.mse_loss(module(spread((BATCH, *shape), 50 + step)), spread((BATCH, 4), 60 + step))
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for value, gradient in zip(parameters, gradients):
                value -= LR * gradient
    module.eval()
    with torch.no_grad():
        last = module(spread((BATCH, *shape), 70))
    for key, values in {"losses": torch.tensor(losses), "last": last, **dict(sorted(module.state_dict().items()))}.items():
        print(name, key, *(f"{value:.9g}" for value in values.flatten().tolist()))
