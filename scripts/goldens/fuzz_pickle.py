#!/usr/bin/env python3
"""Writes the state dicts that the fuzz target `pickle` begins with: `python3 scripts/goldens/fuzz_pickle.py`, with torch."""

from pathlib import Path

import torch

SEEDS = Path(__file__).resolve().parents[2] / "fuzz" / "seeds" / "pickle"


def main():
    torch.manual_seed(1)
    SEEDS.mkdir(parents=True, exist_ok=True)
    model = torch.nn.Sequential()
    model.add_module("a", torch.nn.Linear(4, 3))
    model.add_module("b", torch.nn.Linear(3, 2))
    state = model.state_dict()
    torch.save(state, SEEDS / "state")
    torch.save({"epoch": 3, "loss": 0.25, "model": state, "optimizer": {"lr": [0.1], "name": "sgd"}}, SEEDS / "training")
    weight = torch.arange(12.0).reshape(4, 3)
    views = {"a.weight": weight.t(), "a.bias": weight[1], "b.weight": weight[:2], "b.bias": weight[0, :1].expand(2).half()}
    torch.save({"module." + name: value for name, value in views.items()}, SEEDS / "views")


if __name__ == "__main__":
    main()
