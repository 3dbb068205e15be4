"""The networks of the benchmarks on the CPU, in PyTorch: those of examples/networks/small.rs, and torchvision's for the zoo."""

import collections

# Parameters, batch, shape of an input (an int is a number of tokens), classes, and the optimizer with its settings.
Case = collections.namedtuple("Case", "parameters batch shape classes optimizer settings")


def case(parameters, batch, shape, classes, optimizer, **settings):
    return Case(parameters, batch, shape, classes, optimizer, settings)


GPT = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
CASES = {
    "digits": case(38_442, 32, (1, 8, 8), 10, "AdamW", lr=2e-3, weight_decay=0.01),
    "mlp": case(669_706, 64, (784,), 10, "SGD", lr=0.01, momentum=0.9),
    "resnet18": case(11_181_642, 8, (3, 64, 64), 10, "SGD", lr=0.01, momentum=0.9, weight_decay=1e-4),
    "gpt": case(3_454_464, 4, 128, 512, "AdamW", **GPT),
    "mobilenet": case(2_236_682, 16, (3, 96, 96), 10, "SGD", lr=0.045, momentum=0.9, weight_decay=4e-5),
    "gpt-long": case(2_025_600, 4, 256, 512, "AdamW", **GPT),
    "vit": case(2_721_226, 16, (3, 64, 64), 10, "AdamW", lr=1e-3, weight_decay=0.05),
    "unet": case(1_927_042, 4, (3, 96, 96), 2, "Adam", lr=1e-3),
    "lstm": case(858_634, 32, (64, 64), 10, "Adam", lr=1e-3),
    "mixer": case(1_893_898, 16, (3, 64, 64), 10, "AdamW", lr=1e-3, weight_decay=0.1),
    "convnext": case(323_242, 8, (3, 64, 64), 10, "AdamW", lr=1e-3, weight_decay=0.05),
}
RESNETS = ["resnet18_224", "resnet34", "resnet50", "resnext50_32x4d", "wide_resnet50_2"]
# The optimizers of the networks in gpumem-zoo/examples/bench_zoo.rs. Each step has four images.
ZOO = {
    "alexnet": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}),
    "convnext_tiny": ("AdamW", {"lr": 1e-3, "weight_decay": 0.05}),
    "densenet121": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}),
    "efficientnet_b0": ("RMSprop", {"lr": 0.256, "alpha": 0.9, "eps": 0.0316, "momentum": 0.9, "weight_decay": 1e-5}),
    "mnasnet1_0": ("SGD", {"lr": 0.045, "momentum": 0.9, "weight_decay": 4e-5}),
    "mobilenet_v2": ("SGD", {"lr": 0.045, "momentum": 0.9, "weight_decay": 4e-5}),
    "mobilenet_v3_large": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-5}),
    "mobilenet_v3_small": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-5}),
    "regnet_y_400mf": ("SGD", {"lr": 0.8, "momentum": 0.9, "weight_decay": 5e-5}),
    **{name: ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}) for name in RESNETS},
    "shufflenet_v2_x1_0": ("SGD", {"lr": 0.5, "momentum": 0.9, "weight_decay": 4e-5}),
    "squeezenet1_0": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 2e-4}),
    "squeezenet1_1": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 2e-4}),
    "swin_t": ("AdamW", {"lr": 1e-3, "weight_decay": 0.05}),
    "vgg11": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}),
    "vgg11_bn": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}),
    "vit_b_16": ("AdamW", {"lr": 3e-3, "weight_decay": 0.3}),
}


