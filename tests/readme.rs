//! The programs of the README and of the first page of the guide are examples, so that they are compiled.

const README: &str = include_str!("../README.md");

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
    let guide = include_str!("../docs/guide/first-network.md");
    assert_shows(guide, "rust,ignore", program(include_str!("../examples/pets.rs")));
}

/// A training with validation, progress, checkpoints and resume is a page, not a project.
#[test]
fn a_training_on_a_folder_of_images_is_short() {
    let program = program(include_str!("../examples/pets.rs"));
    assert!(program.lines().count() <= 40, "{}", program.lines().count());
}
