"""Writes `volumes.safetensors` beside it: 20 steps of a small network of volumes in PyTorch 2.15, in float64 from float32 parameters and
data, rounded to float32. Step s uses minibatch s % 4; `loss` is that before the update."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv3d(2, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm3d(6)
        self.conv2 = nn.Conv3d(6, 8, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), groups=2)
        self.conv3 = nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.bn3 = nn.BatchNorm3d(8)
        self.up = nn.ConvTranspose3d(8, 4, 2, stride=2)
        self.fc = nn.Linear(4 * 1 * 2 * 2, 5)

    def forward(self, x):
        x = F.relu(F.max_pool3d(self.bn1(self.conv1(x)), 3, (1, 2, 2), 1))
        x = F.relu(self.bn3(self.conv3(self.conv2(x))))
        x = F.avg_pool3d(torch.tanh(self.up(x)), (2, 1, 1))
        return self.fc(F.adaptive_avg_pool3d(x, (1, 2, 2)).flatten(1))


torch.manual_seed(7)
net = Net().float()
kept = {f"init.{key}": value.detach().clone() for key, value in net.named_parameters()}
kept |= {f"init_buffer.{key}": value.clone() for key, value in net.named_buffers()}
x, y = torch.randn(4, 6, 2, 4, 10, 9), torch.randint(5, (4, 6))
kept |= {"data.x": x.clone(), "data.y": y}
net, x = net.double(), x.double()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
losses = []
for step in range(20):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x[step % 4]), y[step % 4])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
kept["loss"] = torch.tensor(losses, dtype=torch.float64)
kept |= {f"final.{key}": value.detach() for key, value in net.named_parameters()}
kept |= {f"final_buffer.{key}": value for key, value in net.named_buffers()}
single = {key: value.float().contiguous() if value.is_floating_point() else value for key, value in kept.items()}
save_file(single, Path(__file__).parent / "volumes.safetensors")
