#!/usr/bin/env python3
"""What a card says of itself and what loading takes of it, as facts.json in a folder.

    scripts/card_facts.py --calibrate PROGRAM --out FOLDER

Everything that `nvidia-smi -q -x` says, clocks and driver included; what the program `calibrate` measures, three times, each in a
process of its own; versions of Python's packages of CUDA; and the figures that loading networks has left beside the
compiled kernels, in GPUMEM_CACHE. What cannot be had is there with its reason.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree

# Before the text of a record: a mark and a sum.
HEAD = 24


def said(command, limit=60):
    """What a command prints, or why it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return (done.stdout, None) if done.returncode == 0 else (None, (done.stderr or done.stdout).strip()[-500:])


def tree(element):
    """An element of XML as text, or as a dictionary; a list where a tag comes more than once."""
    children = {}
    for child in element:
        children.setdefault(child.tag, []).append(tree(child))
    if not children:
        return (element.text or "").strip()
    children = {tag: found if len(found) > 1 else found[0] for tag, found in children.items()}
    return children | {f"@{name}": value for name, value in element.attrib.items()}


def smi():
    text, reason = said(["nvidia-smi", "-q", "-x"])
    if text is None:
        return {"failed": reason}
    try:
        return tree(xml.etree.ElementTree.fromstring(text))
    except xml.etree.ElementTree.ParseError as error:
        return {"failed": str(error)}


def calibrated(program):
    text, reason = said([str(program), "--json"], limit=120)
    if text is None:
        return {"failed": reason}
    try:
        return json.loads(text.splitlines()[-1])
    except (ValueError, IndexError) as error:
        return {"failed": str(error)}


def packages():
    names = {one.metadata["Name"] or "": one.version for one in importlib.metadata.distributions()}
    return {name: names[name] for name in sorted(names) if name.startswith("nvidia") or name in ("torch", "triton")}


def records(folder):
    """The lines of what was measured while networks were loaded, by file."""
    files = sorted(pathlib.Path(folder).glob("*.measured")) if folder else []
    return {file.name: file.read_bytes()[HEAD:].decode(errors="replace").splitlines() for file in files}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrate", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of facts.json")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"nvidia_smi": smi(), "packages": packages(), "calibrated": []}
    for _ in range(3):
        facts["calibrated"].append(calibrated(options.calibrate))
    facts["measured"] = records(os.environ.get("GPUMEM_CACHE"))
    (options.out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    for one in facts["calibrated"]:
        print(one.get("row") or f"not measured: {one['failed']}")


if __name__ == "__main__":
    main()
