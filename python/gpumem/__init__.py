"""Says if a training step of a PyTorch model fits a GPU, and with which batch, before it runs.

    import gpumem

    report = gpumem.fit(model, torch.randn(2, 3, 224, 224), batch=32, optimizer="adamw", cards=["rtx3060", "t4"])
    print(report)
    if not report:
        print(report.changes)

The report has the memory that PyTorch needs, and the memory that gpumem needs for the same step. Neither a GPU nor CUDA is needed,
and no step runs. PyTorch is imported when `fit` gets a module, and not before.
"""

import json as _json
from typing import Any, Dict, List

from ._errors import Error, ExportError
from ._fit import fit
from ._native import __version__
from ._native import cards as _cards
from ._report import Report

__all__ = ["Error", "ExportError", "Report", "__version__", "cards", "fit"]


def cards() -> List[Dict[str, Any]]:
    """Returns all known cards, each with its `slug`, `name`, `usable` and other facts. Sizes are in bytes.

    >>> [card["slug"] for card in cards() if card["slug"] == "t4"]
    ['t4']
    """
    found: List[Dict[str, Any]] = _json.loads(_cards())["cards"]
    return found
