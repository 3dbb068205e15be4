#!/usr/bin/env python3
"""Checks that no file of a published package names a path outside of it: packaged tests and examples would not compile, or not run.

    scripts/package-check.py

Looks at the files that `cargo package` would take of every member that is published: at `include_str!`, `include_bytes!`, `include!` and
`#[path]`, whose file must be one of them, and at paths that begin in `CARGO_MANIFEST_DIR` and lead upwards. Prints each one that leads
elsewhere, and ends with exit code 1 if there is one.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A file that is named relative to the one that names it.
RELATIVE = re.compile(r'(?:\binclude(?:_str|_bytes)?!\s*\(\s*|#\[(?:cfg_attr\([^\]]*?,\s*)?path\s*=\s*)"([^"]+)"')
# A path that begins in the folder of the package: the first text after it on the next few lines.
MANIFEST = re.compile(r'"CARGO_MANIFEST_DIR"\s*\)\s*(?:\)\s*)?(?:,\s*|\.join\(\s*|\.parent\(\))("([^"]*)")?')
# One that is joined later to what began there.
JOINED = re.compile(r'\.join\(\s*"(\.\./[^"]*)"')


def packages():
    """The members of the workspace that are published, each with its folder."""
    text = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    published = [package for package in json.loads(text)["packages"] if package["publish"] != []]
    return {package["name"]: pathlib.Path(package["manifest_path"]).parent for package in published}


def files(name):
    """The files that a package has, relative to its folder."""
    command = ["cargo", "package", "--list", "--allow-dirty", "--offline", "--package", name]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.split("\n")) - {""}


def without_comments(text):
    """Lines that are no comments: documentation shows paths of users."""
    return "\n".join("" if line.lstrip().startswith("//") else line for line in text.split("\n"))


def outside(folder, inside):
    """`(file, line, path)` of every path that leads out of a package."""
    for file in sorted(inside):
        if not file.endswith(".rs") or not (folder / file).is_file():
            continue
        text = without_comments((folder / file).read_text())
        line = lambda match: text.count("\n", 0, match.start()) + 1
        for match in RELATIVE.finditer(text):
            path = os.path.normpath(pathlib.PurePosixPath(file).parent / match[1])
            if path not in inside:
                yield file, line(match), match[1]
        for match in MANIFEST.finditer(text):
            is_parent = match[0].endswith(".parent()")
            path = os.path.normpath((match[2] or ".").lstrip("/"))
            if is_parent or path.split("/")[0] == "..":
                yield file, line(match), "the parent of the package" if is_parent else match[2]
        if '"CARGO_MANIFEST_DIR"' in text:
            for match in JOINED.finditer(text):
                if not text[: match.start()].endswith('"CARGO_MANIFEST_DIR"))'):
                    yield file, line(match), match[1]


def main():
    found = [
        f"{folder.relative_to(ROOT) / file}:{line}: {path}"
        for name, folder in packages().items()
        for file, line, path in outside(folder, files(name))
    ]
    if found:
        print("these paths lead out of their package: move what they name, or leave the file out of the package with `exclude`")
        sys.exit("\n".join(found))
    print("every path of every package is in it")


if __name__ == "__main__":
    main()
