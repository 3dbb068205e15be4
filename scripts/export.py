#!/usr/bin/env python3
"""Writes a PyTorch model as files that `cargo gpumem fit` and `cargo gpumem import` read.

    scripts/export.py torchvision.models:resnet50 --input 3,224,224 -o resnet50
    scripts/export.py my_project.model:build --input tokens:128 -o model
    scripts/export.py timm:create_model --argument "'convnext_tiny'" --input 3,224,224 -o convnext

The model is made by a function or a class that is called with the given arguments. It is exported for training with an open batch size:
`OUT.pt2` has its operations and `OUT.safetensors` its weights, one tensor for each key of the state dict. `OUT.samples.safetensors` has the
example inputs and the model's outputs in evaluation mode, as `input.0`, `output.0` and so on: `cargo gpumem import --check` compares with
them. From another program, call `export(model, inputs, "OUT")`, or `record(model, inputs, "OUT.samples.safetensors")` for samples alone.
"""

import argparse
import ast
import importlib
import sys
from pathlib import Path

# Two samples, so that BatchNorm trains and the batch differs from dimensions of one element.
BATCH = 2


class Refused(Exception):
    """A model that is not exported, with what to do."""


def example(text):
    """Returns an example input: `3,224,224` are numbers, `tokens:128` indices, each of one sample."""
    import torch

    kind, _, sizes = text.rpartition(":")
    try:
        shape = [BATCH] + [int(size) for size in sizes.split(",") if size]
    except ValueError:
        raise Refused(f"`--input {text}` is no shape; write the sizes of one sample as `3,224,224`, or `tokens:128`") from None
    if kind in ("", "numbers"):
        return torch.randn(shape)
    if kind in ("tokens", "indices"):
        return torch.randint(0, 2, shape)
    raise Refused(f"`--input {text}` has an unknown kind `{kind}`; `numbers` and `tokens` are known")


def built(place, arguments):
    """Imports `package.module:name`, calls it, and returns the model."""
    import torch

    module, separator, name = place.partition(":")
    if not separator:
        raise Refused(f"`{place}` names no model; write `package.module:function`, such as `torchvision.models:resnet50`")
    sys.path.insert(0, str(Path.cwd()))
    try:
        maker = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise Refused(f"`{module}` cannot be imported: {error}") from error
    except AttributeError:
        raise Refused(f"`{module}` has no `{name}`") from None
    positional, named = [], {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        is_named = separator and key.isidentifier()
        try:
            value = ast.literal_eval(value if is_named else argument)
        except (ValueError, SyntaxError):
            raise Refused(f"`--argument {argument}` is no value of Python; write texts in quotes: \"'small'\"") from None
        if is_named:
            named[key] = value
        else:
            positional.append(value)
    model = maker(*positional, **named) if callable(maker) and not isinstance(maker, torch.nn.Module) else maker
    if not isinstance(model, torch.nn.Module):
        raise Refused(f"`{place}` is a {type(model).__name__}, and no `torch.nn.Module`")
    return model


def program(model, inputs):
    """Exports a model for training with an open batch size, or with a fixed one if the model does not allow that.

    Returns the program and the reason why the batch is fixed, which is `None` if it is open.
    """
    import torch

    batch = torch.export.Dim("batch", min=2)
    open_batch = tuple({0: batch} for _ in inputs)
    try:
        return torch.export.export(model, inputs, dynamic_shapes=open_batch, strict=False), None
    except Exception as error:  # PyTorch raises many kinds, none of them documented.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    try:
        return torch.export.export(model, inputs, strict=False), reason
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        raise Refused(
            f"PyTorch does not export it: {text.splitlines()[0]}\n"
            "  Control flow that depends on numbers is the usual reason: `torch.export` needs a `forward` without it.\n"
            "  A model that draws random numbers in Python while training is exported with `--eval`."
        ) from error


def weights(model):
    """Returns the state dict with tied tensors once, contiguous, as safetensors need them."""
    seen, tensors = {}, {}
    for key, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.dtype) if tensor.numel() else (key,)
        if place in seen:
            continue
        seen[place] = key
        tensors[key] = tensor.detach().cpu().contiguous().clone()
    return tensors


def saver():
    """Returns the function that writes tensors as safetensors."""
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise Refused("safetensors is missing; install it: `pip install safetensors`") from None
    return save_file


def tensors_of(values):
    """Returns the tensors in nested tuples, lists, dicts and data classes, in the order in which PyTorch exports them."""
    import torch
    from torch.utils import _pytree

    return [value for value in _pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def record(model, inputs, path):
    """Writes inputs and the outputs of the model in evaluation mode, and returns the path.

    Returns `None` if the outputs differ from one call to the next, so that nothing can be compared with them.
    """
    import torch

    modes = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        with torch.no_grad():
            # A model may change its inputs.
            first, second = (tensors_of(model(*[each.clone() for each in inputs])) for _ in range(2))
    finally:
        for name, module in model.named_modules():
            module.training = modes[name]
    if len(first) != len(second) or not all(torch.equal(a, b) for a, b in zip(first, second) if not a.isnan().any()):
        return None
    named = {f"input.{index}": tensor for index, tensor in enumerate(tensors_of(inputs))}
    named |= {f"output.{index}": tensor for index, tensor in enumerate(first)}
    saver()({name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}, path, metadata={"mode": "eval"})
    return path


def export(model, inputs, out, train=True):
    """Writes `OUT.pt2`, `OUT.safetensors` and `OUT.samples.safetensors`, and returns their paths."""
    import torch

    save_file = saver()
    if not hasattr(torch, "export"):
        raise Refused(f"PyTorch {torch.__version__} has no `torch.export`; 2.8 or later is needed")
    out = Path(out)
    model = model.train(train)
    tensors = weights(model)
    exported, reason = program(model, tuple(inputs))
    if reason is not None:
        print(f"note: the batch size is fixed at {BATCH}, since PyTorch says: {reason}", file=sys.stderr)
    files = [out.with_name(out.name + ending) for ending in (".pt2", ".safetensors", ".samples.safetensors")]
    torch.export.save(exported, files[0])
    save_file(tensors, files[1], metadata={"format": "pt"})
    if record(model, tuple(inputs), files[2]) is None:
        print("note: no samples are written, since the model's outputs differ from one call to the next", file=sys.stderr)
        files.pop()
    return files


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a function or a class: package.module:name")
    parser.add_argument("--argument", action="append", default=[], metavar="VALUE", help="of that function: 10, \"'small'\", width=2")
    parser.add_argument("--input", action="append", required=True, metavar="SHAPE", help="of one sample: 3,224,224 or tokens:128")
    parser.add_argument("-o", "--out", required=True, help="the files without their endings")
    parser.add_argument("--eval", action="store_true", help="export for inference")
    options = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        sys.exit("error: PyTorch is missing; install it: `pip install torch`")
    try:
        model = built(options.model, options.argument)
        files = export(model, [example(text) for text in options.input], options.out, train=not options.eval)
    except Refused as refused:
        sys.exit(f"error: {refused}")
    for path in files:
        print(f"{path} ({path.stat().st_size:,} bytes)")
    print(f"next: cargo gpumem fit {files[0]} --batch 32 --optimizer adamw")
    print(f"      cargo gpumem import {files[0]} -o model.rs --check")


if __name__ == "__main__":
    main()
