"""Writes `220_inplace_abn.safetensors` and `221_inplace_abn_slope.safetensors` beside it: BatchNorm2d and LeakyReLU in PyTorch 2, computed in
float64 from float32 inputs and rounded to float32. Tensors are named as in `volumes.py`."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn


class Activated(nn.BatchNorm2d):
    def __init__(self, channels, slope, **options):
        super().__init__(channels, **options)
        self.activation = nn.LeakyReLU(slope)

    def forward(self, x):
        return self.activation(super().forward(x))


def case(name, layer, shape):
    torch.manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        # Weights of both signs, none of them small.
        layer.weight.copy_(torch.tensor([1.25, -0.5, 0.75, 1.0])[: len(layer.weight)])
        layer.bias.normal_(std=0.5)
    x = 2 * torch.randn(shape) + 1
    kept = {"input.x": x.clone()}
    kept |= {f"param.{key}": value.detach().clone() for key, value in layer.named_parameters()}
    kept |= {f"buffer.{key}": value.clone() for key, value in layer.named_buffers()}
    layer, x = layer.double(), x.double().requires_grad_()
    y = layer(x)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    kept |= {"output": y.detach(), "grad_output": dy, "grad_input.x": x.grad}
    kept |= {f"grad_param.{key}": value.grad for key, value in layer.named_parameters()}
    kept |= {f"buffer_after.{key}": value for key, value in layer.named_buffers()}
    single = {key: value.float().contiguous() if value.is_floating_point() else value for key, value in kept.items()}
    save_file(single, Path(__file__).parent / f"{name}.safetensors")


case("220_inplace_abn", Activated(3, 0.01), (2, 3, 5, 6))
case("221_inplace_abn_slope", Activated(4, 0.3, eps=0.01, momentum=0.25), (3, 4, 4, 5))
