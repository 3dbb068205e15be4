#!/usr/bin/env python3
"""Writes what is generated from gpumem-core/data/cards.csv:

* gpumem-core/src/cards/table.rs: a constant for each card, all of them by usable memory, and the list of cards whose Cargo feature is on;
* the region between two marker comments in Cargo.toml: the features themselves.

The features are also printed. Run it from anywhere after a change to the table.
"""

import csv
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "gpumem-core" / "data" / "cards.csv"
BEGIN = "# --- cards (scripts/cards.py) ---"
END = "# --- end of cards ---"
SPELLINGS = {
    "ti": "Ti", "super": "SUPER", "laptop": "Laptop", "ada": "Ada", "pcie": "PCIe", "sxm": "SXM", "nvl": "NVL",
    "xp": "Xp", "jetson": "Jetson", "orin": "Orin", "nano": "Nano", "xavier": "Xavier", "thor": "Thor",
    "quadro": "Quadro", "spark": "Spark", "blackwell": "Blackwell", "pascal": "(Pascal)", "ecc": "(ECC on)",
}


def words(slug):
    """The words of a slug. Consumer names are written in one piece: rtx4070tisuper is RTX 4070 Ti SUPER."""
    found = []
    for part in slug.split("-"):
        match = re.fullmatch(r"(gtx|rtx)(\d{4})(ti)?(super)?", part)
        found += [word for word in match.groups() if word] if match else [part]
    return found


def constant(slug):
    return "_".join(words(slug)).upper()


def aliases(rows):
    """Other names of cards, each with the row of its card: what people write when they leave the size or the form out."""
    return [(alias, row) for row in rows for alias in row["aliases"].split()]


def short_name(slug):
    slug, _, profile = slug.partition("-mig-")
    if profile:
        return f"{short_name(slug)} MIG {profile.replace('-', '.')}"
    spelled = [SPELLINGS.get(word, word.upper()) for word in words(slug)]
    # Data centre cards carry their memory or form in the name: A100-40GB, H100-PCIe.
    if re.fullmatch(r"[A-Z]{1,2}\d+", spelled[0]) and re.fullmatch(r"\d+GB|PCIe|SXM|NVL", spelled[-1]):
        return "-".join(spelled)
    return " ".join(spelled)


