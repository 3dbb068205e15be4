"""Prints the figures of `peaks.rs`: the most bytes of storages that are alive after any operation of a training step, in PyTorch 2 with
torchvision, on fake tensors.

    python peaks.py resnet50 resnet152 densenet121 vit_b_16 convnext_tiny swin_t
"""

import gc
import sys
import weakref

import torch
import torch.nn.functional as F
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

BATCH = 32

# It reads numbers, of which fake tensors have none.
torch.nn.init.trunc_normal_ = lambda tensor, *_, **__: tensor


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


def peak(build):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(weights=None).train()
        image, label = torch.randn(BATCH, 3, 224, 224), torch.zeros(BATCH, dtype=torch.long)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        # The momentum is there from the second step on.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        live = Live()
        momentum = [value for state in optimizer.state.values() for value in state.values()]
        for value in [*model.parameters(), *model.buffers(), image, label, *momentum]:
            live.add(value)
        with live:
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
        return live.peak


for name in sys.argv[1:]:
    print(name, peak(getattr(torchvision.models, name)), flush=True)
