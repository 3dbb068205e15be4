//! The blueprint of a text is that which the macro writes into the record of the network, for the networks of this repository's tests.

use gpumem_language::source::{Overrides, Text};
use proc_macro2::{TokenStream, TokenTree};
use std::path::{Path, PathBuf};

/// The most characters of a network. The macro packs the programs of larger ones for seconds.
const LONGEST: usize = 2500;

/// The Rust files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let within = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(within).filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Collects the tokens of each `network!` among these, and in groups below them.
fn networks(tokens: TokenStream, found: &mut Vec<TokenStream>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        let TokenTree::Group(group) = tree else { continue };
        match trees[..at] {
            [.., TokenTree::Ident(ref name), TokenTree::Punct(ref mark)]
                if mark.as_char() == '!' && name == "network" =>
            {
                found.push(group.stream());
            }
            _ => networks(group.stream(), found),
        }
    }
}

/// The blueprint in an expansion. `None` if the network has mistakes, or uses modules of blocks.
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

#[test]
fn the_macro_and_the_text_give_one_blueprint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for folder in ["tests", "examples"] {
        for file in files(&root.join(folder)) {
            let text = std::fs::read_to_string(file).unwrap();
            networks(text.parse().unwrap(), &mut found);
        }
    }
    let mut texts: Vec<String> = found.iter().map(TokenStream::to_string).collect();
    texts.retain(|text| text.len() <= LONGEST);
    texts.sort();
    texts.dedup();
    let mut compared = 0;
    for text in texts {
        let Some(written) = blueprint_in(gpumem_language::network(text.parse().unwrap())) else { continue };
        match Text::read(&text).unwrap().declared(None, &Overrides::default()) {
            // The blueprint of the largest of several steps is that of the first, with another step to lower.
            Ok(network) => {
                assert!(network.is_largest || network.blueprint.encode() == written, "{text}");
                compared += 1;
            }
            Err(mistakes) => {
                let is_open = mistakes.iter().all(|mistake| mistake.message.contains("only the compiler evaluates"));
                assert!(is_open, "{mistakes:?}\n{text}");
            }
        }
    }
    assert!(compared > 50, "{compared} networks");
}
