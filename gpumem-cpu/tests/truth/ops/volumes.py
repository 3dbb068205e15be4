"""Writes the `volumes_*.safetensors` beside it: layers of volumes in PyTorch 2.15, computed in float64 from float32 inputs and rounded
to float32. `input.x`, `param.*`, `buffer.*` (before), `grad_output`, `output`, `grad_input.x`, `grad_param.*`, `buffer_after.*`."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn


def case(name, layer, shape, ties=False):
    torch.manual_seed(sum(map(ord, name)))
    layer = layer.float()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(shape)
    # Halves, so that many windows have several maxima.
    x = (2 * x).round() / 2 if ties else x
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
    save_file(single, Path(__file__).parent / f"volumes_{name}.safetensors")


case("conv", nn.Conv3d(2, 3, 3, padding=1), (2, 2, 4, 5, 6))
case(
    "conv_groups",
    nn.Conv3d(4, 6, (2, 3, 1), stride=(1, 2, 3), padding=(1, 2, 0), dilation=(2, 1, 1), groups=2),
    (2, 4, 5, 6, 7),
)
case("conv_depthwise", nn.Conv3d(3, 3, (3, 2, 2), padding="same", groups=3, bias=False), (2, 3, 4, 5, 4))
case(
    "conv_transpose",
    nn.ConvTranspose3d(4, 6, (3, 2, 2), stride=(2, 1, 3), padding=(1, 0, 1), output_padding=(1, 0, 2), groups=2),
    (2, 4, 3, 4, 3),
)
case("max_pool", nn.MaxPool3d(3, 2, padding=1), (2, 3, 6, 7, 8), ties=True)
case("max_pool_dilation", nn.MaxPool3d((2, 3, 2), (1, 2, 1), (1, 1, 0), (2, 1, 2), ceil_mode=True), (2, 2, 5, 6, 7), ties=True)
case("avg_pool", nn.AvgPool3d((3, 2, 3), 2, padding=(1, 1, 0), ceil_mode=True), (2, 3, 6, 7, 8))
case("avg_pool_inside", nn.AvgPool3d((3, 2, 3), 2, padding=1, ceil_mode=True, count_include_pad=False), (2, 3, 6, 7, 8))
case("adaptive_avg_pool", nn.AdaptiveAvgPool3d((3, 2, 5)), (2, 3, 7, 5, 8))
case("adaptive_max_pool", nn.AdaptiveMaxPool3d((3, 2, 5)), (2, 3, 7, 5, 8), ties=True)
case("batch_norm", nn.BatchNorm3d(3), (2, 3, 4, 5, 3))
case("instance_norm", nn.InstanceNorm3d(3, affine=True), (2, 3, 4, 5, 3))
