"""Ten steps with clipped gradients or with AMSGrad, and rates of schedules: `python clip.py`. Starts from `mlp.params`, `mlp.X` and `mlp.Y` of 00_sgd, in
float64. torch 2.15.0."""

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch.optim import lr_scheduler as schedulers

HERE = pathlib.Path(__file__).parent
START = load_file(HERE / "00_sgd.safetensors")
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
MEANS = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
STATES = {"SGD": [], "Adam": MEANS, "AdamW": MEANS, "Adafactor": ["row_var", "col_var", "variance"]}


def clipped(number, name, make, arguments, clip):
    parameters = {it: START[f"mlp.params.{it}"][0].double().requires_grad_() for it in NAMES}
    x, y = START["mlp.X"].double(), START["mlp.Y"].double()
    optimizer = make(parameters)
    before = {it: [parameters[it].detach().clone()] for it in NAMES}
    losses, norms = [], []
    for _ in range(10):
        optimizer.zero_grad()
        hidden = torch.tanh(x @ parameters["fc1.weight"].T + parameters["fc1.bias"])
        output = hidden @ parameters["fc2.weight"].T + parameters["fc2.bias"]
        loss = torch.nn.functional.mse_loss(output, y)
        loss.backward()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.get_total_norm([it.grad for it in parameters.values()]))
        clip(parameters.values())
        optimizer.step()
        for it in NAMES:
            before[it].append(parameters[it].detach().clone())
    tensors = {f"mlp.params.{it}": torch.stack(before[it]) for it in NAMES}
    tensors |= {"mlp.loss": torch.stack(losses), "mlp.grad_norm_before_clip": torch.stack(norms)}
    tensors |= {"mlp.X": x, "mlp.Y": y}
    for it in NAMES:
        for state, value in optimizer.state[parameters[it]].items():
            if state in STATES[type(optimizer).__name__] and value is not None:
                tensors[f"mlp.state_after.{it}.{state}"] = value
    save(f"{number}_{name}", tensors, {"optimizer": type(optimizer).__name__, "arguments_given": arguments, "steps": 10})


def save(name, tensors, facts):
    tensors = {key: value.float().contiguous() for key, value in tensors.items()}
    save_file(tensors, HERE / f"{name}.safetensors")
    facts = {"name": name, "torch": torch.__version__, "start": "mlp.params, mlp.X and mlp.Y of 00_sgd"} | facts
    (HERE / f"{name}.json").write_text(json.dumps(facts) + "\n")


def by_value(most):
    return lambda parameters: torch.nn.utils.clip_grad_value_(parameters, most)


def by_norm(most):
    return lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, most)


def groups(parameters, lr):
    return [
        {"params": [parameters["fc1.weight"], parameters["fc1.bias"]]},
        {"params": [parameters["fc2.weight"], parameters["fc2.bias"]], "lr": 4 * lr, "weight_decay": 0.0},
    ]


clipped(30, "sgd_clip_value", lambda p: torch.optim.SGD(p.values(), lr=0.1), {"lr": 0.1, "clip_value": 0.05}, by_value(0.05))
clipped(
    32,
    "adamw_groups_clip_norm",
    lambda p: torch.optim.AdamW(groups(p, 0.01), lr=0.01, eps=1e-2, weight_decay=0.1),
    {"lr": 0.01, "eps": 1e-2, "weight_decay": 0.1, "fc2": {"lr": 0.04, "weight_decay": 0.0}, "clip_norm": 0.25},
    by_norm(0.25),
)
clipped(
    34,
    "adafactor_clip_norm",
    lambda p: torch.optim.Adafactor(p.values(), lr=0.05),
    {"lr": 0.05, "clip_norm": 0.25},
    by_norm(0.25),
)
# Means so short that squares of gradients are below the largest ones.
for number, make in [(36, torch.optim.Adam), (38, torch.optim.AdamW)]:
    amsgrad = {"lr": 0.05, "betas": (0.7, 0.5), "eps": 1e-3, "weight_decay": 0.2, "amsgrad": True}
    clipped(
        number, f"{make.__name__.lower()}_amsgrad", lambda p: make(p.values(), **amsgrad), amsgrad, lambda parameters: None
    )


# The rate of each of 50 steps. A step of SGD whose gradient is 1 takes it away from a weight.
LR = 0.1


def rates(name, make):
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=LR)
    schedule, found = make(optimizer), []
    for _ in range(50):
        found.append(optimizer.param_groups[0]["lr"])
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        if len(found) < 50:
            schedule.step()
    return name, torch.tensor(found, dtype=torch.float64)


def after(warmup, make):
    rise = lambda o: schedulers.LinearLR(o, 1 / (warmup + 1), total_iters=warmup)
    return lambda o: schedulers.SequentialLR(o, [rise(o), make(o)], milestones=[warmup])


cosine = lambda steps, least: lambda o: schedulers.CosineAnnealingLR(o, T_max=steps, eta_min=least)
linear = lambda steps, least: lambda o: schedulers.LinearLR(o, 1.0, least / LR, total_iters=steps)
halved = lambda every, factor: lambda o: schedulers.StepLR(o, step_size=every, gamma=factor)
cycle = lambda **options: lambda o: schedulers.OneCycleLR(o, max_lr=LR, cycle_momentum=False, **options)
constant = lambda o: schedulers.ConstantLR(o, factor=1.0)
ALL = [
    rates("constant", constant),
    rates("constant_warm", after(7, constant)),
    rates("cosine", cosine(49, 0.0)),
    rates("cosine_min", cosine(60, 0.01)),
    rates("cosine_warm", after(10, cosine(40, 0.001))),
    rates("linear", linear(30, 0.0)),
    rates("linear_warm", after(5, linear(35, 0.02))),
    rates("step", halved(7, 0.5)),
    rates("step_warm", after(4, halved(10, 0.1))),
    rates("one_cycle", cycle(total_steps=50)),
    rates("one_cycle_options", cycle(total_steps=64, pct_start=0.4, div_factor=10.0, final_div_factor=100.0)),
]
save_file({name: values.float() for name, values in ALL}, HERE / "schedules.safetensors")
(HERE / "schedules.json").write_text(json.dumps({"torch": torch.__version__, "lr": LR, "steps": 50, "made_by": "clip.py"}) + "\n")
