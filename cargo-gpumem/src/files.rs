//! Reads the networks of source files without a build.

use crate::Failure;
use crate::built::{Built, label};
use crate::network::{LeftOut, Network};
use gpumem_language::source::{Declared, Mistake, Overrides, Text};

/// Returns the networks of files. Each of them may use the modules of blocks in all of them.
///
/// Networks with mistakes are left out, unless all have some. A `fits!` is not looked at.
pub fn networks(files: &[String], overrides: &Overrides) -> Result<Built, Failure> {
    let mut texts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
        texts.push(Text::read(&text).map_err(|mistakes| listed(file, &mistakes))?.in_file(file));
    }
    let mut shared = Text::default();
    texts.iter().for_each(|text| shared.add_blocks(text));
    let mut built = Built::default();
    let mut mistakes = Vec::new();
    for (file, text) in files.iter().zip(&mut texts) {
        text.add_blocks(&shared);
        for name in text.names() {
            match text.declared(Some(&name), overrides) {
                Ok(declared) => built.networks.push(network(file, declared)),
                Err(found) => {
                    built.left_out.push(left_out(file, name, &found));
                    mistakes.push(listed(file, &found));
                }
            }
        }
    }
    if built.networks.is_empty() {
        let none = || format!("no network is declared in {}", files.join(", "));
        return Err(if mistakes.is_empty() { none() } else { mistakes.join("\n") }.into());
    }
    label(&mut built.networks);
    Ok(built)
}

/// Returns a network of a file as one of a build.
pub fn network(file: &str, declared: Declared) -> Network {
    let line = u64::try_from(declared.line).unwrap_or(u64::MAX);
    Network {
        label: declared.name.clone(),
        name: declared.name,
        package: None,
        file: file.to_string(),
        line,
        declared: (file.to_string(), line),
        blueprint: declared.blueprint,
        is_largest: declared.is_largest,
        train: declared.train,
        infer: declared.infer,
    }
}

fn left_out(file: &str, name: String, mistakes: &[Mistake]) -> LeftOut {
    let first = mistakes.first();
    let more = match mistakes.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    LeftOut {
        label: name.clone(),
        name,
        program: None,
        package: None,
        file: file.to_string(),
        line: first.map_or(1, |mistake| mistake.line as u64),
        why: first.map(|mistake| mistake.message.clone()).unwrap_or_default() + &more,
    }
}

/// Lists mistakes, one on a line, each with its place.
fn listed(file: &str, mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| format!("{file}:{mistake}")).collect::<Vec<_>>().join("\n")
}
