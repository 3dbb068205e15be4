//! The README's first program is an example, so that it is compiled.

#[test]
fn the_first_program_is_an_example() {
    let (_, program) = include_str!("../examples/first.rs").split_once("\n\n").unwrap();
    assert!(include_str!("../README.md").contains(&format!("```rust\n{program}```\n")));
}
