#!/usr/bin/env python3
"""Checks that packages are complete: what is published must compile without the rest of the repository.

    scripts/package-check.py            looks at the files of each package
    scripts/package-check.py --build    also packs them, and checks a crate of a user that depends on the packages

Looks at the files that `cargo package` would take of every member that is published: at `include_str!`, `include_bytes!`, `include!` and
`#[path]`, whose file must be one of them, and at paths that begin in `CARGO_MANIFEST_DIR` and lead upwards. Prints each one that leads
elsewhere, and each package without a licence or a README, and ends with exit code 1 if there is one.

With `--build` the packages are unpacked into a temporary folder. A crate outside of the workspace, with a network of two layers, takes `gpumem`
and the crates that it depends on from there. `cargo check` of that crate must succeed. The crates that `gpumem` does not depend on, such as the
zoo and the command, are packed only.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A file that is named relative to the one that names it.
RELATIVE = re.compile(r'(?:\binclude(?:_str|_bytes)?!\s*\(\s*|#\[(?:cfg_attr\([^\]]*?,\s*)?path\s*=\s*)"([^"]+)"')
# A path that begins in the folder of the package: the first text after it on the next few lines.
MANIFEST = re.compile(r'"CARGO_MANIFEST_DIR"\s*\)\s*(?:\)\s*)?(?:,\s*|\.join\(\s*|\.parent\(\))("([^"]*)")?')
# One that is joined later to what began there.
JOINED = re.compile(r'\.join\(\s*"(\.\./[^"]*)"')


# Files that every package has.
EXPECTED = ("LICENSE-APACHE", "LICENSE-MIT", "README.md")

# A crate of a user. The features bring every crate that `gpumem` can depend on.
MANIFEST_OF_USER = """[package]
name = "user-of-packages"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
gpumem = {{ version = "{version}", features = ["cuda", "train"] }}

[patch.crates-io]
{patches}"""
PROGRAM_OF_USER = """//! A network of two layers.
use gpumem::prelude::*;

network! {
    pub struct Two;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060] };

    fn forward(features: Features<64>) -> Logits<10> {
        [Relu, Linear(10)]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let net = Two::on(&gpumem::default_device()?)?;
    println!("{}", net.summary());
    Ok(())
}
"""


def metadata():
    """Returns what Cargo says of the workspace and its members."""
    text = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    return json.loads(text)


def is_published(package):
    return package["publish"] != []


def packages():
    """The members of the workspace that are published, each with its folder."""
    published = filter(is_published, metadata()["packages"])
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


def check_files():
    """Exits with a message unless each package is complete."""
    found, missing = [], []
    for name, folder in packages().items():
        inside = files(name)
        found += [f"{(folder / file).relative_to(ROOT)}:{line}: {path}" for file, line, path in outside(folder, inside)]
        missing += [f"{name}: {file}" for file in EXPECTED if file not in inside]
    if found:
        print("these paths lead out of their package: move what they name, or leave the file out of the package with `exclude`")
    if missing:
        print("these packages lack a file that every package has: " + ", ".join(missing))
    if found or missing:
        sys.exit("\n".join(found) or 1)
    print("every path of every package is in it")


def dependencies(name, members):
    """The members that a package depends on, and itself. Those of its tests do not count."""
    reached, open_ = {name}, [name]
    while open_:
        for dependency in members[open_.pop()]["dependencies"]:
            if dependency["kind"] != "dev" and dependency["name"] in members.keys() - reached:
                reached.add(dependency["name"])
                open_.append(dependency["name"])
    return sorted(reached)


def build():
    """Packs the workspace, and checks a crate of a user that depends on the packages."""
    workspace = metadata()
    members = {package["name"]: package for package in workspace["packages"]}
    unpublished = [name for name, package in members.items() if not is_published(package)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        command = ["cargo", "package", "--quiet", "--workspace", "--no-verify", "--allow-dirty", "--target-dir", folder / "packed"]
        for name in unpublished:
            command += ["--exclude", name]
        subprocess.run(command, cwd=ROOT, check=True)
        for packed in (folder / "packed/package").glob("*.crate"):
            with tarfile.open(packed) as archive:
                archive.extractall(folder / "packages", filter="data")
        used = dependencies("gpumem", members)
        paths = {name: folder / "packages" / f"{name}-{members[name]['version']}" for name in used}
        user = folder / "user"
        (user / "src").mkdir(parents=True)
        patches = "".join(f"{name} = {{ path = {json.dumps(str(path))} }}\n" for name, path in paths.items())
        manifest = MANIFEST_OF_USER.format(version=members["gpumem"]["version"], patches=patches)
        (user / "Cargo.toml").write_text(manifest)
        (user / "src/main.rs").write_text(PROGRAM_OF_USER)
        # The versions of dependencies that the repository is tested with.
        shutil.copy(ROOT / "Cargo.lock", user)
        # A folder of its own in the repository's target directory: profiles of a user's crate are not those of the workspace, so that
        # nothing could be shared.
        target = ["--target-dir", pathlib.Path(workspace["target_directory"]) / "package-check"]
        subprocess.run(["cargo", "check", *target], cwd=user, check=True)
        # The next packages lie in another temporary folder, and cannot use what was built of these.
        clean = [argument for name in used for argument in ("--package", name)]
        subprocess.run(["cargo", "clean", "--quiet", *target, *clean], cwd=user, check=True)
    print(f"a crate that depends on the packages of {', '.join(used)} compiles")


def main():
    if sys.argv[1:] not in ([], ["--build"]):
        sys.exit(__doc__)
    check_files()
    if "--build" in sys.argv:
        build()


if __name__ == "__main__":
    main()
