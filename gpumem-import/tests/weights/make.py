#!/usr/bin/env python3
"""Writes the models of this folder with weights: see README.md. Needs torch, onnx and safetensors."""

import copy
import sys
from pathlib import Path

import onnx
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "scripts"))
import export  # noqa: E402


class Mix(nn.Module):
    """A linear layer whose weight is stored as `[in, out]`."""

    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inside, outside))
        self.bias = nn.Parameter(torch.randn(outside))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Vision(nn.Module):
    """A convolution with running statistics, and Dropout, whose outputs differ between training and evaluation."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(16, 6)
        self.mix = Mix(6, 3)

    def forward(self, x):
        x = self.drop(torch.relu(self.bn(self.conv(x)))).flatten(1)
        x = torch.relu(self.fc(x))
        return x, self.mix(x)


class Tagger(nn.Module):
    """A recurrent network of two layers in both directions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, batch_first=True)
        self.fc = nn.Linear(4, 7)

    def forward(self, tokens):
        return self.fc(self.gru(self.lstm(self.embed(tokens))[0])[0])


class Parts(nn.Module):
    """A module that the language has, and an operation that it does not have."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        return self.body(x), torch.special.bessel_j0(x)


def main():
    torch.manual_seed(1)
    torch.export.save(torch.export.export(Parts(), (torch.randn(2, 4),)), HERE / "in_parts.pt2")
    for name, model, x in [("vision", Vision(), torch.randn(3, 2, 6, 6)), ("tagger", Tagger(), torch.randint(0, 11, (3, 8)))]:
        with torch.no_grad():
            for tensor in model.state_dict().values():
                if tensor.is_floating_point():
                    tensor.copy_(torch.rand_like(tensor) + 0.5 if tensor.dim() == 1 else torch.randn_like(tensor) * 0.5)
        export.export(model, [x], HERE / name)
        (HERE / f"{name}.safetensors").unlink()
        path = HERE / f"{name}.onnx"
        options = {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        torch.onnx.export(copy.deepcopy(model), (x[:2],), path, **options)
        torch.onnx.export(copy.deepcopy(model).eval(), (x[:1],), HERE / f"{name}.eval.onnx", dynamo=False, opset_version=20)
        document = onnx.load(path)
        # The exporter runs the model once in training, and writes the running statistics that come of it.
        for tensor in document.graph.initializer:
            if "running" in tensor.name:
                tensor.CopyFrom(onnx.numpy_helper.from_array(model.state_dict()[tensor.name].numpy(), tensor.name))
        onnx.save_model(document, path)
        data = {"save_as_external_data": True, "size_threshold": 0, "location": f"{name}.external.data"}
        onnx.save_model(document, HERE / f"{name}.external.onnx", **data)


if __name__ == "__main__":
    main()
