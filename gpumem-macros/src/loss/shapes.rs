//! Shapes of what losses of pairs, of sequences and of batches measure.

use super::{Written, is_of_pairs};
use crate::errors::Errors;
use crate::syntax::Place;
use gpumem_core::graph::{NodeId, Type};
use gpumem_core::program::loss::Over;

/// How a value that a term measures is called.
pub(super) fn what(term: &Written, side: usize) -> String {
    match (term.from.get(side), is_of_pairs(term.loss)) {
        (Some(name), _) => format!("`{name}`"),
        (None, false) => "the output".to_string(),
        (None, true) => format!("the {} output", if side == 0 { "first" } else { "second" }),
    }
}

/// Whether a loss can measure values of these shapes.
pub(super) fn check(term: &Written, measured: &[(NodeId, Type)], errors: &mut Errors) -> bool {
    let mistake = match (term.loss.row().over, measured) {
        (Over::Pairs | Over::Batch, [first, second]) => {
            of_pair(term, *first, *second).map(|message| (term.place, message))
        }
        (Over::Sequences, [(_, value), ..]) => of_sequence(term, *value),
        _ => None,
    };
    let is_sound = mistake.is_none();
    if let Some((place, message)) = mistake {
        errors.add(place, message);
    }
    is_sound
}

/// Two vectors, or two sequences of vectors, of one shape.
fn of_pair(term: &Written, (first, x): (NodeId, Type), (second, y): (NodeId, Type)) -> Option<String> {
    let loss = term.loss.name();
    let [x_name, y_name] = [0, 1].map(|side| what(term, side));
    if first == second {
        return Some(format!("`{loss}` compares {x_name} with itself; name another value"));
    }
    if x.shape != y.shape {
        return Some(format!(
            "`{loss}` compares two values of one shape, but {x_name} is {} and {y_name} is {}",
            x.shape, y.shape
        ));
    }
    let most = if term.loss.row().over == Over::Batch { 1 } else { 2 };
    let is_of_vectors = (1..=most).contains(&x.shape.rank());
    (!is_of_vectors).then(|| format!("`{loss}` compares vectors, but {x_name} is {}; flatten it first", x.shape))
}

/// Steps with a number for each class, of which the blank is one.
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
