#!/usr/bin/env python3
"""Counts how readable the repository is: words of comments, names, modules, pages, and files to touch for an addition.

    scripts/house.py             prints each count, its bound and its goal
    scripts/house.py --check     exits with 1 if a count is above its bound
    scripts/house.py --update    lowers each bound to today's count; no bound ever rises

The bounds are lines of `scripts/house.txt`: what CI holds today. A goal is where a count should be; a count without a goal is for information.
"""

import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = ROOT / "scripts/house.txt"

FILES = [
    path
    for path in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    if (ROOT / path).is_file()
]


@cache
def text(path):
    return (ROOT / path).read_text(errors="replace")


def lines(path):
    return text(path).count("\n")


def is_test(path):
    return re.search(r"(^|/)(tests|fixtures)(/|\.rs$)|^messages/|\.snap$", path) is not None


SOURCES = [
    path for path in FILES if path.endswith(".rs") and "/src/" in "/" + path and not is_test(path) and "/examples/" not in path
]
KERNELS = [path for path in FILES if path.endswith((".cu", ".cuh")) and "/kernels/" in path and not is_test(path)]
PAGES = [path for path in FILES if path.endswith(".md")]


# Comments.

PRONOUNS = re.compile(r"(What|Whether|Where|How|Which|That|The same)\b")
# Words that the glossary replaces, and the most of each that read well.
WORDS = {"behind": 40, "in front of": 40, "at hand": 40, "is told": 40}


def first_lines(path):
    """The first line of each block of documentation comments."""
    found, before = [], False
    for line in text(path).splitlines():
        comment = re.match(r"\s*//[/!] ?(.*)", line)
        if comment and not before:
            found.append(comment.group(1))
        before = comment is not None
    return found


def count_comments():
    first = [line for path in SOURCES for line in first_lines(path)]
    yield "documentation comments", len(first), None
    yield "documentation comments that begin with What, Whether, Where, How, Which, That, The same", sum(
        PRONOUNS.match(line) is not None for line in first
    ), 400
    prose = [text(path) for path in SOURCES + KERNELS + PAGES]
    for word, goal in WORDS.items():
        yield f"`{word}` in sources, kernels and pages", sum(
            len(re.findall(rf"\b{word}\b", it)) for it in prose
        ), goal


# Names.

# Names of types that have had several meanings.
CROWDED = "Order Level Guess Setting Search Given Piece Way Kept Held Part Step Run Room Choice".split()
DEFINITION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type) ([A-Z]\w*)", re.M)


def count_names():
    homes = defaultdict(set)
    for path in SOURCES:
        for name in DEFINITION.findall(text(path)):
            homes[name].add(path)
    yield "types", sum(map(len, homes.values())), None
    for name in CROWDED:
        yield f"files that define a type `{name}`", len(homes[name]), 1


# Modules.


def without_comments(source):
    return re.sub(r"#\[cfg\(test\)\]\s*mod tests \{.*\Z", "", re.sub(r"//[^\n]*", "", source), flags=re.S)


