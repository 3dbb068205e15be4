//! Fuzz targets: code that reads foreign text or files must not panic, hang, use unbounded memory, or expand to invalid Rust.
//!
//! A target is a function that takes bytes. `cargo fuzz run TARGET` calls it on nightly, guided by coverage:
//!
//! ```text
//! cargo +nightly fuzz run network -- -timeout=2 -rss_limit_mb=1024
//! ```
//!
//! On stable each target is a program of its own, which changes known inputs at random:
//!
//! ```text
//! cd fuzz
//! cargo run --release --bin network -- --seconds 60 --seed 1
//! ```
//!
//! It stops at the first input that breaks a rule, and prints the input and how to run it again. See [`runner`].

mod files;
mod mutate;
mod numbers;
mod runner;
mod seeds;

pub use files::{cifar, csv, events, idx, images, npy, npz, onnx, pickle, pt2, safetensors, shards, states, tokens};
pub use runner::{allocated, any, main};

use gpumem_core::cards::{ALL, find, parse_vram};
use gpumem_core::lower::Blueprint;
use gpumem_core::memory::record::{MAGIC, digest};
use gpumem_core::memory::refusal::together;
use gpumem_core::memory::target_cards::{Environment, TargetCards};
use gpumem_core::program::Program;
use gpumem_language::source::{Overrides, Text};
use numbers::Numbers;
use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

/// A function to fuzz, with its seeds: the inputs that mutation starts from.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
    mutate: fn(&mut Numbers, &[Vec<u8>]) -> Vec<u8>,
    most: Most,
}

/// The most bytes of memory that an input may use at once.
#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    /// Bytes that are added for each byte of the input.
    each: usize,
}

impl Most {
    /// The memory of a compiler, for a text of any length: 1 GiB.
    const OF_A_TEXT: Most = Most { bytes: 1 << 30, each: 0 };
    /// Ten times the size of a file that is read, and 8 MiB for buffers, compressed arrays and small images.
    const OF_A_FILE: Most = Most { bytes: 8 << 20, each: 10 };

    /// Returns the bytes that an input of this length may take.
    fn of(self, length: usize) -> usize {
        self.bytes + self.each * length
    }
}

impl Target {
    const fn text(
        name: &'static str,
        run: fn(&[u8]),
        seeds: fn() -> Vec<Vec<u8>>,
        mutate: fn(&mut Numbers, &[Vec<u8>]) -> Vec<u8>,
    ) -> Target {
        Target { name, run, seeds, mutate, most: Most::OF_A_TEXT }
    }

    const fn file(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
        Target { name, run, seeds, mutate: mutate::file, most: Most::OF_A_FILE }
    }
}

/// All targets, by name.
const TARGETS: [Target; 21] = [
    Target::text("network", network, seeds::networks, mutate::tokens),
    Target::text("items", items, seeds::items, mutate::tokens),
    Target::text("source", source, seeds::sources, mutate::tokens),
    Target::text("record", record, seeds::records, mutate::record),
    Target::text("blueprint", blueprint, seeds::blueprints, mutate::bytes),
    Target::text("caches", caches, seeds::caches, mutate::bytes),
    Target::text("environment", environment, seeds::environments, mutate::text),
    Target::file("safetensors", safetensors, files::seeds::safetensors),
    Target::file("shards", shards, files::seeds::shards),
    Target::file("pickle", pickle, files::seeds::pickle),
    Target::file("idx", idx, files::seeds::idx),
    Target::file("npy", npy, files::seeds::npy),
    Target::file("npz", npz, files::seeds::npz),
    Target::file("csv", csv, files::seeds::csv),
    Target::file("images", images, files::seeds::images),
    Target::file("cifar", cifar, files::seeds::cifar),
    Target::file("tokens", tokens, files::seeds::tokens),
    Target::file("states", states, files::seeds::states),
    Target::file("events", events, files::seeds::events),
    Target { most: Most::OF_A_TEXT, ..Target::file("pt2", pt2, files::seeds::pt2) },
    Target { most: Most::OF_A_TEXT, ..Target::file("onnx", onnx, files::seeds::onnx) },
];