def text(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def optional(value, literal=lambda value: value):
    return f"Some({literal(value)})" if value else "None"


def float_literal(value):
    return value if "." in value else value + ".0"


def integer(value):
    return f"{int(value):_}" if int(value) >= 10_000 else value


def host(row):
    """MiB that the host takes of the memory that CUDA sees."""
    return int(row["host_mib"] or 0)


def usable(row):
    """MiB that a process can have."""
    return int(row["usable_mib"]) - host(row)


def memory(row, with_basis=False):
    """How much a process can have, in words."""
    basis = f" ({row['usable_basis']})" if with_basis else ""
    if host(row):
        return f"{int(row['usable_mib']):,} MiB seen{basis}, {host(row):,} MiB of it left to the host"
    return f"{int(row['usable_mib']):,} MiB usable{basis}"


def host_rate(row):
    """10^9 bytes a second each way between host and card. Of PCIe 4.0 with 16 lanes and page-locked memory 25 of the 31.5 are measured,
    and as much of others."""
    link = row["host_link"]
    if match := re.fullmatch(r"PCIe (\d)\.0 x(\d+)", link):
        return 25 * 2.0 ** (int(match[1]) - 4) * int(match[2]) / 16
    # A copy within one memory reads and writes it. The vendor states 450 for each direction of NVLink-C2C.
    return {"shared memory": float(row["bandwidth_gbs"]) / 2, "NVLink-C2C": 450 * 25 / 31.5}[link]


def card(row):
    major, minor = row["compute_capability"].split(".")
    fields = [
        ("slug", text(row["slug"])),
        ("constant", text(constant(row["slug"]))),
        ("short_name", text(short_name(row["slug"]))),
        ("name", text(row["name"])),
        ("architecture", "Architecture::" + row["arch"].split()[0]),
        ("compute_capability", f"({major}, {minor})"),
        ("spec_mib", integer(row["vram_spec_mib"])),
        ("usable_mib", integer(row["usable_mib"])),
        ("basis", "Basis::" + row["usable_basis"].capitalize()),
        ("source", text(row["usable_source"])),
        ("host_mib", integer(row["host_mib"] or "0")),
        ("host_source", text(row["host_source"])),
        ("memory", text(row["mem_type"])),
        ("bus_bits", optional(row["bus_bits"])),
        ("bandwidth_gbs", optional(row["bandwidth_gbs"], float_literal)),
        ("host_link", text(row["host_link"])),
        ("host_gbs", f"{round(host_rate(row), 2)}"),
        ("multiprocessors", optional(row["sm_count"])),
        ("cuda_cores", optional(row["cuda_cores"], integer)),
        ("fp32_tflops", optional(row["fp32_tflops"], float_literal)),
        ("tensor_fp16_tflops", optional(row["tensor_fp16_dense_tflops"], float_literal)),
        ("has_multicast", "true" if row["multicast"] else "false"),
        ("notes", text(row["notes"])),
    ]
    # Four lines a card, or the table would be thousands of lines long.
    written = [f"{name}: {value}," for name, value in fields]
    return "\n".join([
        f"/// {row['name']}: {memory(row, with_basis=True)}. Cargo feature `{row['slug']}`.",
        f"pub const {constant(row['slug'])}: Card = Card {{ " + " ".join(written[:4]),
        "    " + " ".join(written[4:12]),
        "    " + " ".join(written[12:]) + " };",
    ])


def columns():
    """The names of the columns of the table."""
    return next(csv.reader(TABLE.open(newline="")))


def table(rows):
    by_usable = sorted(rows, key=lambda row: (usable(row), row["slug"]))
    parts = ["//! Generated from `data/cards.csv` by `scripts/cards.py`: change the table, then run the script.", ""]
    parts += ["use super::{Alias, Architecture, Basis, Card};", ""]
    parts += [card(row) for row in rows]
    for alias, row in aliases(rows):
        parts += [f"/// {row['name']}, [`{constant(row['slug'])}`]: the smallest card that the name can mean. Cargo feature `{alias}`."]
        parts += [f"pub const {constant(alias)}: Card = {constant(row['slug'])};"]
    parts += ["", "/// Every card, by usable memory, the smallest first."]
    parts += ["pub const ALL: &[Card] = &["] + [f"    {constant(row['slug'])}," for row in by_usable] + ["];", ""]
    parts += ["/// Other names of cards."]
    parts += ["pub const ALIASES: &[Alias] = &["]
    for alias, row in aliases(rows):
        parts += [f"    Alias {{ slug: {text(alias)}, constant: {text(constant(alias))}, card: &{constant(row['slug'])} }},"]
    parts += ["];", ""]
    parts += ["/// The columns of `data/cards.csv`, in order."]
    parts += ["#[doc(hidden)]", "pub const COLUMNS: &[&str] = &["] + [f"    {text(name)}," for name in columns()] + ["];", ""]
    return "\n".join(parts)


def features(rows):
    slugs = [row["slug"] for row in rows]
    others = aliases(rows)
    taken = set(slugs) | {alias for alias, _ in others}
    lines = []
    for row in rows:
        lines.append(f"## {row['name']}: {memory(row)}.")
        lines.append(f'{row["slug"]} = ["gpumem-macros/{row["slug"]}"]')
    for alias, row in others:
        lines.append(f"## {row['name']}, the smallest card that the name can mean.")
        lines.append(f'{alias} = ["{row["slug"]}"]')
    lines.append("## The same names without dashes.")
    for slug in slugs + [alias for alias, _ in others]:
        plain = slug.replace("-", "")
        # crates.io takes 300 features a crate: those of slices would use up a tenth of them.
        if plain not in taken and "-mig-" not in slug:
            taken.add(plain)
            lines.append(f'{plain} = ["{slug}"]')
    return "\n".join(lines) + "\n"


SELECTED = """
/// Expands to the cards whose Cargo feature the calling crate has on, as a `&[Card]` in the order of the table.
///
/// The compiler looks up a `cfg` in the crate that calls the macro: `gpumem` and its language have the features, this crate has none.
#[doc(hidden)]
#[macro_export]
macro_rules! selected_cards {
    () => {
        &[
"""


def selected(rows):
    """The macro that lists the cards of Cargo features. Aliases turn on the feature of their card."""
    entries = [f'            #[cfg(feature = "{row["slug"]}")] $crate::cards::{constant(row["slug"])},\n' for row in rows]
    return SELECTED + "".join(entries) + "        ]\n    };\n}\n"


def main():
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (ROOT / "gpumem-core" / "src" / "cards" / "table.rs").write_text(table(rows) + selected(rows), encoding="utf-8")
    block = features(rows)
    write(ROOT / "Cargo.toml", block)
    # What a card is called otherwise turns on the card's own feature. The macros hand theirs on to the language, which checks networks.
    write(ROOT / "gpumem-macros" / "Cargo.toml", "".join(f'{row["slug"]} = ["gpumem-language/{row["slug"]}"]\n' for row in rows))
    write(ROOT / "gpumem-language" / "Cargo.toml", "".join(f"{row['slug']} = []\n" for row in rows))
    print(block, end="")


def write(manifest, block):
    """Puts `block` between the two comments of a manifest."""
    region = f"{BEGIN}\n{block}{END}\n"
    old = manifest.read_text(encoding="utf-8")
    if BEGIN in old:
        head, rest = old.split(BEGIN, 1)
        new = head + region + rest.split(END + "\n", 1)[1]
    else:
        # At the end of [features], which ends where the next section begins.
        start = old.index("[features]\n")
        following = old.find("\n[", start)
        end = len(old) if following < 0 else following
        new = old[:end].rstrip("\n") + "\n" + region + old[end:]
    if new != old:
        manifest.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
