#!/usr/bin/env python3
"""Writes the files that the tests of gpumem-weights read: small seeded models, saved as their libraries save them.

    python3 -m venv venv && venv/bin/pip install torch torchvision timm transformers safetensors
    venv/bin/python scripts/goldens/weights.py                  # into gpumem-weights/tests/goldens, less than 1 MB
    venv/bin/python scripts/goldens/weights.py --whole DIR      # resnet18, GPT-2 and a ViT, 800 MiB, for GPUMEM_WEIGHTS_WHOLE=DIR
    venv/bin/python scripts/goldens/weights.py --back DIR       # what the tests saved into DIR loads strictly, same logits

For each model NAME: `NAME.safetensors` or the folder `NAME`, and `NAME.io.safetensors` with `input` and `logits` of PyTorch in f32.
"""

import argparse
import collections
import json
import pathlib

import numpy
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torchvision.models.resnet import BasicBlock
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).resolve().parents[2] / "gpumem-weights" / "tests" / "goldens"
ZOO = pathlib.Path(__file__).resolve().parents[2] / "gpumem-zoo" / "tests" / "names"


def seeded(model, seed, deviation=0.2):
    """Draws every parameter and running statistic anew, so that no two are equal."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("num_batches_tracked"):
                tensor.fill_(7)
            elif name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape, generator=draw) + 0.5)
            else:
                tensor.copy_(torch.randn(tensor.shape, generator=draw) * deviation)
    return model.eval()


class SmallResNet(nn.Module):
    """torchvision's blocks and names with few channels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        down = nn.Sequential(nn.Conv2d(8, 16, 1, stride=2, bias=False), nn.BatchNorm2d(16))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2, down), BasicBlock(16, 16))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


def resnet():
    return seeded(SmallResNet(), 1)


def gpt2():
    config = GPT2Config(vocab_size=61, n_positions=8, n_embd=24, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    return seeded(GPT2LMHeadModel(config), 2)


def vit():
    return seeded(VisionTransformer(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=2, num_classes=10), 3)


def image(seed, size):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(seed))


def tokens():
    return torch.randint(0, 61, (2, 8), generator=torch.Generator().manual_seed(12))


def logits(model, x):
    with torch.no_grad():
        out = model(x)
    return (out if isinstance(out, torch.Tensor) else out.logits).contiguous()


def io(folder, name, model, x):
    given = x.to(torch.int32) if x.dtype == torch.int64 else x
    save_file({"input": given, "logits": logits(model, x)}, folder / f"{name}.io.safetensors")


def write(folder):
    model = resnet()
    state = model.state_dict()
    save_file(state, folder / "resnet.safetensors")
    io(folder, "resnet", model, image(11, 16))
    for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
        half = {key: value.to(dtype) if value.is_floating_point() else value for key, value in state.items()}
        save_file(half, folder / f"resnet.{name}.safetensors")
    torch.save(state, folder / "resnet.pt")

    # As training scripts save: a dict of dicts, of a model inside DataParallel and torch.compile, beside the optimizer.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.train()(image(11, 16)).sum().backward()
    optimizer.step()
    model = resnet()
    state = collections.OrderedDict(("module._orig_mod." + key, value.to(torch.bfloat16) if value.is_floating_point() else value)
                                    for key, value in model.state_dict().items())
    torch.save({"epoch": 3, "best": 0.5, "args": ["--lr", None, True], "state_dict": state, "optimizer": optimizer.state_dict()},
               folder / "training.pt")

    model = gpt2()
    model.save_pretrained(folder / "gpt2", max_shard_size="24KB")
    for other in ("config.json", "generation_config.json"):
        (folder / "gpt2" / other).unlink(missing_ok=True)
    io(folder, "gpt2", model, tokens())
    torch.save(model.state_dict(), folder / "gpt2.pt")

    model = vit()
    save_file(model.state_dict(), folder / "vit.safetensors")
    io(folder, "vit", model, image(13, 16))

    # Views of one storage: transposed, a column, every second row, expanded, tied; and a Parameter, of which hooks are kept.
    base = torch.arange(48, dtype=torch.float32).reshape(6, 8) / 7
    views = {"t": base.t(), "column": base[:, 3], "rows": base[1::2], "expanded": base[0, :1].expand(4), "tied": base, "again": base,
             "half": base.half()[2:4, 1:3], "bf16": base.bfloat16().t(), "double": base.double(), "scalar": torch.tensor(2.5),
             "integer": torch.tensor(7), "empty": torch.zeros(0, 3)}
    torch.save({"model": {**views, "parameter": nn.Parameter(base + 1)}}, folder / "views.pt")
    whole = {key: value.float().contiguous().clone() for key, value in views.items() if key != "integer"}
    save_file({**whole, "integer": torch.tensor(7), "parameter": base + 1}, folder / "views.safetensors")

    torch.save({"state_dict": {"w": base}, "mean": numpy.zeros(2), "when": pathlib.PurePosixPath("x")}, folder / "refused.pt")
    torch.save({"w": base}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(nn.Linear(2, 3), folder / "module.pt")
    write_names()
    print(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), "bytes")


def vit_small():
    return timm.create_model("vit_small_patch16_224")


def gpt2_small():
    return GPT2LMHeadModel(GPT2Config())


def write_names():
    """Names and shapes alone, for the zoo's networks."""
    for name, make in {"resnet18": torchvision.models.resnet18, "vit_small_patch16_224": vit_small, "gpt2": gpt2_small}.items():
        with torch.device("meta"):
            state = make().state_dict()
        lines = [f"{json.dumps(name)}: {list(tensor.shape)}" for name, tensor in state.items()]
        (ZOO / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def whole(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = torch.Generator().manual_seed(14)
    photo = torch.randn(1, 3, 224, 224, generator=draw)
    words = torch.randint(0, 50257, (1, 1024), generator=draw)
    for name, make, x in (("resnet18", torchvision.models.resnet18, photo), ("vit_small_patch16_224", vit_small, photo),
                          ("gpt2", gpt2_small, words)):
        model = seeded(make(), 4, 0.03)
        # Tied tensors once, as `save_pretrained` has them.
        state = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
        save_file(state, folder / f"{name}.safetensors")
        io(folder, name, model, x)


def back(folder):
    cases = {"resnet": (SmallResNet, image(11, 16)), "gpt2": (gpt2, tokens()), "vit": (vit, image(13, 16)),
             "resnet18": (torchvision.models.resnet18, None), "vit_small_patch16_224": (vit_small, None)}
    if (folder / "resnet18.saved.safetensors").exists():
        cases["gpt2"] = (gpt2_small, None)
    for path in sorted(folder.glob("*.saved.safetensors")):
        name = path.name.split(".")[0]
        make, x = cases[name]
        model = make()
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        print(name, model.load_state_dict(load_file(path), strict=True), end=" ")
        source = HERE if x is not None else folder
        expected = load_file(source / f"{name}.io.safetensors")
        given = x if x is not None else expected["input"]
        found = logits(model.eval(), given.long() if given.dtype == torch.int32 else given)
        print("largest difference", (found - expected["logits"]).abs().max().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", type=pathlib.Path)
    parser.add_argument("--back", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.whole:
        whole(options.whole)
    if options.back:
        back(options.back)
    if not (options.whole or options.back):
        HERE.mkdir(parents=True, exist_ok=True)
        ZOO.mkdir(parents=True, exist_ok=True)
        write(HERE)


main()
