//! The README's programs are examples, so that they are compiled.

/// Panics unless the README has the program of an example, whose first line says what it is.
fn assert_in_readme(example: &str) {
    let (_, program) = example.split_once("\n\n").unwrap();
    assert!(include_str!("../README.md").contains(&format!("```rust\n{program}```\n")), "{program}");
}

#[test]
fn its_programs_are_examples() {
    assert_in_readme(include_str!("../examples/first.rs"));
    assert_in_readme(include_str!("../examples/pets.rs"));
}

/// A training with validation, progress, checkpoints and resume is a page, not a project.
#[test]
fn a_training_on_a_folder_of_images_is_short() {
    let (_, program) = include_str!("../examples/pets.rs").split_once("\n\n").unwrap();
    assert!(program.lines().count() <= 40, "{}", program.lines().count());
}
