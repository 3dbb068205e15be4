"""The entry point of the package."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Iterable, List, Optional, Tuple, Union

from . import _native
from ._report import Report


def fit(
    model: Any,
    example_inputs: Any = None,
    *,
    batch: Union[int, str] = 32,
    optimizer: Union[str, type] = "adamw",
    precision: Any = None,
    cards: Union[str, Iterable[Union[str, int]], None] = None,
    checkpoint: Optional[str] = None,
    headroom: Union[int, str, None] = None,
    attention: str = "fused",
    pytorch_update: Optional[str] = None,
    pytorch_rules: str = "card",
    inference: bool = False,
) -> Report:
    """Says what a training step of a model needs in PyTorch and in gpumem, and which cards it fits.

    Args:
        model: A `torch.nn.Module`, or the path of a file of `torch.export.save` (`.pt2`) or of ONNX.
        example_inputs: The tensors that `forward` takes: one, a tuple, or a dict by names. Any batch will do. Only for a module.
        batch: Samples in a step, or `"largest"`: the most that fit each card.
        optimizer: An optimizer by its name, such as `"adamw"`, by its class, or as `"Sgd { lr: 0.1, momentum: 0.9 }"`.
        precision: `"f32"`, `"bf16"` and `"f16"` for weights in that format, `"bf16-mixed"` and `"f16-mixed"` for autocast. A dtype of
            PyTorch will do. That of the module's parameters if it is left out, and `"f32"` for a file.
        cards: Cards by their slugs, or sizes such as `"11.5GiB"` or bytes. All known cards if it is left out. `gpumem.cards()` lists them.
        checkpoint: What gpumem recomputes: `"none"`, `"norms"`, `"cheap"`, `"auto"` or `"budget(0.5)"`.
        headroom: Memory of each card to leave to others: bytes, or a size such as `"1GiB"`.
        attention: PyTorch's kernels of attention: `"fused"`, or `"math"` as on older cards.
        pytorch_update: PyTorch's implementation of the optimizer: `"foreach"`, `"for-loop"` or `"fused"`, instead of its default.
        pytorch_rules: `"card"` for PyTorch's memory on a card, `"tracker"` for what its tracker counts on a CPU.
        inference: True for a file that was exported for inference.

    Returns:
        A report, which is true if the step fits all cards in gpumem.

    Raises:
        ExportError: PyTorch cannot export the module. The text has the line of your code.
        ValueError: A setting has an unknown value. The text says what was probably meant.
        FileNotFoundError: There is no such file.
        ImportError: The model is no file, and PyTorch is not installed.
        Error: The model cannot be planned.
    """
    if not isinstance(optimizer, (str, type)):
        raise TypeError('optimizer: give its name, such as "adamw", or "Sgd { lr: 0.1, momentum: 0.9 }"')
    settings = _settings(
        batch=batch,
        optimizer=optimizer.__name__ if isinstance(optimizer, type) else optimizer,
        precision=None if precision is None else str(precision).replace("torch.", ""),
        checkpoint=checkpoint,
        headroom=f"{headroom}B" if isinstance(headroom, int) else headroom,
        attention=attention,
        pytorch_update=pytorch_update,
        pytorch_rules=pytorch_rules,
        inference=inference,
    )
    listed = cards.split(",") if isinstance(cards, str) else cards or []
    chosen = [f"{card}B" if isinstance(card, int) else str(card).strip() for card in listed]
    if cards is not None and not chosen:
        raise ValueError("cards: the list is empty; leave it out for all known cards")
    if isinstance(model, (str, os.PathLike)):
        if example_inputs is not None:
            raise TypeError("example_inputs: a file has its own; leave them out")
        path = os.fspath(model)
        if not os.path.exists(path):
            raise FileNotFoundError(f"model: there is no file {path}")
        return _report(_native.fit(path, None, chosen, settings))
    return _fit_module(model, example_inputs, chosen, settings)


def _fit_module(model: Any, example_inputs: Any, cards: List[str], settings: List[Tuple[str, str]]) -> Report:
    """Exports a module to a folder that is removed afterwards, and plans it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"model: a {type(model).__name__} is no path, and modules need PyTorch, which is not installed: `pip install torch`"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: a {type(model).__name__} is neither a `torch.nn.Module` nor the path of a file")
    if not hasattr(torch, "export"):
        raise ImportError(f"PyTorch {torch.__version__} has no `torch.export`; install 2.8 or later: `pip install -U torch`")
    if example_inputs is None:
        raise TypeError("example_inputs: give the tensors that `forward` takes, such as `torch.randn(2, 3, 224, 224)`")
    # Mistakes in settings are told before the export, which takes seconds.
    _native.check(cards, settings)

    from ._export import export, precision_of, unwrapped

    model = unwrapped(model)
    precision = dict(settings).get("precision")
    if precision is None:
        precision = precision_of(model)
        settings = [*settings, ("precision", precision)]
    with tempfile.TemporaryDirectory(prefix="gpumem-") as folder:
        path = Path(folder) / "model.pt2"
        export(model, example_inputs, precision, path)
        return _report(_native.fit(str(path), type(model).__name__, cards, settings))


def _settings(**values: Any) -> List[Tuple[str, str]]:
    """Returns settings as the planner reads them, without those that are left out."""
    return [(name, str(value)) for name, value in values.items() if value is not None]


def _report(answer: Tuple[str, str]) -> Report:
    text, table = answer
    return Report(json.loads(text), table)
