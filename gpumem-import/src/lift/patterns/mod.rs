//! Patterns of several operations that are one layer, or a few.
//!
//! A pattern looks at one node and finds the others from it. Where it matches whole, it [plans](Lift::plan) layers in the place of the node
//! that makes the result. It need not say which nodes it has walked over: what nothing reads any more is [swept](sweep) away afterwards.
//! A pattern that does not match whole plans nothing.

mod attention;
mod condition;
mod drop_path;
mod experts;
mod functions;
mod matching;
mod norms;
mod rotary;
mod scan;
mod tied;
mod time;
mod tokens;

pub(crate) use condition::Conditions;
pub(super) use tied::tie;

use super::Lift;
use crate::memory::changes_first;
use crate::model::Node;
use std::collections::HashMap;

/// The angles by which columns turn. `None` for those that the language does not have.
pub(crate) type Rotations = HashMap<Vec<Vec<rotary::Term>>, Option<rotary::Angles>>;

/// The effects of masks, by the mask and the sizes: heads, queries and keys. `None` for those that the language does not have.
pub(crate) type Masks = HashMap<(attention::Added, u64, u64, u64), Option<attention::Known>>;

/// Looks for a pattern whose last node has this index, and plans its layers. `None` if there is no such pattern.
type Pattern = fn(&mut Lift<'_>, usize) -> Option<()>;

/// All patterns. Those that others walk back to come first.
const PATTERNS: [Pattern; 17] = [
    norms::rows,
    norms::length,
    functions::find,
    drop_path::find,
    drop_path::labels,
    tokens::class_token,
    tokens::padded_positions,
    tokens::single,
    tokens::positions,
    time::find,
    scan::find,
    attention::find,
    attention::module::find,
    attention::bias::find,
    experts::find,
    experts::choice,
    condition::find,
];

/// Returns the reason why an operation is not lifted, for one that patterns look for and have not found.
pub(super) fn reason(node: &Node) -> &'static str {
    match &node.op[..] {
        "scaled_dot_product_attention" if node.tensor("attn_mask").is_some() => {
            "its mask is computed from inputs, or is none that the language has; export the model without a mask, or with numbers as the mask"
        }
        "scaled_dot_product_attention" => "its queries, keys and values are not rows of one sample each",
        "sort" | "histc" | "topk" => "it chooses by numbers in a way that the language has not",
        _ => "the language has no such operation",
    }
}

/// Finds all patterns.
pub(super) fn find(lift: &mut Lift<'_>) {
    // Results that nothing reads, as averages of attention weights may be, are no readers.
    sweep(lift);
    lift.forget_taken();
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
    // Memory that something needed is in.
    let mut needed_memory = vec![false; model.values.len()];
    for &output in &model.outputs {
        needed_memory[lift.roots[output]] = true;
        mark(lift, &mut needed, output);
    }
    for index in (0..model.nodes.len()).rev() {
        let node = &model.nodes[index];
        // Later operations read a change in place under the name of the argument, or of the value that it is a view of.
        let changed = node.tensors().next().filter(|_| changes_first(node));
        let is_needed = node.outputs.iter().any(|&output| needed[output])
            || changed.is_some_and(|value| needed_memory[lift.roots[value]]);
        if !is_needed {
            lift.drop_node(index);
            continue;
        }
        let inputs = lift.planned_inputs(index).unwrap_or_else(|| node.tensors().collect());
        for input in inputs {
            needed_memory[lift.roots[input]] = true;
            mark(lift, &mut needed, input);
        }
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
