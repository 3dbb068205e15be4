"""Prints the figures of `peaks.rs`: the most bytes of storages that are alive after any operation of a training step, in PyTorch 2 with
torchvision, timm and diffusers for what it lacks, on fake tensors.

    python peaks.py resnet50 resnet152 densenet121 vit_b_16 convnext_tiny swin_t vit_small_patch14_dinov2 cait_xxs24_224 ddpm
"""

import gc
import sys
import weakref

import diffusers
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

BATCH = 32

# They read numbers, of which fake tensors have none.
torch.nn.init.trunc_normal_ = lambda tensor, *_, **__: tensor
timm.layers.weight_init._trunc_normal_ = lambda tensor, *_, **__: tensor
timm.models.vision_transformer.calculate_drop_path_rates = lambda rate, depth, **_: [rate] * depth


class Live(TorchDispatchMode):
    """The bytes of all storages that were seen and are alive."""

    def __init__(self):
        super().__init__()
        self.storages, self.now, self.peak = {}, 0, 0

    def add(self, value):
        if not isinstance(value, torch.Tensor):
            return
        storage = value.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.storages:
            self.storages[key] = size
            self.now += size
            weakref.finalize(storage, self.drop, key)

    def drop(self, key):
        self.now -= self.storages.pop(key, 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in tree_flatten((args, kwargs, out))[0]:
            self.add(value)
        self.peak = max(self.peak, self.now)
        return out


def build(name):
    if name == "ddpm":
        # `google/ddpm-cifar10-32`.
        return diffusers.UNet2DModel(
            sample_size=32,
            block_out_channels=(128, 256, 256, 256),
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=None,
            norm_eps=1e-6,
            downsample_padding=0,
            flip_sin_to_cos=False,
            freq_shift=1,
        )
    if hasattr(torchvision.models, name):
        return getattr(torchvision.models, name)(weights=None)
    return timm.create_model(name, num_classes=1000, img_size=224)


def batch(name):
    if name == "ddpm":
        inputs = [torch.randn(BATCH, 3, 32, 32), torch.zeros(BATCH, dtype=torch.long)]
        return inputs, torch.randn(BATCH, 3, 32, 32), lambda output, target: F.mse_loss(output.sample, target)
    return [torch.randn(BATCH, 3, 224, 224)], torch.zeros(BATCH, dtype=torch.long), F.cross_entropy


def peak(name):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(name).train()
        inputs, target, measure = batch(name)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        # The momentum is there from the second step on.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        live = Live()
        momentum = [value for state in optimizer.state.values() for value in state.values()]
        for value in [*model.parameters(), *model.buffers(), *inputs, target, *momentum]:
            live.add(value)
        with live:
            loss = measure(model(*inputs), target)
            loss.backward()
            optimizer.step()
        return live.peak


for name in sys.argv[1:]:
    print(name, peak(name), flush=True)
