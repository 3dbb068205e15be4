//! Patterns of several operations that are one layer, or a few.
//!
//! A pattern looks at one node and finds the others from it. Where it matches whole, it [plans](Lift::plan) layers in the place of the node
//! that makes the result. It need not say which nodes it has walked over: what nothing reads any more is [swept](sweep) away afterwards.
//! A pattern that does not match whole plans nothing.

mod attention;
mod drop_path;
mod functions;
mod matching;
mod norms;
mod rotary;
mod scan;
mod tied;
mod time;
mod tokens;

pub(super) use tied::tie;

use super::Lift;
use std::collections::HashMap;

/// The angles by which columns turn. `None` for those that the language does not have.
pub(crate) type Rotations = HashMap<Vec<Vec<rotary::Term>>, Option<rotary::Angles>>;

/// What masks do, with the sizes for which they do it: heads, queries and keys. `None` for those that the language does not have.
pub(crate) type Masks = HashMap<(attention::Added, u64, u64, u64), Option<attention::Known>>;

/// Looks for a pattern whose last node has this index, and plans its layers. `None` if there is no such pattern.
type Pattern = fn(&mut Lift<'_>, usize) -> Option<()>;

/// All patterns. Those that others walk back to come first.
const PATTERNS: [Pattern; 12] = [
    norms::rows,
    norms::length,
    functions::find,
    drop_path::find,
    tokens::class_token,
    tokens::padded_positions,
    tokens::positions,
    time::find,
    scan::find,
    attention::find,
    attention::module::find,
    attention::bias::find,
];

/// Finds all patterns.
pub(super) fn find(lift: &mut Lift<'_>) {
    for pattern in PATTERNS {
        for index in 0..lift.model.nodes.len() {
            if !lift.is_taken(index) {
                let _ = pattern(lift, index);
            }
        }
    }
    sweep(lift);
}

/// Takes the nodes whose results nothing reads, since patterns have taken what read them.
fn sweep(lift: &mut Lift<'_>) {
    let model = lift.model;
    let mut needed = vec![false; model.values.len()];
    for &output in &model.outputs {
        mark(lift, &mut needed, output);
    }
    for index in (0..model.nodes.len()).rev() {
        let node = &model.nodes[index];
        let is_in_place = node.op.ends_with('_') && !node.op.ends_with("__");
        // What is changed in place is read afterwards under the name of the argument.
        let changed = node.tensors().next().filter(|_| is_in_place);
        let is_needed = node.outputs.iter().chain(&changed).any(|&output| needed[output]);
        if !is_needed {
            lift.drop_node(index);
            continue;
        }
        let inputs = lift.planned_inputs(index).unwrap_or_else(|| node.tensors().collect());
        inputs.into_iter().for_each(|input| mark(lift, &mut needed, input));
    }
}

/// Marks a value as needed, and what it stands for.
fn mark(lift: &Lift<'_>, needed: &mut [bool], value: usize) {
    for value in [value, lift.resolve(value)] {
        if let Some(needed) = needed.get_mut(value) {
            *needed = true;
        }
    }
}
