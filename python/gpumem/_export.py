"""Exports a module of PyTorch to a file that the planner reads."""

import contextlib
import copy
import logging
import sysconfig
import traceback
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._errors import ExportError

#: The advice for reasons of PyTorch, by a part of their text.
HINTS = {
    "data-dependent": "a branch or a size depends on numbers in a tensor: use `torch.where` or `torch.cond`, or leave it out of `forward`",
    "Dynamo does not support": "write this part of `forward` with operations of PyTorch alone",
}

#: The formats of weights by the names of precisions, and the dtypes of PyTorch.
HALVES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "f16": "float16", "fp16": "float16", "float16": "float16"}


def export(model: Any, example_inputs: Any, precision: str, path: Path) -> None:
    """Writes the operations of a module to `path`, without the numbers of its parameters.

    The module is exported as it trains, and has the mode of before afterwards. For weights in bfloat16 or float16, a copy of it in that format
    is exported. Raises `ExportError` if PyTorch cannot export it.
    """
    import torch

    arguments, named = inputs(example_inputs)
    dtype = HALVES.get(precision.lower())
    if dtype is not None:
        model, arguments, named = in_format(model, arguments, named, getattr(torch, dtype))
    with training(model), quiet():
        try:
            program = torch.export.export(model, arguments, named, strict=False)
            without_parameters(program)
            torch.export.save(program, path)
        except Exception as error:  # PyTorch has many kinds, none of them documented.
            raise refused(model, error) from error


def in_format(model: Any, arguments: Any, named: Any, dtype: Any) -> Tuple[Any, Any, Any]:
    """Returns a copy of a module and its examples, with all numbers that are not integers in another format."""
    import torch
    from torch.utils import _pytree

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    copied = copy.deepcopy(model).to(dtype)
    return copied, _pytree.tree_map(cast, arguments), _pytree.tree_map(cast, named)


def inputs(example: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Returns examples as positional and named arguments, with two samples if they have one.

    A batch of one cannot be told from other dimensions of one. So every tensor whose first dimension is 1 is taken twice.
    """
    import torch
    from torch.utils import _pytree

    positional: Tuple[Any, ...] = ()
    named: Dict[str, Any] = {}
    if isinstance(example, dict):
        named = dict(example)
    elif isinstance(example, (tuple, list)):
        positional = tuple(example)
    else:
        positional = (example,)
    leaves = _pytree.tree_leaves((positional, named))
    tensors: List[Any] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise TypeError("example_inputs: give the tensors that `forward` takes: one, a tuple, or a dict by names")
    if tensors[0].dim() == 0 or tensors[0].shape[0] != 1:
        return positional, named

    def doubled(leaf: Any) -> Any:
        is_sample = isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == 1
        return torch.cat([leaf, leaf]) if is_sample else leaf

    doubled_both: Tuple[Tuple[Any, ...], Dict[str, Any]] = _pytree.tree_map(doubled, (positional, named))
    return doubled_both


@contextlib.contextmanager
def training(model: Any) -> Iterator[None]:
    """Makes a module train, and puts each module inside it back to its mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops warnings and logs of PyTorch: of its own internals, of parameters without numbers, and of errors that are raised anyway."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def without_parameters(program: Any) -> None:
    """Replaces the numbers of parameters by one number each, since plans do not depend on them.

    Shapes stay, and parameters that share their memory still do. Buffers keep their numbers: operations on them may be constants.
    """
    import torch

    numbers: Dict[Tuple[int, Any], Any] = {}
    for key, tensor in list(program.state_dict.items()):
        if isinstance(tensor, torch.nn.Parameter):
            place = (tensor.untyped_storage()._cdata, tensor.dtype)
            number = numbers.setdefault(place, torch.zeros(1, dtype=tensor.dtype))
            program.state_dict[key] = torch.nn.Parameter(number.expand(tensor.shape), tensor.requires_grad)


def refused(model: Any, error: Exception) -> ExportError:
    """Returns the error for a module that is not exported, with the line of the user's code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    # Mistakes of `forward` itself, such as a wrong shape, are errors of Python.
    if not type(error).__module__.startswith("torch"):
        reason = f"{type(error).__name__}: {reason}"
    text = f"PyTorch cannot export {type(model).__name__}: {reason}"
    frame = users_line(error)
    if frame is not None:
        text += f"\n  at {frame.filename}:{frame.lineno}, in {frame.name}"
        text += f": {frame.line}" if frame.line else ""
    hint = next((hint for part, hint in HINTS.items() if part in str(error)), None)
    text += f"\n  {hint}" if hint else ""
    if frame is None:
        return ExportError(text, reason)
    return ExportError(text, reason, frame.filename, frame.lineno, frame.name, frame.line)


def users_line(error: BaseException) -> Optional[traceback.FrameSummary]:
    """Returns the innermost frame of the model that was exported. `None` if there is none."""
    seen = set()
    current: Optional[BaseException] = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        # Dynamo compiles code, so that its own stack is not the user's: it keeps that one beside it.
        for stack in (getattr(current, "real_stack", None), traceback.extract_tb(current.__traceback__)):
            found = innermost(list(stack or []))
            if found is not None:
                return found
        current = current.__cause__ or current.__context__
    return None


def innermost(stack: List[traceback.FrameSummary]) -> Optional[traceback.FrameSummary]:
    """Returns the last frame that neither PyTorch, nor Python, nor this package has. `None` if none of them was called by this package."""
    import sympy
    import torch

    exporters = tuple(str(Path(str(module)).parent) for module in (__file__, torch.__file__, sympy.__file__))
    begun = next((at for at, frame in enumerate(stack) if frame.filename.startswith(exporters)), len(stack))
    frames = [frame for frame in stack[begun:] if not frame.filename.startswith((*exporters, "<")) and not is_pythons(frame.filename)]
    return frames[-1] if frames else None


def is_pythons(filename: str) -> bool:
    """True for a file of Python's own library."""
    library = sysconfig.get_path("stdlib")
    return filename.startswith(library) and "site-packages" not in filename and "dist-packages" not in filename
