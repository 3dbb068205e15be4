"""Moving averages of parameters over ten steps: `python ema.py`. Starts from `mlp.params`, `mlp.X` and `mlp.Y` of 00_sgd, in float64. torch
2.15.0. Averages are those of `torch.optim.swa_utils.AveragedModel`; `warmup` and `every` are written around it."""

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

HERE = pathlib.Path(__file__).parent
START = load_file(HERE / "00_sgd.safetensors")
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
STEPS = 10


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)
        self.double()
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(START[f"mlp.params.{name}"][0])

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def warm(decay):
    def average(averages, parameters, count):
        get_ema_multi_avg_fn(min(decay, (1 + count.item()) / (10 + count.item())))(averages, parameters, count)

    return average


def averaged(make, multi_avg_fn, every=1, clip=None):
    model = Mlp()
    x, y = START["mlp.X"].double(), START["mlp.Y"].double()
    optimizer = make(model)
    average = AveragedModel(model, multi_avg_fn=multi_avg_fn)
    all_averages = {name: [] for name in NAMES}
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if (step + 1) % every == 0:
            average.update_parameters(model)
        for name, value in average.module.named_parameters():
            all_averages[name].append(value.detach().clone())
    evaluated = torch.nn.functional.mse_loss(average(x), y).detach()
    return {name: torch.stack(values) for name, values in all_averages.items()} | {"loss": evaluated}


def groups(model):
    biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
    others = [value for name, value in model.named_parameters() if not name.endswith("bias")]
    return torch.optim.AdamW([{"params": biases, "weight_decay": 0.0, "lr": 0.003}, {"params": others}], lr=0.01)


CASES = {
    "adamw": lambda: averaged(lambda m: torch.optim.AdamW(m.parameters(), lr=0.01), get_ema_multi_avg_fn(0.9)),
    "sgd_warmup": lambda: averaged(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), warm(0.8)),
    "adam_every": lambda: averaged(lambda m: torch.optim.Adam(m.parameters(), lr=0.01), get_ema_multi_avg_fn(0.5), every=3),
    "groups_clip": lambda: averaged(groups, get_ema_multi_avg_fn(0.9), clip=0.5),
    "adafactor": lambda: averaged(lambda m: torch.optim.Adafactor(m.parameters(), lr=0.01), get_ema_multi_avg_fn(0.7)),
}

if __name__ == "__main__":
    tensors = {f"{case}.{name}": value for case, run in CASES.items() for name, value in run().items()}
    save_file({name: value.float().contiguous() for name, value in tensors.items()}, HERE / "ema.safetensors")
    facts = {"torch": torch.__version__, "start": "mlp.params, mlp.X and mlp.Y of 00_sgd", "steps": STEPS, "cases": sorted(CASES)}
    (HERE / "ema.json").write_text(json.dumps(facts) + "\n")
