//! What is in the lists is tested: a layer, a function or an optimizer without a case fails here.
#![cfg(feature = "lower")]

mod common;

use common::random::{KINDS, network};
use gpumem_core::graph::Source;
use gpumem_core::layers::Entry;
use gpumem_core::layers::composite::COMPOSITES;
use gpumem_core::program::Op;
use gpumem_core::program::functions::Function;
use gpumem_core::train::optim::Optimizer;
use std::collections::BTreeSet;

/// Both backends run random networks, against differences of losses and against each other.
#[test]
fn random_networks_have_every_layer_operation_and_function() {
    let (mut layers, mut operations, mut functions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for kind in 0..KINDS {
        for (first, second) in (0..6).flat_map(|first| (0..6).map(move |second| (first, second))) {
            // After a layer whose weight can be tied.
            let (graph, _) = network(&[(12, 0, 0), (kind, first, second)], true);
            layers.extend(graph.rows.iter().map(|row| row.kind.clone()));
            for node in &graph.nodes {
                let Source::Op { op, .. } = &node.source else { continue };
                operations.insert(op.name());
                if let Op::Pointwise(op) = op {
                    functions.insert(op.function.name());
                }
            }
        }
    }
    let missing = |all: &[&'static str], found: &BTreeSet<&str>| -> Vec<&'static str> {
        all.iter().copied().filter(|name| !found.contains(name)).collect()
    };
    let layers = layers.iter().map(String::as_str).collect();
    assert_eq!(missing(&Entry::names(), &layers), [""; 0], "layers");
    // Those of inference with a cache come about when a network is lowered for it, rectifiers that keep bits when it is lowered for training,
    // normalised convolutions where somebody asks for them, maps read codes under `lora`, and `lengths` and `segments` mask steps and count
    // them: those have tests of their own on each backend.
    assert_eq!(
        missing(Op::NAMES, &operations),
        [
            "CachedAttention",
            "Positions",
            "CachedScan",
            "CachedConvolution",
            "CachedRecurrence",
            "CodedProduct",
            "WholeRecurrence",
            "Rectifier",
            "NormalizedConvolution",
            "SequenceMask",
            "SegmentPositions"
        ],
        "operations"
    );
    let names: Vec<&str> = Function::ALL.iter().map(|function| function.name()).collect();
    assert_eq!(missing(&names, &functions), [""; 0], "functions");
}

/// Names are unique, and in Rust's case.
#[test]
fn names() {
    let names: Vec<_> = with_composites().collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
    for name in names {
        assert!(name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric), "{name}");
    }
}

/// What is code in a column of the first table after a heading.
fn column<'t>(text: &'t str, heading: &str, column: usize) -> BTreeSet<&'t str> {
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("no `{heading}`"));
    let rows = text.lines().map(|line| line.trim_start_matches("//! ")).skip_while(|line| !line.starts_with('|'));
    let cells = rows.take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(column));
    let code = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // `Conv2d` of `Conv2d(o, k)`.
    code.filter_map(|code| code.split(|c: char| !c.is_alphanumeric()).next()).collect()
}

/// The text of a file, from the crate's folder.
fn read(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whoever comes from PyTorch finds every layer in the guide. Functions need no line there if their names are PyTorch's.
#[test]
fn the_guide_has_all_layers() {
    let guide = read("../docs/guide/porting.md");
    let named = column(&guide, "\n## Names\n", 2);
    let rows = read("src/program/functions.rs");
    let is_function = |layer: &&str| Entry::find(layer).is_some_and(|entry| entry.is_function());
    let is_known = |layer: &&str| named.contains(layer) || is_function(layer) && has_name_of_pytorch(&rows, layer);
    let missing: Vec<_> = with_composites().filter(|layer| !is_known(layer)).collect();
    assert_eq!(missing, [""; 0]);
}

/// True if the page of a function ends with PyTorch's name for it, and this is its own but for capitals: `torch.nn.SiLU()` of `Silu`.
fn has_name_of_pytorch(rows: &str, name: &str) -> bool {
    let (before, _) = rows.split_once(&format!("\n            {name}(")).unwrap_or_else(|| panic!("no row of {name}"));
    let (_, line) = before.rsplit_once("PyTorch: `").unwrap();
    let found = line.split_once('(').and_then(|(path, _)| path.rsplit('.').next());
    found.is_some_and(|found| found.eq_ignore_ascii_case(name))
}

/// The page of the layers links the page of every family, which lists its layers.
#[test]
fn the_page_of_layers_has_all_families() {
    let page = read("src/layers/mod.rs");
    let (_, list) = page.split_once("const FAMILIES").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    let families: Vec<&str> = list.lines().filter_map(|line| line.trim().strip_suffix("::LAYERS,")).collect();
    assert!(families.contains(&"norm"));
    let missing: Vec<_> = families.iter().filter(|family| !page.contains(&format!("]({family}) |"))).collect();
    assert_eq!(missing, [&""; 0]);
}

/// The settings list every optimizer, in the order of their numbers.
#[test]
fn settings_have_all_optimizers() {
    let (path, text) = ("../docs/reference/settings.md", read("../docs/reference/settings.md"));
    let names: Vec<String> = Optimizer::ROWS.iter().map(|row| format!("`{}`", row.name)).collect();
    let row = |line: &str| {
        let mut cells: Vec<&str> = line.split(" | ").collect();
        let names = names.join(", ");
        cells[1] = &names;
        cells.join(" | ")
    };
    let lines = text.lines().map(|line| if line.starts_with("| `optimizer` |") { row(line) } else { line.to_string() });
    let expected: String = lines.map(|line| line + "\n").collect();
    assert!(expected.contains(&names.join(", ")), "no row of `optimizer`");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path), expected).unwrap();
    } else {
        assert!(text == expected, "docs/reference/settings.md lacks optimizers; write it with `UPDATE_DOCS=1`");
    }
}

/// The names of all layers and composites.
fn with_composites() -> impl Iterator<Item = &'static str> {
    Entry::names().into_iter().chain(COMPOSITES.iter().map(|composite| composite.name))
}

/// Each is compared with what it is said to equal.
#[test]
fn composites_have_a_case() {
    let cases = read("../tests/modules/main.rs");
    let names = COMPOSITES.iter().map(|composite| composite.name);
    let missing: Vec<_> = names.filter(|name| !cases.contains(&format!(" {name}("))).collect();
    assert_eq!(missing, [""; 0]);
}

/// A layer's page begins with how it is written.
#[test]
fn pages_of_layers_begin_with_what_is_written() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/layers")];
    let mut sources = vec![read("src/program/functions.rs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { sources.push(std::fs::read_to_string(path).unwrap()) }
        }
    }
    // The first line of each comment.
    let mut first = BTreeSet::new();
    for source in &sources {
        let is_doc = |line: &str| line.trim_start().starts_with("///");
        let lines = std::iter::once("").chain(source.lines());
        let begun = lines.zip(source.lines()).filter(|(before, line)| !is_doc(before) && is_doc(line));
        let code = begun.filter_map(|(_, line)| line.trim_start().strip_prefix("/// `"));
        first.extend(code.filter_map(|code| code.split(|c: char| !c.is_alphanumeric()).next()));
    }
    let missing: Vec<_> = with_composites().filter(|layer| !first.contains(layer)).collect();
    assert_eq!(missing, [""; 0]);
}
