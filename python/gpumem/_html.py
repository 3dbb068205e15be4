"""A report as HTML for notebooks.

All styles are attributes, and there is no script: so the text can stand in a page of any kind, and nothing of it changes that page.
"""

from html import escape
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ._native import bytes as size

#: The parts of a step, with the names of PyTorch's purposes and of gpumem's budget lines, and a colour.
PARTS: List[Tuple[str, Tuple[str, ...], Tuple[str, ...], str]] = [
    ("parameters", ("parameters",), ("weights", "master"), "#4c78a8"),
    ("gradients", ("gradients",), ("gradients",), "#f58518"),
    ("optimizer state", ("optimizer state",), ("optimizer", "ema"), "#54a24b"),
    ("activations", ("saved for the backward pass", "temporaries"), ("activations",), "#e45756"),
]
#: The colour of all other bytes.
REST = "#9d9d9d"

#: The most cards with bars of their own.
MOST_CARDS = 12

CELL = "padding:2px 8px;text-align:left;border:0;white-space:nowrap"


def page(answer: Dict[str, Any]) -> str:
    """Returns a table with bars for each model of an answer, and for each card."""
    parts = [_model(file, answer) for file in answer["files"]]
    return f'<div style="font:13px/1.5 system-ui,sans-serif;color:inherit">{"".join(parts)}</div>'


def _model(file: Dict[str, Any], answer: Dict[str, Any]) -> str:
    fits = [fit for fit in answer["fits"] if fit["file"] == file["file"]]
    first: Dict[str, Any] = fits[0] if fits else {}
    batch = file["pytorch"].get("batch", first.get("batch"))
    facts = [f"{file['parameters']:,} parameters"]
    facts += [f"batch {batch}"] if batch else []
    facts += [first["precision"]] if first.get("precision") else []
    head = f"<div><b>{escape(file['name'])}</b> {escape(', '.join(facts))}</div>"
    return head + _missing(file) + _needs(file) + _cards(file, fits) + _changes(fits)


def _missing(file: Dict[str, Any]) -> str:
    kinds = [it["operation"] or it["why"] for it in file["not_expressible"]]
    return f"<div>gpumem has no answer: it lacks {escape(', '.join(kinds))}</div>" if kinds else ""


def _needs(file: Dict[str, Any]) -> str:
    """Returns the peak of a step in PyTorch and in gpumem, a coloured bar for each, on one scale."""
    theirs, ours = file["pytorch"].get("categories"), file["budget"]
    peaks = [("PyTorch", theirs and _parts(theirs, 1), theirs and file["pytorch"]["allocated"])]
    peaks += [("gpumem", ours and _parts(ours, 2), ours and ours["arena"])]
    most = max([total for _, _, total in peaks if total] or [1])
    rows = []
    for name, parts, total in peaks:
        if parts is None or total is None:
            rows.append(_row(name, _cell(escape(file["pytorch"]["why"]) if name == "PyTorch" and "why" in file["pytorch"] else "not known")))
            continue
        known = [(label, min(value, total), colour) for label, value, colour in parts]
        rest = max(0, total - sum(value for _, value, _ in known))
        bars = [(f"{label}: {size(value)}", value, colour) for label, value, colour in known]
        rows.append(_row(name, _cell(_bar([*bars, (f"other: {size(rest)}", rest, REST)], most)) + _cell(size(total))))
    legend = "".join(f'<span style="color:{colour}">&#9632;</span> {label} ' for label, _, _, colour in PARTS)
    return f'{_table(rows)}<div style="padding:0 8px">{legend}<span style="color:{REST}">&#9632;</span> other</div>'


def _parts(values: Dict[str, int], column: int) -> List[Tuple[str, int, str]]:
    """Returns the parts of a step with their bytes. Column 1 has PyTorch's names, and column 2 gpumem's."""
    return [(part[0], sum(values.get(name, 0) for name in part[column]), part[3]) for part in PARTS]


def _cards(file: Dict[str, Any], fits: List[Dict[str, Any]]) -> str:
    """Returns for each card the bytes that a step takes of it, and the largest batches."""
    theirs = {on["card"]: on for on in file["pytorch"].get("cards", [])}
    ours = {fit["card"]: fit for fit in fits}
    names = list(dict.fromkeys([*theirs, *ours]))
    if not names:
        return ""
    heading = "".join(_cell(f"<b>{text}</b>") for text in ("card", "", "needs", "has", "", "largest batch"))
    rows = [f"<tr>{heading}</tr>"]
    for card in names[:MOST_CARDS]:
        fit, on = ours.get(card), theirs.get(card)
        has = (fit or on or {}).get("usable")
        shown = label(card)
        if on:
            rows.append(_card(shown, "PyTorch", (on["total"], has), on["fits"], on["max_batch"]))
        if fit:
            rows.append(_card("" if on else shown, "gpumem", (fit["total"], has), fit["fits"], fit["max_batch"]))
    more = len(names) - MOST_CARDS
    return _table(rows) + (f"<div>and {more} more cards: <code>to_dict()</code> has them</div>" if more > 0 else "")


def label(card: str) -> str:
    """Returns a card as people write it: its slug, or its size."""
    return size(int(card)) if card.isdigit() else card


def _card(card: str, name: str, sizes: Tuple[Optional[int], Optional[int]], fits: bool, batch: int) -> str:
    needs, has = sizes
    colour = "#54a24b" if fits else "#e45756"
    bar = _bar([(f"{size(needs)} of {size(has)}", min(needs, has), colour)], has) if needs is not None and has else ""
    texts = [escape(card), name, size(needs) if needs is not None else "", size(has) if has else ""]
    verdict = "fits" if fits else "does not fit"
    cells = [*texts, f'{bar}<span style="color:{colour}">{verdict}</span>', str(batch or "none")]
    return f"<tr>{''.join(_cell(text) for text in cells)}</tr>"


def _changes(fits: List[Dict[str, Any]]) -> str:
    lines = [(fit["card"], change) for fit in fits for change in fit["alternatives"]]
    items = [f"<li>{escape(label(card))}: <code>{escape(change['change'])}</code> ({size(change['total'])})</li>" for card, change in lines]
    return f'<div>It fits with:</div><ul style="margin:0">{"".join(items)}</ul>' if items else ""


def _bar(parts: Iterable[Tuple[str, int, str]], most: int) -> str:
    """Returns coloured parts side by side, 320 pixels for `most` bytes. Each has its text as a tooltip."""
    widths = [(text, 320 * value / most if most else 0, colour) for text, value, colour in parts]
    spans = [
        f'<span title="{escape(text)}" style="display:inline-block;height:12px;width:{width:.1f}px;background:{colour}"></span>'
        for text, width, colour in widths
        if width >= 0.05
    ]
    return f'<span style="display:inline-block;white-space:nowrap;margin-right:8px">{"".join(spans)}</span>'


def _cell(text: str) -> str:
    return f'<td style="{CELL}">{text}</td>'


def _row(name: str, cells: str) -> str:
    return f"<tr>{_cell(name)}{cells}</tr>"


def _table(rows: List[str]) -> str:
    return f'<table style="border-collapse:collapse;margin:4px 0">{"".join(rows)}</table>'
