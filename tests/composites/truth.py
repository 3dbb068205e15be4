"""Makes `truth.json`: what PyTorch 2.15, torchvision and timm compute where gpumem's composites are said to equal them.

Every parameter, running statistic and input is drawn from a seed; the output is that of evaluation, in float64 from float32.
"""
import json
from pathlib import Path

import torch
from timm.models._efficientnet_blocks import DepthwiseSeparableConv
from torch import nn
from torchvision.ops import SqueezeExcitation
from torchvision.models.mobilenetv2 import InvertedResidual as OfMobileNet
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP


def encoder(**options):
    return nn.TransformerEncoderLayer(16, 4, batch_first=True, **options)


def of_torchvision(module):
    """It, and its layers with timm's names."""
    flat = nn.Module()
    layers = [layer for part in module.conv for layer in (part if isinstance(part, nn.Sequential) else [part])]
    layers = [layer for layer in layers if not isinstance(layer, nn.ReLU6)]
    names = ["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"][-len(layers):]
    for name, layer in zip(names, layers):
        flat.add_module(name, layer)
    return module, flat


torch.manual_seed(20)
llama = LlamaConfig(hidden_size=12, intermediate_size=20, num_attention_heads=4)
cases = {
    "squeeze": (SqueezeExcitation(12, 3), (12, 5, 7)),
    "squeeze_hard": (SqueezeExcitation(12, 3, activation=nn.SiLU, scale_activation=nn.Hardsigmoid), (12, 5, 7)),
    "encoder": (encoder(dim_feedforward=24), (6, 16)),
    "encoder_first": (encoder(dim_feedforward=24, activation="gelu", norm_first=True), (6, 16)),
    "gated": (LlamaMLP(llama), (5, 12)),
    "residual": (OfMobileNet(8, 8, 1, 6), (8, 6, 6)),
    "narrow": (OfMobileNet(8, 6, 2, 1), (8, 7, 7)),
    "separable": (DepthwiseSeparableConv(8, 10, 5, stride=2, pw_act=True, noskip=True), (8, 7, 9)),
}
tensors = {}
for name, (module, shape) in cases.items():
    module, named = of_torchvision(module) if isinstance(module, OfMobileNet) else (module, module)
    for key, value in named.state_dict().items():
        if value.dtype == torch.float32:
            value.copy_(torch.rand(value.shape) + 0.5 if "var" in key else torch.randn(value.shape) * 0.4)
            tensors[f"{name}.{key}"] = value.clone()
    x = torch.randn(2, *shape)
    with torch.no_grad():
        y = module.eval().double()(x.double()).float()
    tensors |= {f"{name} input": x, f"{name} output": y}
numbers = {name: [float(f"{number:.9g}") for number in tensor.flatten().tolist()] for name, tensor in tensors.items()}
Path(__file__).with_name("truth.json").write_text(json.dumps(numbers, indent=0).replace(",\n", ", ").replace("], ", "],\n") + "\n")
