"""Exports a module of PyTorch to a file that the planner reads."""

import contextlib
import copy
import logging
import sys
import sysconfig
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._errors import ExportError

#: The advice for reasons of PyTorch, by a part of their text.
HINTS = {
    "data-dependent": "a branch or a size depends on numbers in a tensor: use `torch.where` or `torch.cond`, or leave it out of `forward`",
    "Dynamo does not support": "write this part of `forward` with operations of PyTorch alone",
    ".numpy() is not supported": "write this part of `forward` with operations of PyTorch alone",
    "in output, which is not a known type": "return tensors, tuples or dicts; for a model of transformers set `model.config.use_cache = False`",
    "Exporting a ScriptModule": "give the module from which `torch.jit` made it",
    "deepcopy protocol": "a copy of the module is needed for another precision: convert it with `model.to(dtype)`, and give that",
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
    with quiet():
        try:
            if dtype is not None:
                model, arguments, named = in_format(model, arguments, named, getattr(torch, dtype))
            with training(model):
                program = torch.export.export(model, arguments, named, strict=False)
            without_parameters(program)
            torch.export.save(program, path)
        except Exception as error:  # PyTorch has many kinds, none of them documented.
            raise refused(model, error) from error


def unwrapped(model: Any) -> Any:
    """Returns the module inside of those that `torch.compile`, `DataParallel` and `DistributedDataParallel` make."""
    import torch

    while True:
        if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def precision_of(model: Any) -> str:
    """Returns the precision of a module by its parameters: `bf16` or `f16` if all of them have that format, or else `f32`."""
    import torch

    formats = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return {torch.bfloat16: "bf16", torch.float16: "f16"}.get(formats.pop(), "f32") if len(formats) == 1 else "f32"


def in_format(model: Any, arguments: Any, named: Any, dtype: Any) -> Tuple[Any, Any, Any]:
    """Returns a module and its examples with all numbers that are not integers in another format. The module is a copy, if it has another one."""
    import torch
    from torch.utils import _pytree

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_floating_point() and tensor.dtype != dtype for tensor in tensors):
        model = copy.deepcopy(model).to(dtype)
    return model, _pytree.tree_map(cast, arguments), _pytree.tree_map(cast, named)


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
    if any(tensor.dim() > 0 and tensor.shape[0] == 0 for tensor in tensors):
        raise ValueError("example_inputs: the batch is empty; give a sample or more")
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
    """Drops warnings and logs of PyTorch: of its own internals, of parameters without numbers, and of errors that are raised anyway.

    It also writes graphs to standard error before some errors. Texts of other threads are still written, and so is standard output.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(_Muted(sys.stderr)):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _Muted:
    """A stream that drops the texts of the thread that made it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        """Writes a text of another thread."""
        is_dropped = self._stream is None or threading.get_ident() == self._thread
        return len(text) if is_dropped else self._stream.write(text)

    def flush(self) -> None:
        """Flushes the stream, if there is one."""
        if self._stream is not None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def without_parameters(program: Any) -> None:
    """Replaces the numbers of parameters by one number each, since plans do not depend on them.

    Shapes stay, and parameters that share their memory still do. Buffers keep their numbers: operations on them may be constants. Those of the
    device `meta` have none, and become zeros.
    """
    import torch

    numbers: Dict[Tuple[int, Any], Any] = {}
    for key, tensor in list(program.state_dict.items()):
        if isinstance(tensor, torch.nn.Parameter):
            place = (tensor.untyped_storage()._cdata, tensor.dtype)
            number = numbers.setdefault(place, torch.zeros((), dtype=tensor.dtype))
            program.state_dict[key] = torch.nn.Parameter(number.expand(tensor.shape), tensor.requires_grad)
    for buffers in (program.state_dict, program.constants):
        for key, buffer in list(buffers.items()):
            if isinstance(buffer, torch.Tensor) and buffer.device.type == "meta":
                buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype)


def refused(model: Any, error: Exception) -> ExportError:
    """Returns the error for a module that is not exported, with the line of the user's code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # PyTorch writes its own symbols after the reason.
    reason = lines[0].split(" (unhinted:")[0] if lines else type(error).__name__
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
