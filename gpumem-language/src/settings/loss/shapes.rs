//! Checks the shapes of values that losses of several values, of sequences and of batches measure.

use super::Written;
use crate::errors::Errors;
use crate::syntax::Place;
use gpumem_core::graph::{NodeId, Type};
use gpumem_core::program::loss::Over;

/// Returns the name of a measured value for messages.
pub(super) fn what(term: &Written, side: usize) -> String {
    match (term.from.get(side), term.over().values()) {
        (Some(name), _) => format!("`{name}`"),
        (None, 1) => "the output".to_string(),
        (None, _) => format!("the {} output", ["first", "second", "third"][side.min(2)]),
    }
}

/// Returns true if a loss can measure values of these shapes. Reports a mistake otherwise.
pub(super) fn check(term: &Written, measured: &[(NodeId, Type)], errors: &mut Errors) -> bool {
    let mistake = match (term.over(), measured) {
        (Over::Mined, [(_, value)]) => {
            let (loss, what) = (term.loss.name(), what(term, 0));
            let message = format!("`{loss}` compares vectors, but {what} is {}; flatten it first", value.shape);
            (value.shape.rank() != 1).then_some((term.place, message))
        }
        (_, [_, _, ..]) => of_vectors(term, measured).map(|message| (term.place, message)),
        (Over::Sequences, [(_, value), ..]) => of_sequence(term, *value),
        _ => None,
    };
    let is_sound = mistake.is_none();
    if let Some((place, message)) = mistake {
        errors.add(place, message);
    }
    is_sound
}

/// Checks that several values have one shape, and are vectors or sequences of vectors. A ranking loss takes any shape. Returns the mistake, if any.
fn of_vectors(term: &Written, measured: &[(NodeId, Type)]) -> Option<String> {
    let (loss, first) = (term.loss.name(), measured[0].1);
    for (side, (node, value)) in measured.iter().enumerate().skip(1) {
        if let Some(same) = measured[..side].iter().position(|(other, _)| other == node) {
            return Some(format!("`{loss}` compares {} with itself; name another value", what(term, same)));
        }
        if first.shape != value.shape {
            let [x, y] = [0, side].map(|side| what(term, side));
            let count = super::count_of(term.over());
            return Some(format!(
                "`{loss}` compares {count} values of one shape, but {x} is {} and {y} is {}",
                first.shape, value.shape
            ));
        }
    }
    let is_of_vectors = match term.over() {
        Over::Batch => first.shape.rank() == 1,
        Over::Rankings => true,
        _ => (1..=2).contains(&first.shape.rank()),
    };
    let message = || format!("`{loss}` compares vectors, but {} is {}; flatten it first", what(term, 0), first.shape);
    (!is_of_vectors).then(message)
}

/// Checks that a value is a sequence of class scores, [T, C], and that the blank is one of the classes. Returns the mistake, if any.
fn of_sequence(term: &Written, value: Type) -> Option<(Place, String)> {
    let (loss, what) = (term.loss.name(), what(term, 0));
    let [_, classes] = *value.shape.dims() else {
        let message = format!(
            "`{loss}` measures a sequence, at each step a number for each class, [T, C], but {what} is {}",
            value.shape
        );
        return Some((term.place, message));
    };
    let blank = term.options.options.blank;
    let is_class = u64::from(blank) < classes;
    let message = || format!("`blank` is class {blank}, but {what} of shape {} has {classes} classes", value.shape);
    (!is_class).then(|| (term.options.blank.unwrap_or(term.place), message()))
}