def networks():
    """The modules of the small networks, by their names."""
    import torch
    from torch import nn
    from torch.nn import functional

    def conv(before, after, size=3, stride=1):
        return nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)

    def norm_relu(channels):
        return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]

    class Residual(nn.Module):
        def __init__(self, *layers):
            super().__init__()
            self.inside = nn.Sequential(*layers)

        def forward(self, x):
            return x + self.inside(x)

    class Permute(nn.Module):
        def __init__(self, *axes):
            super().__init__()
            self.axes = axes

        def forward(self, x):
            return x.permute(self.axes)

    def digits():
        layers = [conv(1, 32), *norm_relu(32), conv(32, 32), *norm_relu(32), nn.MaxPool2d(2), conv(32, 64), *norm_relu(64)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 10))

    def mlp():
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    class Basic(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            first, second = conv(before, width, stride=stride), conv(width, width)
            self.inside = nn.Sequential(first, *norm_relu(width), second, nn.BatchNorm2d(width))
            self.shortcut = nn.Identity()
            if stride != 1:
                self.shortcut = nn.Sequential(conv(before, width, 1, stride), nn.BatchNorm2d(width))

        def forward(self, x):
            return functional.relu(self.inside(x) + self.shortcut(x), inplace=True)

    def resnet18():
        layers, before = [conv(3, 64, 7, 2), *norm_relu(64), nn.MaxPool2d(3, stride=2, padding=1)], 64
        for width in (64, 128, 256, 512):
            layers += [Basic(before, width, 1 if width == before else 2), Basic(width, width, 1)]
            before = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    class Attention(nn.Module):
        def __init__(self, width, heads, causal):
            super().__init__()
            self.heads, self.causal = heads, causal
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            batch, steps, width = x.shape
            parts = self.qkv(x).split(width, dim=2)
            q, k, v = (part.view(batch, steps, self.heads, width // self.heads).transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.proj(y.transpose(1, 2).reshape(batch, steps, width))

    def perceptron(width, between, gelu):
        return nn.Linear(width, between), gelu, nn.Linear(between, width)

    def block(width, heads, causal, gelu):
        return nn.Sequential(
            Residual(nn.LayerNorm(width), Attention(width, heads, causal)),
            Residual(nn.LayerNorm(width), *perceptron(width, 4 * width, gelu)),
        )

    class Gpt(nn.Module):
        def __init__(self, steps, width, heads, words=512, depth=4):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(steps, width)
            gelu = nn.GELU(approximate="tanh")
            self.blocks = nn.Sequential(*(block(width, heads, True, gelu) for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.wte(x) + self.wpe.weight)))

    class Patches(nn.Module):
        """Patches of 8 x 8 pixels as steps."""

        def __init__(self, width):
            super().__init__()
            self.proj = nn.Conv2d(3, width, 8, stride=8)

        def forward(self, x):
            return self.proj(x).flatten(2).transpose(1, 2)

    class Vit(nn.Module):
        def __init__(self, width=192, heads=3, depth=6):
            super().__init__()
            self.patches = Patches(width)
            self.token, self.positions = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(65, width))
            self.layers = nn.Sequential(*(block(width, heads, False, nn.GELU()) for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

        def forward(self, x):
            x = self.patches(x)
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
            return self.head(self.norm(self.layers(x))[:, 0])

    class UNet(nn.Module):
        def __init__(self, widths=(32, 64, 128, 256)):
            super().__init__()
            pairs = list(zip(widths, widths[1:]))
            self.down = nn.ModuleList(self.double(a, b) for a, b in [(3, widths[0]), *pairs])
            self.wider = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs))
            self.up = nn.ModuleList(self.double(b, a) for a, b in reversed(pairs))
            self.out = nn.Conv2d(widths[0], 2, 1)

        @staticmethod
        def double(before, after):
            return nn.Sequential(conv(before, after), *norm_relu(after), conv(after, after), *norm_relu(after))

        def forward(self, x):
            kept = []
            for index, down in enumerate(self.down):
                x = down(functional.max_pool2d(x, 2) if index else x)
                kept.append(x)
            for wider, up, beside in zip(self.wider, self.up, reversed(kept[:-1])):
                x = up(torch.cat((beside, wider(x)), 1))
            return self.out(x)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(64, 256, num_layers=2, batch_first=True), nn.Linear(256, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    def mixer():
        def layer():
            tokens, channels = perceptron(64, 96, nn.GELU()), perceptron(192, 768, nn.GELU())
            turned = Permute(0, 2, 1), *tokens, Permute(0, 2, 1)
            return nn.Sequential(Residual(nn.LayerNorm(192), *turned), Residual(nn.LayerNorm(192), *channels))

        return nn.Sequential(Patches(192), *(layer() for _ in range(6)), nn.LayerNorm(192), Mean(), nn.Linear(192, 10))

    class Scale(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))

        def forward(self, x):
            return x * self.scale

    def convnext(channels=96):
        def norm():
            return Permute(0, 2, 3, 1), nn.LayerNorm(channels)

        def residual():
            depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
            mlp = perceptron(channels, 4 * channels, nn.GELU())
            return Residual(depthwise, *norm(), *mlp, Permute(0, 3, 1, 2), Scale(channels))

        stem = nn.Conv2d(3, channels, 4, stride=4), *norm(), Permute(0, 3, 1, 2)
        pool = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(channels), nn.Linear(channels, 10)
        return nn.Sequential(*stem, *(residual() for _ in range(4)), *pool)

    def mobilenet():
        import torchvision

        return torchvision.models.mobilenet_v2(num_classes=10)

    return {
        "digits": digits,
        "mlp": mlp,
        "resnet18": resnet18,
        "gpt": lambda: Gpt(128, 256, 8),
        "mobilenet": mobilenet,
        "gpt-long": lambda: Gpt(256, 192, 6),
        "vit": Vit,
        "unet": UNet,
        "lstm": Lstm,
        "mixer": mixer,
        "convnext": convnext,
    }


def build(model):
    """The module of a network, and its case."""
    if model in CASES:
        module, described = networks()[model](), CASES[model]
    else:
        import torchvision

        module = torchvision.models.get_model(model.removesuffix("_224"))
        parameters = sum(parameter.numel() for parameter in module.parameters())
        optimizer, settings = ZOO[model]
        described = case(parameters, 4, (3, 224, 224), 1000, optimizer, **settings)
    found = sum(parameter.numel() for parameter in module.parameters())
    assert found == described.parameters, f"{model} has {found} parameters instead of {described.parameters}"
    return module, described


def step(name, mode):
    """A function that makes one step and gives its loss, or an output; and the number of parameters."""
    import torch
    from torch.nn import functional

    model = name.removesuffix("-inference")
    module, described = build(model)
    batch, shape, classes = described.batch, described.shape, described.classes
    if isinstance(shape, int):
        inputs, targets = (torch.randint(classes, (batch, shape)) for _ in range(2))
    else:
        labels = (batch, *shape[1:]) if model == "unet" else (batch,)
        inputs, targets = torch.randn(batch, *shape), torch.randint(classes, labels)
    run = torch.compile(module) if mode == "compile" else module
    if name != model:
        module.eval()

        def infer():
            with torch.inference_mode():
                return run(inputs).flatten()[0].item()

        return infer, described.parameters
    more = {"fused": True} if mode == "fused" and described.optimizer != "RMSprop" else {}
    optimizer = getattr(torch.optim, described.optimizer)(module.parameters(), **described.settings, **more)

    def train():
        optimizer.zero_grad(set_to_none=True)
        logits = run(inputs)
        # Classes are the second dimension, and that of tokens is the last one.
        loss = functional.cross_entropy(logits.transpose(1, 2) if logits.ndim == 3 else logits, targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    return train, described.parameters
