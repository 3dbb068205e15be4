//! Inputs with which the targets begin: networks of this repository, and encodings that the macro and the library make of them.

use crate::tokens_of;
use gpumem_core::cards::ALL;
use gpumem_core::lower::Blueprint;
use proc_macro2::{TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// Folders with networks, relative to the repository's root.
const FOLDERS: [&str; 4] = ["tests", "examples", "gpumem-zoo/src", "gpumem-cuda/tests"];

/// The most characters of a text. Larger networks take long and find nothing that small ones do not.
const LONGEST: usize = 2500;

/// A macro call and its tokens.
struct Written {
    name: String,
    tokens: TokenStream,
}

/// Collects the macro calls in a file.
#[derive(Default)]
struct Macros(Vec<Written>);

impl<'a> Visit<'a> for Macros {
    fn visit_macro(&mut self, found: &'a syn::Macro) {
        let name = found.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        self.0.push(Written { name, tokens: found.tokens.clone() });
    }
}

/// Returns the Rust files in a folder and below it, in the order of their paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let within = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    paths.into_iter().flat_map(within).filter(is_source).collect()
}

/// Returns the contents of macros in this repository that are not too long.
fn macros(is_wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Macros::default();
    for path in FOLDERS.iter().flat_map(|folder| files(&root.join(folder))) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(file) = syn::parse_file(&text) {
            found.visit_file(&file);
        }
    }
    let wanted = found.0.into_iter().filter(|written| is_wanted(&written.name));
    let mut texts: Vec<Vec<u8>> = wanted.map(|written| written.tokens.to_string().into_bytes()).collect();
    texts.retain(|text| text.len() <= LONGEST);
    texts.sort();
    texts.dedup();
    texts
}

/// Returns the files in a folder of `seeds`, which is next to this one.
pub fn written(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(folder);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file that was just found")).collect()
}

fn is_sound(network: &[u8]) -> bool {
    tokens_of(network).is_some_and(|tokens| !gpumem_language::network(tokens).to_string().contains("compile_error"))
}

/// Returns networks without mistakes.
pub fn networks() -> Vec<Vec<u8>> {
    let own = macros(|name| name == "network").into_iter().filter(|text| is_sound(text));
    [written("network"), own.collect()].concat()
}

/// Returns networks as [`networks`] does, each alone and, with modules of blocks after it, in a file.
pub fn sources() -> Vec<Vec<u8>> {
    let blocks: &[u8] = b"blocks! { pub mod parts { fn twice(n: usize) -> Block { [repeat(2, Linear(n))] } } }";
    let in_file = |text: &Vec<u8>| [&b"network! { "[..], text, b" } ", blocks].concat();
    let alone = networks();
    let used = b"network! { pub struct Net; use blocks parts; fn forward(x: Features<8>) -> Features<8> { [parts::twice(8)] } } ";
    let mut all: Vec<Vec<u8>> = alone.iter().map(in_file).collect();
    all.push([&used[..], blocks].concat());
    [alone, all].concat()
}

/// Returns contents of macros other than `network!`.
pub fn items() -> Vec<Vec<u8>> {
    let own = macros(|name| ["blocks", "operation", "fits", "max_batch"].contains(&name));
    [written("items"), own].concat()
}

/// Returns the blueprint in the expansion of a network. `None` if it has none.
fn blueprint_of(tokens: TokenStream) -> Option<Vec<u8>> {
    let mut trees = tokens.into_iter();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(name) if name == "__BLUEPRINT" => {
                return trees.find_map(|tree| match tree {
                    TokenTree::Literal(literal) => {
                        Some(syn::parse_str::<syn::LitByteStr>(&literal.to_string()).ok()?.value())
                    }
                    _ => None,
                });
            }
            TokenTree::Group(group) => {
                if let Some(found) = blueprint_of(group.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}

fn encoded_networks() -> Vec<Vec<u8>> {
    let expanded = networks().into_iter().filter_map(|text| Some(gpumem_language::network(tokens_of(&text)?)));
    expanded.filter_map(blueprint_of).collect()
}

/// Returns blueprints, and programs to which they are lowered.
pub fn blueprints() -> Vec<Vec<u8>> {
    let blueprints = encoded_networks();
    let programs = blueprints.iter().filter_map(|bytes| Some(Blueprint::decode(bytes)?.inference().ok()?.encode()));
    [programs.collect(), blueprints.clone()].concat()
}

/// Returns the texts and blueprints of records, with a 0 between them.
pub fn records() -> Vec<Vec<u8>> {
    let record = |(number, blueprint): (usize, Vec<u8>)| {
        let is_trained = Blueprint::decode(&blueprint).is_some_and(|blueprint| blueprint.training.is_some());
        let settings = r#"{"precision":"F32","headroom":1024,"conv_workspace":268435456,"cards":["t4"]}"#;
        let train = if is_trained { settings } else { "null" };
        let text = format!(
            r#"{{"name":"Net{number}","file":"src/net.rs","line":{number},"generic":false,"of":{{"file":"src/net.rs","line":15}},
            "selected":["l4"],"settings":{{"train":{train},"infer":{settings}}},
            "train":{{"batch":4,"weights":1}},"infer":{{"batch":2}}}}"#
        );
        [&[1], text.as_bytes(), &[0], &blueprint].concat()
    };
    encoded_networks().into_iter().enumerate().map(record).collect()
}

/// Returns files of the kernel cache.
pub fn caches() -> Vec<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("gpumem-fuzz-seeds-{}", std::process::id()));
    let cache = gpumem_cuda::cache::Cache::at(Some(folder.clone()));
    cache.put("key", b"some compiled code");
    let kernel = std::fs::read(folder.join("key.cubin")).expect("a folder for temporary files");
    let _ = std::fs::remove_dir_all(folder);
    let measured = "context 402653184 88080384\nnetwork 5f0c 104857600 20971520 31457280 5242880 4194304 -\n\
                    network a1 1 2 3 4 18446744073709551615 17\n";
    vec![[&[0], &kernel[..]].concat(), [&[1], measured.as_bytes()].concat()]
}

/// Returns values of `GPUMEM_CARDS`, `GPUMEM_VRAM` and `GPUMEM_HEADROOM`, one a line.
pub fn environments() -> Vec<Vec<u8>> {
    let all: Vec<&str> = ALL.iter().map(|card| card.slug).collect();
    ["t4,l4\n8GiB,11.5GiB\n1GiB", "rtx3060\n\n0", "\n24GB\n512MiB", "H100-SXM, a100 80gb\n1024\n", &all[..60].join(",")]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
