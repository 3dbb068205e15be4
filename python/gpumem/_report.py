"""The answer of `fit`."""

import copy
from typing import Any, Dict, List

from ._html import label, page


class Report:
    """The memory that a training step needs in PyTorch and in gpumem, and the cards that it fits.

    It is true if the step fits all cards in gpumem. `print` shows tables, and a notebook bars. `to_dict` has all figures.
    """

    def __init__(self, answer: Dict[str, Any], table: str) -> None:
        self._answer = answer
        self._table = table

    def to_dict(self) -> Dict[str, Any]:
        """Returns the answer with the keys of `cargo gpumem fit --format json`. Sizes are in bytes."""
        return copy.deepcopy(self._answer)

    @property
    def fits(self) -> Dict[str, bool]:
        """True for each card, or size in bytes, on which the step fits in gpumem."""
        return {fit["card"]: fit["fits"] for fit in self._answer["fits"]}

    @property
    def fits_pytorch(self) -> Dict[str, bool]:
        """True for each card on which the step fits in PyTorch. Empty if its memory is not predicted."""
        return {on["card"]: on["fits"] for file in self._answer["files"] for on in file["pytorch"].get("cards", [])}

    @property
    def largest_batch(self) -> Dict[str, int]:
        """The most samples of a step in gpumem, for each card. 0 if not even one fits."""
        return {fit["card"]: fit["max_batch"] for fit in self._answer["fits"]}

    @property
    def largest_batch_pytorch(self) -> Dict[str, int]:
        """The most samples of a step in PyTorch, for each card. 0 if not even one fits."""
        return {on["card"]: on["max_batch"] for file in self._answer["files"] for on in file["pytorch"].get("cards", [])}

    @property
    def changes(self) -> Dict[str, List[str]]:
        """The changes with which the step fits in gpumem, for each card that it does not fit. Each was planned; the cheapest come first.

        A change is written as in `TRAIN`. Its price is in brackets.
        """
        return {fit["card"]: self._changes(fit) for fit in self._answer["fits"] if not fit["fits"]}

    @staticmethod
    def _changes(fit: Dict[str, Any]) -> List[str]:
        changes = [alternative["change"] for alternative in fit["alternatives"]]
        return changes + ([f"batch: {fit['max_batch']}"] if fit["max_batch"] else [])

    @property
    def missing(self) -> List[str]:
        """The operations of the model that gpumem does not have, as ATen calls them. Then gpumem has no answer, and PyTorch's stands alone."""
        return [it["operation"] or it["why"] for file in self._answer["files"] for it in file["not_expressible"]]

    def __bool__(self) -> bool:
        return bool(self._answer["fits"]) and all(self.fits.values()) and not self._answer["left_out"]

    def __str__(self) -> str:
        return self._table

    def __repr__(self) -> str:
        names = ", ".join(file["name"] for file in self._answer["files"])
        if self.missing:
            kinds = len(self.missing)
            missing = "1 kind of operation is" if kinds == 1 else f"{kinds} kinds of operations are"
            return f"<gpumem.Report {names}: no answer, {missing} missing>"
        too_small = [label(card) for card, fits in self.fits.items() if not fits]
        if len(too_small) > 5:
            return f"<gpumem.Report {names}: does not fit {len(too_small)} of {len(self.fits)} cards>"
        return f"<gpumem.Report {names}: {'does not fit ' + ', '.join(too_small) if too_small else 'fits'}>"

    def _repr_html_(self) -> str:
        return page(self._answer)