/// Returns the tokens of a text. `None` if its brackets do not match.
fn tokens_of(data: &[u8]) -> Option<TokenStream> {
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// Frees the source locations of all tokens, which are stored for each thread.
fn forget_places() {
    proc_macro2::extra::invalidate_current_thread_spans();
}

/// Panics unless an expansion can be parsed as a `T`.
fn assert_parses<T: syn::parse::Parse>(what: &str, expansion: &TokenStream) {
    if let Err(error) = syn::parse2::<T>(expansion.clone()) {
        panic!("{what} expands to what is no Rust: {error}\n{expansion}");
    }
}

/// Panics unless an attribute expands a module to valid Rust. An input that is not a module never reaches the attribute.
fn assert_module(what: &str, module: &TokenStream, expand: impl FnOnce(TokenStream) -> TokenStream) {
    let expansion = expand(module.clone());
    if syn::parse2::<syn::ItemMod>(module.clone()).is_ok() {
        assert_parses::<syn::File>(what, &expansion);
    }
}

/// Expands an input as the contents of `network!`, and of a module with `#[network_mod]`.
pub fn network(data: &[u8]) {
    let Some(tokens) = tokens_of(data) else { return };
    assert_parses::<syn::File>("`network!`", &gpumem_language::network(tokens.clone()));
    let module = quote!(mod m { #tokens });
    assert_module("`#[network_mod]`", &module, |module| gpumem_language::network_mod(TokenStream::new(), module));
    forget_places();
}

/// Expands an input as the contents of the other macros: `blocks!`, `#[blocks_mod]`, `operation!`, `fits!`, `max_batch!`.
pub fn items(data: &[u8]) {
    let Some(tokens) = tokens_of(data) else { return };
    assert_parses::<syn::File>("`blocks!`", &gpumem_language::blocks(tokens.clone()));
    let arguments = tokens.clone();
    let module: TokenStream = "mod m { fn f() -> Block { [Relu] } }".parse().expect("tokens");
    assert_module("`#[blocks_mod]`", &module, |module| gpumem_language::blocks_mod(arguments, module));
    let module = quote!(mod m { #tokens });
    assert_module("`#[blocks_mod]`", &module, |module| gpumem_language::blocks_mod(TokenStream::new(), module));
    assert_parses::<syn::File>("`operation!`", &gpumem_language::operation(tokens.clone()));
    assert_parses::<syn::File>("`fits!`", &gpumem_language::fits(tokens.clone()));
    assert_parses::<syn::Expr>("`max_batch!`", &gpumem_language::max_batch(tokens));
    forget_places();
}

/// Reads an input as a text with networks. Of one that is the contents of `network!`, the macro must write the blueprint that is read.
pub fn source(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(found) = Text::read(text) else { return forget_places() };
    for name in found.names() {
        let _ = found.resolve(Some(&name));
        let read = found.declared(Some(&name), &Overrides::default());
        if let Ok(network) = read
            && !network.is_largest
            && let Some(written) = tokens_of(data).and_then(|tokens| blueprint_in(gpumem_language::network(tokens)))
        {
            assert!(network.blueprint.encode() == written, "the macro writes another blueprint of {name}");
        }
    }
    forget_places();
}

/// Returns the blueprint in an expansion of `network!`. `None` if the network has mistakes.
fn blueprint_in(expansion: TokenStream) -> Option<Vec<u8>> {
    let trees: Vec<TokenTree> = expansion.into_iter().collect();
    trees.iter().enumerate().find_map(|(at, tree)| match tree {
        TokenTree::Group(group) => blueprint_in(group.stream()),
        TokenTree::Ident(name) if name == "__BLUEPRINT" => trees[at..].iter().find_map(|tree| match tree {
            TokenTree::Literal(literal) => match syn::Lit::new(literal.clone()) {
                syn::Lit::ByteStr(bytes) => Some(bytes.value()),
                _ => None,
            },
            _ => None,
        }),
        _ => None,
    })
}

/// Reads the bytes of a binary as `cargo gpumem show` or `cargo gpumem diff` does.
///
/// After an even first byte they are a file. After an odd one they are the text and the blueprint of a record, with a 0 between them, whose digests
/// are added. Half of the first byte chooses the report.
pub fn record(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let which = usize::from(kind / 2) % fuzz_command::REPORTS;
    if kind % 2 == 0 {
        fuzz_command::report(&[], rest, which);
        return;
    }
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (text, blueprint) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let file = fuzz_command::object(&section(text, blueprint));
    fuzz_command::report(&file, &file, which);
}

/// Returns a record in the form in which a build writes it.
fn section(text: &[u8], blueprint: &[u8]) -> Vec<u8> {
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes(), bytes, &digest(bytes).to_le_bytes()].concat();
    [&MAGIC[..], &part(text), &part(blueprint)].concat()
}

/// Decodes a blueprint or a program. Encoding it again must give the bytes that were decoded.
pub fn blueprint(data: &[u8]) {
    if let Some(blueprint) = Blueprint::decode(data) {
        let encoded = blueprint.encode();
        let again = Blueprint::decode(&encoded).map(|again| again.encode());
        assert_eq!(again, Some(encoded), "a blueprint is not written as it is read");
    }
    if let Some(program) = Program::decode(data) {
        let encoded = program.encode();
        let again = Program::decode(&encoded).map(|again| again.encode());
        assert_eq!(again, Some(encoded), "a program is not written as it is read");
    }
}

/// Reads files of the kernel cache: after a first byte of 0 a compiled kernel, after another one measurements of a card.
pub fn caches(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind == 0 {
        let folder = std::env::temp_dir().join(format!("gpumem-fuzz-{}", std::process::id()));
        let cache = gpumem_cuda::cache::Cache::at(Some(folder.clone()));
        std::fs::write(folder.join("key.cubin"), rest).expect("a folder for temporary files");
        if let Some(code) = cache.get("key") {
            assert!(rest.ends_with(&code));
        }
    } else if let Ok(text) = std::str::from_utf8(rest)
        && let Some(written) = gpumem_cuda::reread_measured(text)
    {
        let again = gpumem_cuda::reread_measured(&written);
        assert_eq!(again.as_deref(), Some(&written[..]), "a record is not written as it is read");
    }
}

/// Reads the values of `GPUMEM_CARDS`, `GPUMEM_VRAM` and `GPUMEM_HEADROOM`, one a line.
pub fn environment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut values = text.splitn(3, '\n').map(Some).chain([None; 3]);
    let [cards, vram, headroom] = [(); 3].map(|()| values.next().flatten());
    let environment = Environment { cards, vram, headroom, unchecked: None };
    for (written, headroom) in [(&[][..], 0), (&ALL[..1], u64::MAX), (ALL, 1 << 30)] {
        for selected in [&[][..], &ALL[..3]] {
            let aim = TargetCards { selected, headroom, environment, ..TargetCards::at(written) };
            let room = aim.room();
            for arena in [0, room, room.saturating_add(1), u64::MAX] {
                let refusal = together(&[("Generator", arena), ("Critic", 1)], &aim);
                let refusal = refusal.as_ref().map(|text| text.as_str());
                assert!(refusal.is_none_or(|text| !text.trim().is_empty()), "a refusal without words");
            }
        }
    }
    for word in text.split([',', '\n']) {
        let (card, bytes) = (find(word.trim()), parse_vram(word.trim()));
        assert!(card.is_none() || bytes.is_err(), "`{word}` is a card and a size");
        assert_ne!(bytes, Ok(0), "`{word}` is a size of 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each target takes the inputs that it begins with, and finds something in them.
    #[test]
    fn targets_take_their_seeds() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{}", target.name);
            seeds.iter().for_each(|seed| (target.run)(seed));
        }
    }

    #[test]
    fn seeds_are_read_as_a_whole() {
        for seed in seeds::networks() {
            let expansion = gpumem_language::network(tokens_of(&seed).expect("tokens")).to_string();
            let text = String::from_utf8_lossy(&seed);
            assert!(!expansion.contains("compile_error"), "{text}\n{expansion}");
        }
        assert!(
            seeds::blueprints().iter().all(|seed| Blueprint::decode(seed).is_some() || Program::decode(seed).is_some())
        );
        for (number, seed) in seeds::records().iter().enumerate() {
            let end = seed.iter().position(|&byte| byte == 0).expect("two parts");
            let file = fuzz_command::object(&section(&seed[1..end], &seed[end + 1..]));
            let report = fuzz_command::report(&file, &file, number % fuzz_command::REPORTS);
            assert!(!report.is_empty(), "{}", String::from_utf8_lossy(seed));
        }
    }

    #[test]
    fn a_seed_and_a_number_make_an_input() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            let input = |seed, number| (target.mutate)(&mut Numbers::of(seed, number), &seeds);
            assert_eq!(input(1, 7), input(1, 7), "{}", target.name);
            assert!((0..20).any(|number| input(1, number) != input(2, number)), "{}", target.name);
        }
    }
}
