//! Programs that compile without a warning and say what they should: beside those that do not, in `ui/fail`.

#[path = "ui/pass/another_name.rs"]
mod another_name;
#[path = "ui/pass/both_entry_points.rs"]
mod both_entry_points;
#[path = "ui/pass/conditions.rs"]
mod conditions;
#[path = "ui/pass/every_field.rs"]
mod every_field;
#[path = "ui/pass/generic_fit.rs"]
mod generic_fit;
#[path = "ui/pass/operations.rs"]
mod operations;
#[path = "ui/pass/remedied.rs"]
mod remedied;
#[path = "ui/pass/same_padding.rs"]
mod same_padding;
#[path = "ui/pass/shadowed_names.rs"]
mod shadowed_names;

#[test]
fn another_name_passes() {
    another_name::main();
}

#[test]
fn both_entry_points_passes() {
    both_entry_points::main();
}

#[test]
fn conditions_passes() {
    conditions::main();
}

#[test]
fn every_field_passes() {
    every_field::main();
}

#[test]
fn generic_fit_passes() {
    generic_fit::main();
}

#[test]
fn operations_passes() {
    operations::main();
}

#[test]
fn remedied_passes() {
    remedied::main();
}

#[test]
fn same_padding_passes() {
    same_padding::main();
}

#[test]
fn shadowed_names_passes() {
    shadowed_names::main();
}
