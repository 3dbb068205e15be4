"""What `main.rs` expects: networks with several training steps, in float64.

    python3 golden.py > expected.txt

Each line is a network, a name and numbers: the losses of each step, then every parameter and statistic after them.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def spread(shape, salt):
    """Numbers around 0 that look random, as f32 has them."""
    index = torch.arange(torch.Size(shape).numel())
    numbers = (((index * 7919 + salt * 104_729) % 1009) / 1009.0 - 0.5).to(torch.float32)
    return numbers.double().reshape(shape)


def leaves(shapes):
    return {name: spread(shape, salt).requires_grad_() for salt, (name, shape) in enumerate(shapes.items())}


def step(loss, optimizer, trained, clip=None):
    """One step for what it trains: everything else is as with `requires_grad_(False)`."""
    optimizer.zero_grad()
    loss.backward(inputs=trained)
    if clip:
        torch.nn.utils.clip_grad_norm_(trained, clip)
    optimizer.step()
    return loss.item()


def said(network, losses, tensors):
    for name, numbers in losses.items():
        print(network, name, *(f"{number:.9g}" for number in numbers))
    for name, tensor in tensors.items():
        print(network, name, *(f"{number:.9g}" for number in tensor.detach().flatten().tolist()))


def gan(network, norms):
    shapes = {"generator.fc.weight": (36, 5)}
    if norms:
        shapes |= {"generator.norm.weight": (4,), "generator.norm.bias": (4,)}
    shapes |= {"generator.conv.weight": (4, 1, 4, 4), "generator.conv.bias": (1,), "critic[0].conv.weight": (3, 1, 3, 3)}
    if norms:
        shapes |= {"critic[0].norm.weight": (3,), "critic[0].norm.bias": (3,)}
    shapes |= {"critic[0].fc.weight": (1, 27), "critic[0].fc.bias": (1,)}
    p = leaves(shapes)
    statistics = {}
    for name, count in (("generator.norm", 4), ("critic[0].norm", 3)) if norms else ():
        statistics[name + ".running_mean"] = torch.zeros(count)
        statistics[name + ".running_var"] = torch.ones(count)

    def norm(x, name):
        if not norms:
            return x
        mean, var = (statistics[f"{name}.running_{kind}"] for kind in ("mean", "var"))
        return F.batch_norm(x, mean, var, p[name + ".weight"], p[name + ".bias"], training=True)

    def generate(noise):
        x = F.linear(noise, p["generator.fc.weight"]).reshape(-1, 4, 3, 3)
        x = F.relu(norm(x, "generator.norm"))
        return torch.tanh(
            F.conv_transpose2d(x, p["generator.conv.weight"], p["generator.conv.bias"], stride=2, padding=1)
        )

    def judge(image):
        x = norm(F.conv2d(image, p["critic[0].conv.weight"], stride=2, padding=1), "critic[0].norm")
        return F.linear(F.leaky_relu(x, 0.2).flatten(1), p["critic[0].fc.weight"], p["critic[0].fc.bias"])

    part = lambda start: [tensor for name, tensor in p.items() if name.startswith(start)]
    critic, generator = part("critic"), part("generator")
    of_critic = torch.optim.Adam(critic, lr=2e-3, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator, lr=1e-3, betas=(0.5, 0.999))
    yes, no = torch.ones(4, 1), torch.zeros(4, 1)
    bce = F.binary_cross_entropy_with_logits
    losses = {"CRITIC": [], "GENERATOR": []}
    for round in range(20):
        noise, real = spread((4, 5), 100 + round), spread((4, 1, 6, 6), 200 + round)
        on_fake = judge(generate(noise).detach())
        losses["CRITIC"].append(step(bce(judge(real), yes) + bce(on_fake, no), of_critic, critic))
        losses["GENERATOR"].append(step(bce(judge(generate(noise)), yes), of_generator, generator))
    said(network, losses, p | statistics)


def acting():
    p = leaves({
        "body.weight": (8, 6), "body.bias": (8,), "actor.weight": (3, 8), "actor.bias": (3,), "critic.weight": (1, 8),
        "critic.bias": (1,),
    })
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p[name + ".bias"])
    policy = [tensor for name, tensor in p.items() if not name.startswith("critic")]
    value = [p["critic.weight"], p["critic.bias"]]
    of_policy = torch.optim.SGD(policy, lr=0.3, momentum=0.9)
    of_value = torch.optim.Adam(value, lr=1e-2)
    losses = {"POLICY": [], "VALUE": []}
    for round in range(8):
        x, advantage, returns = spread((6, 6), 300 + round), spread((6, 3), 400 + round), spread((6, 1), 500 + round)
        surrogate = -(F.log_softmax(linear(torch.tanh(linear(x, "body")), "actor"), -1) * advantage).mean()
        losses["POLICY"].append(step(surrogate, of_policy, policy))
        for _ in range(2):
            found = linear(torch.tanh(linear(x, "body")), "critic")
            losses["VALUE"].append(step(F.mse_loss(found, returns), of_value, value))
    said("Acting", losses, p)


def tuning():
    p = leaves({"body.weight": (7, 5), "body.bias": (7,), "head.weight": (3, 7), "head.bias": (3,)})
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p[name + ".bias"])
    head, whole = [p["head.weight"], p["head.bias"]], list(p.values())
    of_head = torch.optim.SGD(head, lr=0.1, momentum=0.9)
    of_all = torch.optim.AdamW(whole, lr=1e-2)
    losses = {"HEAD": [], "ALL": []}
    for round in range(6):
        x, labels = spread((4, 5), 600 + round), (torch.arange(4) + round) % 3
        loss = lambda: F.cross_entropy(linear(F.silu(linear(x, "body")), "head"), labels)
        losses["HEAD"].append(step(loss(), of_head, head))
        losses["ALL"].append(step(loss(), of_all, whole, clip=0.05))
    said("Tuning", losses, p)


gan("Gan", True)
gan("Plain", False)
acting()
tuning()
