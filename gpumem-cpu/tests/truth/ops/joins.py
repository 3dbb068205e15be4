"""Writes `maximum.safetensors`, `minimum.safetensors`, `expand.safetensors` and `nearest_exact_*.safetensors` beside it: PyTorch 2, computed in
float64 from float32 inputs and rounded to float32. Tensors are named as in `volumes.py`."""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file


def case(name, function, **shapes):
    torch.manual_seed(sum(map(ord, name)))
    # Halves, so that some numbers are equal.
    given = {key: (2 * torch.randn(shape)).round() / 2 for key, shape in shapes.items()}
    inputs = {key: value.double().requires_grad_() for key, value in given.items()}
    y = function(*inputs.values())
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    kept = {f"input.{key}": value for key, value in given.items()}
    kept |= {f"grad_input.{key}": value.grad.float().contiguous() for key, value in inputs.items()}
    kept |= {"output": y.detach().float().contiguous(), "grad_output": dy}
    save_file(kept, Path(__file__).parent / f"{name}.safetensors")


case("maximum", torch.maximum, a=(3, 4, 5), b=(3, 4, 5))
case("minimum", torch.minimum, a=(3, 4, 5), b=(3, 1, 5))
case("expand", lambda x: x.expand(-1, 2, 3, 4), x=(2, 2, 1, 4))
case("expand_to_more", lambda x: x[:, None].expand(-1, 3, 2, 5), x=(2, 2, 1))
case("nearest_exact_size", lambda x: F.interpolate(x, size=(7, 4), mode="nearest-exact"), x=(2, 3, 5, 6))
case("nearest_exact_factor", lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="nearest-exact"), x=(2, 2, 6, 9))
case("nearest_exact_same", lambda x: F.interpolate(x, scale_factor=1.15, mode="nearest-exact"), x=(1, 1, 6, 6))
case("nearest_exact_whole", lambda x: F.interpolate(x, scale_factor=3, mode="nearest-exact"), x=(2, 2, 3, 2))
case("nearest_exact_signal", lambda x: F.interpolate(x, size=11, mode="nearest-exact"), x=(2, 3, 7))