def flattened(tree):
    """The paths of a tree such as `a::{b, c::{d, e as f}}`."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        return [re.sub(r"\s+as\s+\w+$", "", head).strip()]
    found, depth, start = [], 0, 0
    body = rest.rstrip().removesuffix("}") + ","
    for at, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found += [head + path for path in flattened(body[start:at]) if path]
            start = at + 1
    return found


class Modules:
    """Which files of a crate name items of which others."""

    def __init__(self):
        self.files = {}
        self.names = {}
        for path in SOURCES:
            crate, _, inside = ("/" + path).rpartition("/src/")
            parts = inside.removesuffix(".rs").split("/")
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            self.files[crate, tuple(parts)] = path
            self.names[path] = (crate, tuple(parts))
        self.arrows = {path: set(self.named(path)) for path in SOURCES}

    def uses(self, path):
        source = without_comments(text(path))
        uses = [flat for use in re.findall(r"\buse\s+([^;]+);", source) for flat in flattened(use)]
        return uses + re.findall(r"\b((?:crate|super|self)(?:::\w+)+)", source)

    def absolute(self, path, use):
        crate, module = self.names[path]
        parts = [part.strip() for part in use.split("::")]
        base = list(module)
        if parts[0] == "crate":
            return [*parts[1:]]
        if parts[0] in ("super", "self"):
            while parts and parts[0] in ("super", "self"):
                base = base[:-1] if parts[0] == "super" else base
                parts.pop(0)
            return base + parts
        return base + parts if (crate, (*module, parts[0])) in self.files else None

    def owner(self, path, item, depth=0):
        """The file that defines an item which `path` may hand on from one of its own."""
        defines = rf"\b(?:fn|struct|enum|trait|type|const|static|macro_rules!)\s+{re.escape(item)}\b"
        if not item or depth > 4 or re.search(defines, text(path)) or not path.endswith(("mod.rs", "lib.rs")):
            return path
        for use in self.uses(path):
            if use.split("::")[-1].strip() == item:
                found = self.target(path, use, depth + 1)
                if found and found != path:
                    return found
        return None

    def target(self, path, use, depth=0):
        full = self.absolute(path, use)
        if full is None:
            return None
        crate, _ = self.names[path]
        end = len(full)
        while end and (crate, tuple(full[:end])) not in self.files:
            end -= 1
        file = self.files.get((crate, tuple(full[:end])))
        return file and self.owner(file, full[end] if end < len(full) else "", depth)

    def named(self, path):
        for use in self.uses(path):
            target = self.target(path, use)
            # The file of a folder and those inside it name each other: that is no circle.
            faces = {Path(it).name for it in (path, target or "")}
            if target and target != path and "lib.rs" not in faces and not self.are_related(path, target):
                yield target

    def are_related(self, one, other):
        (crate, a), (another, b) = self.names[one], self.names[other]
        shorter = min(len(a), len(b))
        return crate == another and a[:shorter] == b[:shorter]

    def circles(self):
        """Sets of files of which each reaches all others."""
        reached = {path: self.reach(path) for path in SOURCES}
        found, seen = [], set()
        for path in SOURCES:
            circle = {other for other in reached[path] if path in reached[other]}
            if path not in seen and len(circle) > 1:
                found.append(sorted(circle))
                seen |= circle
        return sorted(found, key=len, reverse=True)

    def later_stages(self):
        """Files of a stage of lowering that name an item of a later stage."""
        folders = [f"gpumem-core/src/lower/{stage}/" for stage in STAGES]
        stage = {path: at for path in SOURCES for at, folder in enumerate(folders) if path.startswith(folder)}
        return [path for path, at in stage.items() if any(stage.get(target, at) > at for target in self.arrows[path])]

    def reach(self, path):
        reached, open_ = set(), [path]
        while open_:
            for target in self.arrows[open_.pop()] - reached:
                reached.add(target)
                open_.append(target)
        return reached


# The stages of lowering, in order. None imports a later one.
STAGES = ["rewrite", "differentiate", "schedule", "emit", "choose"]

LOOSE = {
    "gpumem-core/src/lower": 7,
    "gpumem-core/src/memory": 12,
    "gpumem-language/src": 9,
    "gpumem-cuda/kernels": 6,
    "gpumem-cuda/src/operations": 8,
    "gpumem-cpu/src/kernels": 6,
}


def count_modules():
    modules = Modules()
    circles = modules.circles()
    yield "circles of files beside each other", len(circles), 1
    yield "files in circles", sum(map(len, circles)), 51
    yield "files of a stage of lowering that name a later stage", len(modules.later_stages()), 0
    for folder, goal in LOOSE.items():
        yield f"loose files in {folder}", sum(str(Path(path).parent) == folder for path in FILES), goal
    written = [path for path in SOURCES if "Generated" not in text(path)[:200]]
    yield "lines of the longest source file", max(map(lines, written)), 600
    yield "source files of more than 600 lines", sum(lines(path) > 600 for path in written), 0
    yield "calls of `leak` in sources", sum(len(re.findall(r"\.leak\(\)|Box::leak", text(path))) for path in SOURCES), 0
    sums = [path for path in SOURCES if re.search(r"\blive [+-]= ", text(path))]
    yield "files that sum live bytes", len(sums), 4


# The door.

EXPECTED = """
.github/workflows/ci.yml .github/workflows/nightly.yml .github/ISSUE_TEMPLATE/bug.yml .github/pull_request_template.md .github/dependabot.yml
CONTRIBUTING.md ARCHITECTURE.md SECURITY.md docs/design/glossary.md
""".split()


def count_door():
    yield "lines of README.md", lines("README.md"), 100
    yield "characters of the longest line of README.md", max(map(len, text("README.md").splitlines())), 130
    yield "pages loose in docs/", sum(str(Path(path).parent) == "docs" for path in FILES), 2
    yield "missing files of " + ", ".join(Path(path).name for path in EXPECTED), sum(path not in FILES for path in EXPECTED), 0
    manifests = [path for path in FILES if re.fullmatch(r"([\w-]+/)?Cargo\.toml", path)]
    published = [path for path in manifests if "[package]" in text(path) and "publish = false" not in text(path)]
    yield "published crates", len(published), None
    for field in ("keywords", "categories", "documentation", "readme", "metadata.docs.rs"):
        yield f"published crates without `{field}`", sum(field not in text(path) for path in published), 0
    for file in ("README.md", "LICENSE-MIT", "LICENSE-APACHE"):
        yield f"published crates without {file}", sum(
            str(Path(path).parent / file) not in FILES and not (ROOT / path).parent.joinpath(file).exists() for path in published
        ), 0


# Additions: source files that name one of its kind, and the files that a new one should touch.

ADDITIONS = [
    ("function of one number", "Softsign", r"\b[Ss]oftsign\b", 1),
    ("layer of known operations", "ChannelShuffle", r"\b(ChannelShuffle|channel_shuffle)\b", 2),
    ("optimizer of elements", "Lion", r"\b[Ll]ion\b", 2),
    ("loss of elements", "Huber", r"\b[Hh]uber\b", 1),
    ("loss with a kernel", "CosineEmbedding", r"\b(CosineEmbedding|cosine_embedding)\b", 5),
    ("operation", "L2Norm", r"\b(L2Norm|l2_norm)\b", 8),
    ("operation with a cached twin", "SelectiveScan", r"\b(SelectiveScan|selective_scan)\b", 12),
]


def count_additions():
    candidates = [
        path
        for path in FILES
        if path.endswith((".rs", ".cu", ".cuh", ".py", ".toml"))
        and not is_test(path)
        and path != "scripts/house.py"
        # What reads foreign models may name every operation, and works without the new one.
        and not path.startswith(("gpumem-zoo/src", "gpumem-import/", "examples/"))
    ]
    for kind, name, pattern, goal in ADDITIONS:
        yield f"source files that name {name}, as an added {kind} would", sum(
            # A comment may name anything.
            re.search(pattern, without_comments(text(path))) is not None for path in candidates
        ), goal


def read_bounds():
    if not BOUNDS.exists():
        return {}
    pairs = (line.split(maxsplit=1) for line in BOUNDS.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(number) for number, name in pairs}


def main():
    counts = [count_comments, count_names, count_modules, count_door, count_additions]
    rows = [row for count in counts for row in count()]
    bounds = read_bounds()
    above = [(name, value, bounds[name]) for name, value, _ in rows if value > bounds.get(name, value)]
    if "--update" in sys.argv:
        head = "# The bounds of `scripts/house.py --check`. `--update` lowers them; none rises.\n"
        held = [(min(value, bounds.get(name, value)), name) for name, value, goal in rows if goal is not None]
        BOUNDS.write_text(head + "".join(f"{number} {name}\n" for number, name in held))
        return 0
    unknown = [name for name, _, goal in rows if goal is not None and name not in bounds]
    if "--check" not in sys.argv:
        print("  today   bound    goal")
        for name, value, goal in rows:
            print(f"{value:7} {bounds.get(name, ''):>7} {'' if goal is None else goal:>7}  {name}")
        for circle in Modules().circles():
            print(f"circle of {len(circle)}:", " ".join(circle[:8]), "..." if len(circle) > 8 else "")
    for name, value, bound in above:
        print(f"{name}: {value}, and was {bound}; see CONTRIBUTING.md", file=sys.stderr)
    for name in unknown:
        print(f"{name}: has no bound; run `scripts/house.py --update`", file=sys.stderr)
    return int(bool(above or unknown) and "--check" in sys.argv)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # The reader has seen enough, as `head` has. Nothing is left to print.
        sys.stderr.close()
