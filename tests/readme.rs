//! The programs of the README and of the first page of the guide are examples, so that they are compiled.

#![allow(missing_docs)]

use gpumem::network;

include!("readme/mlp.rs");

const README: &str = include_str!("../README.md");

const FIRST_NETWORK: &str = include_str!("../docs/guide/first-network.md");

/// Returns the program of an example, without its first line, which says what it is.
fn program(example: &str) -> &str {
    example.split_once("\n\n").unwrap().1
}

/// Panics unless `page` shows `program` as a block in this language.
fn assert_shows(page: &str, language: &str, program: &str) {
    assert!(page.contains(&format!("```{language}\n{program}```\n")), "{program}");
}

#[test]
fn its_programs_are_examples() {
    let vgg16 = program(include_str!("../examples/vgg16.rs"));
    let network = &vgg16[vgg16.find("network! {").unwrap()..vgg16.find("\nfn main").unwrap()];
    assert_shows(README, "rust", network);
    assert_shows(README, "rust", program(include_str!("../examples/first.rs")));
    // Programs that need a folder of images are not run with the page.
    assert_shows(FIRST_NETWORK, "rust,ignore", program(include_str!("../examples/pets.rs")));
}

#[test]
fn the_first_network_prints_what_its_page_shows() {
    assert!(FIRST_NETWORK.contains(include_str!("readme/mlp.rs")));
    let table = gpumem::report::table::<Mlp>();
    assert!(FIRST_NETWORK.contains(&table), "the page does not show\n{table}");
}

/// Returns the refusal that a page shows, from its first line to the last before the place in the source.
fn refusal<'p>(page: &'p str, network: &str) -> &'p str {
    let first = format!("error[E0080]: evaluation panicked: network `{network}`");
    let text = &page[page.find(&first).unwrap_or_else(|| panic!("no refusal of {network}"))..];
    let end = text.find("\n```").into_iter().chain(text.find("\n --> ")).chain(text.find("\n  --> ")).min();
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn its_refusals_are_those_of_the_compiler() {
    let guide = include_str!("../docs/guide/reading-a-refusal.md");
    for page in [guide, include_str!("../docs/reference/messages.md")] {
        assert_eq!(refusal(page, "Vgg16"), refusal(README, "Vgg16"));
    }
    assert_eq!(
        refusal(FIRST_NETWORK, "Mlp"),
        refusal(include_str!("../messages/tests/ui/fail/first_network.stderr"), "Mlp")
    );
    let alone = include_str!("../messages/tests/ui/fail/refused_weights_alone.stderr");
    assert_eq!(refusal(guide, "Large"), refusal(alone, "Large"));
}

/// A training with validation, progress, checkpoints and resume is a page, not a project.
#[test]
fn a_training_on_a_folder_of_images_is_short() {
    let program = program(include_str!("../examples/pets.rs"));
    assert!(program.lines().count() <= 40, "{}", program.lines().count());
}
