//! Reads `layer_decay` of a group of parameters, which gives each layer a rate that is smaller the earlier the layer comes.

use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::clip_and_schedule::{number, unreadable};
use crate::settings::values::plain;
use crate::syntax::{Constant, Place};
use gpumem_core::train::optim::matches;
use std::collections::BTreeSet;
use syn::{Expr, ExprLit, Lit};

/// The pattern that stands for a layer's number in a path.
const NUMBER: &str = "[*]";

/// A decay of rates by layer, as the user wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Layered {
    decay: f64,
    place: Place,
}

impl Layered {
    /// Reads the number. `None` after a mistake, which has been reported.
    pub(crate) fn read(value: &Expr, constants: &[Constant], errors: &mut Errors) -> Option<Layered> {
        let Some(decay) = number(value, constants, 0) else {
            unreadable(value, constants, errors);
            return None;
        };
        let (decay, place) = (decay.real(), Place::of(value));
        if decay > 0.0 && decay <= 1.0 {
            return Some(Layered { decay, place });
        }
        errors.add(place, "`layer_decay` is what a layer's rate is multiplied with for each layer after it; it must be above 0 and at most 1");
        None
    }
}

/// Returns the paths of each layer with the factor of its rate. `None` after a mistake, which has been reported.
///
/// Paths without a number are those of layer 0, and number `n` in the place of the first `[*]` is layer `1 + n`. Parameters after the layer with
/// the largest number have the rate of the optimizer.
pub(crate) fn layers(
    layered: Layered,
    paths: &Expr,
    resolved: &Resolved,
    errors: &mut Errors,
) -> Option<Vec<(String, f64)>> {
    let Expr::Lit(ExprLit { lit: Lit::Str(paths), .. }) = plain(paths) else { return None };
    // After a mistake in a layer, some parameters are not known.
    resolved.outputs.as_ref()?;
    let names: Vec<&str> = resolved.graph.trained_parameters().map(|parameter| parameter.name.as_str()).collect();
    let paths = paths.value();
    let (numbered, first): (Vec<&str>, Vec<&str>) =
        paths.split(',').map(str::trim).partition(|pattern| pattern.contains(NUMBER));
    let mut numbers = BTreeSet::new();
    for pattern in &numbered {
        numbers.extend(names.iter().filter(|name| matches(pattern, name)).filter_map(|name| number_in(pattern, name)));
    }
    let Some(&last) = numbers.last() else {
        let message = "`layer_decay` counts layers by the number in their paths; write `[*]` where it stands, as \
                       `Group { paths: \"blocks[*].*\", layer_decay: 0.75 }`";
        errors.add(layered.place, message);
        return None;
    };
    let factor = |layer: u64| layered.decay.powi(i32::try_from(last + 2 - layer).unwrap_or(i32::MAX));
    let of_number = |&number: &u64| {
        let own = numbered.iter().map(|pattern| pattern.replacen(NUMBER, &format!("[{number}]"), 1));
        (own.collect::<Vec<String>>().join(", "), factor(1 + number))
    };
    let begin = (!first.is_empty()).then(|| (first.join(", "), factor(0)));
    Some(begin.into_iter().chain(numbers.iter().map(of_number)).collect())
}

/// Returns the number in `name` that the first `[*]` of the pattern stands for. `None` if the name does not match.
fn number_in(pattern: &str, name: &str) -> Option<u64> {
    let is_it = |number: &u64| matches(&pattern.replacen(NUMBER, &format!("[{number}]"), 1), name);
    let digits = name.split('[').skip(1).filter_map(|rest| rest.split_once(']')?.0.parse().ok());
    digits.into_iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::number_in;

    #[test]
    fn the_number_is_that_of_the_first_star() {
        for (pattern, name, expected) in [
            ("blocks[*].*", "blocks[3].attn.weight", Some(3)),
            ("blocks[*].*", "blocks[12].mlp[1].weight", Some(12)),
            ("*blocks[*].*", "body.blocks[7].weight", Some(7)),
            ("stage[*].conv2d[*].*", "stage[2].conv2d[5].bias", Some(2)),
            ("blocks[*].*", "head.weight", None),
        ] {
            assert_eq!(number_in(pattern, name), expected, "{pattern} {name}");
        }
    }
}
