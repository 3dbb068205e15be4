"""Makes `truth.json`: what PyTorch 2.15, torchvision, timm and transformers compute where gpumem's layers are said to equal them.

Parameters, running statistics, inputs and targets are drawn from a seed. Of each case there is the output of evaluation; of a case that is
trained also the loss, the mean squared difference from a target, and what a step of SGD with a rate of 0.5 leaves of everything. All of it
is computed in float64 from float32.
"""
import json
from pathlib import Path

import torch
from timm.models._efficientnet_blocks import DepthwiseSeparableConv
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.ops import SqueezeExcitation
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP


class Named(nn.Module):
    """Modules one after the other, each with the name of gpumem's layer."""

    def __init__(self, **modules):
        super().__init__()
        self.order = list(modules)
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return x


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


class Recurrent(nn.Module):
    """The outputs of all steps."""

    def __init__(self, **module):
        super().__init__()
        (self.name, module), = module.items()
        self.add_module(self.name, module)

    def forward(self, x):
        return getattr(self, self.name)(x)[0]


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.multi_head_attention = nn.MultiheadAttention(batch_first=True, **options)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.multi_head_attention(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


class Biased(nn.Module):
    """Attention whose scores have linear biases."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(width, 3 * width)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.linear(x).reshape(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        biases = build_alibi_tensor(torch.ones(batch, steps), self.heads, x.dtype).reshape(batch, self.heads, 1, steps)
        hidden = torch.full((steps, steps), float("-inf"), dtype=x.dtype).triu(1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, biases + hidden)
        return y.transpose(1, 2).reshape(batch, steps, width)


class Flat(nn.Module):
    """torchvision's inverted residual, its layers with timm's names."""

    def __init__(self, *arguments):
        super().__init__()
        module = InvertedResidual(*arguments)
        layers = [layer for part in module.conv for layer in (part if isinstance(part, nn.Sequential) else [part])]
        self.run = [module]
        layers = [layer for layer in layers if not isinstance(layer, nn.ReLU6)]
        for name, layer in zip(["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"][-len(layers):], layers):
            self.add_module(name, layer)

    def train(self, mode=True):
        self.run[0].train(mode)
        return self

    def forward(self, x):
        return self.run[0](x)


def encoder(**options):
    return Named(transformer_block=nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **options))


torch.manual_seed(20)
llama = LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=2)
hard = SqueezeExcitation(6, 2, activation=nn.SiLU, scale_activation=nn.Hardsigmoid)
separable = DepthwiseSeparableConv(4, 6, 5, stride=2, pw_act=True, noskip=True)
cases = {
    "squeeze": (Named(squeeze_excite=SqueezeExcitation(6, 2)), (6, 4, 5)),
    "squeeze_hard": (Named(squeeze_excite=hard), (6, 4, 5)),
    "encoder": (encoder(dropout=0.0), (5, 8)),
    "encoder_first": (encoder(dropout=0.0, activation="gelu", norm_first=True), (5, 8)),
    "encoder_defaults": (encoder(), (5, 8)),
    "gated": (Named(swi_glu=LlamaMLP(llama)), (4, 6)),
    "residual": (Named(inverted_residual=Flat(4, 4, 1, 3)), (4, 5, 5)),
    "narrow": (Named(inverted_residual=Flat(4, 3, 2, 1)), (4, 5, 5)),
    "separable": (Named(depthwise_separable=separable), (4, 5, 7)),
    "conv1d": (Named(conv1d=nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2)), (4, 11)),
    "conv_transpose1d": (Named(conv_transpose1d=nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1)), (4, 6)),
    "layer_norm": (Named(layer_norm=nn.LayerNorm((4, 6))), (3, 4, 6)),
    "adaptive_max": (Named(conv2d=nn.Conv2d(3, 2, 1), pool=nn.AdaptiveMaxPool2d((3, 4))), (3, 8, 9)),
    "max_pool1d": (Named(conv1d=nn.Conv1d(3, 2, 1), pool=nn.MaxPool1d(3, stride=2, padding=1)), (3, 8)),
    "upsample_size": (Named(conv2d=nn.Conv2d(3, 2, 1), up=nn.Upsample(size=(7, 9))), (3, 4, 5)),
    "upsample_bilinear": (Named(conv2d=nn.Conv2d(3, 2, 1), up=nn.Upsample(scale_factor=2, mode="bilinear")), (3, 4, 5)),
    "group_norm": (Named(conv2d=nn.Conv2d(3, 6, 1), group_norm=nn.GroupNorm(3, 6)), (3, 4, 5)),
    "instance_norm": (Named(conv2d=nn.Conv2d(3, 3, 1), norm=nn.InstanceNorm2d(3)), (3, 4, 5)),
    "batch_norm1d": (Named(batch_norm1d=nn.BatchNorm1d(4)), (4,)),
    "rms_norm": (Named(linear=nn.Linear(6, 4), rms_norm=nn.RMSNorm(4, eps=1e-3, elementwise_affine=False)), (3, 6)),
    "prelu": (Named(prelu=nn.PReLU(3)), (3, 4, 5)),
    "embedding": (Named(embedding=nn.Embedding(8, 4, padding_idx=2)), (6,)),
    "causal": (Attention(embed_dim=8, num_heads=2, bias=False), (5, 8)),
    "lstm": (Recurrent(lstm=nn.LSTM(4, 5, num_layers=2, batch_first=True)), (6, 4)),
    "gru": (Recurrent(gru=nn.GRU(4, 5, bidirectional=True, batch_first=True)), (6, 4)),
    "rnn": (Recurrent(rnn=nn.RNN(4, 5, nonlinearity="relu", batch_first=True)), (6, 4)),
}
# What is drawn for a further module leaves the numbers of the others as they are.
with torch.random.fork_rng(devices=[]):
    cases["projected"] = (
        Recurrent(lstm=nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3, batch_first=True)),
        (6, 4),
    )
    conv3d = lambda **after: Named(conv3d=nn.Conv3d(2, 3, 1), **after)
    cases |= {
        "upsample_volume": (conv3d(up=nn.Upsample(scale_factor=2)), (2, 2, 3, 2)),
        "upsample_trilinear": (conv3d(up=nn.Upsample(size=(5, 3, 7), mode="trilinear")), (2, 3, 4, 5)),
        "upsample_corners": (conv3d(up=nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True)), (2, 2, 3, 2)),
        "upsample_depth_stays": (conv3d(up=nn.Upsample(scale_factor=(1, 1.5, 2), mode="trilinear")), (2, 2, 3, 2)),
        "pad_volume": (conv3d(pad=nn.ConstantPad3d((1, -1, 0, 2, 2, 0), 0.5)), (2, 2, 3, 4)),
        "pad_reflect": (conv3d(pad=nn.ReflectionPad3d((2, 1, 1, 0, 1, 2))), (2, 3, 3, 4)),
        "pad_replicate": (conv3d(pad=nn.ReplicationPad3d(1)), (2, 2, 3, 2)),
        "alibi": (Biased(12, 6), (5, 12)),
        "hardtanh": (Named(linear=nn.Linear(6, 4), f=nn.Hardtanh(-0.5, 0.8)), (3, 6)),
        "shrunk": (Named(linear=nn.Linear(6, 4), f=nn.Softshrink(0.3), g=nn.Hardshrink(0.2), h=nn.Tanhshrink()), (3, 6)),
        "waves": (Named(linear=nn.Linear(6, 4), f=Applied(torch.sin), g=Applied(torch.cos)), (3, 6)),
        "pad_circular": (conv3d(pad=nn.CircularPad3d((0, 0, 0, 0, 2, 1))), (2, 3, 3, 2)),
    }
numbers = {}


def put(name, tensor):
    numbers[name] = [float(f"{number:.9g}") for number in tensor.detach().flatten().tolist()]


def of_floats(module):
    return {key: value for key, value in module.state_dict().items() if value.is_floating_point()}


for name, (module, shape) in cases.items():
    for key, value in of_floats(module).items():
        value.copy_(torch.rand(value.shape) + 0.5 if "var" in key else torch.randn(value.shape) * 0.4)
        put(f"{name} before {key}", value)
    x = torch.tensor([[4, 2, 0, 4, 7, 2], [1, 2, 3, 3, 3, 6]]) if name == "embedding" else torch.randn(2, *shape)
    put(f"{name} input", x)
    module, x = module.double(), x if name == "embedding" else x.double()
    for inner in [module] if not isinstance(module, Named) else module.children():
        if isinstance(inner, Flat):
            inner.run[0].double()
    with torch.no_grad():
        y = module.eval()(x)
    put(f"{name} output", y)
    if name == "encoder_defaults":
        continue
    target = torch.randn(y.shape)
    put(f"{name} target", target)
    loss = nn.functional.mse_loss(module.train()(x), target.double())
    put(f"{name} loss", loss)
    loss.backward()
    torch.optim.SGD(module.parameters(), lr=0.5).step()
    for key, value in of_floats(module).items():
        put(f"{name} after {key}", value)
text = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in numbers.items())
Path(__file__).with_name("truth.json").write_text("{\n" + text + "\n}\n")
