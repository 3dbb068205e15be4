//! Reads `Mse(lengths = n)`: losses of the time steps that count. Also reports means that would count padded steps.

use super::{Written, shapes};
use crate::errors::Errors;
use crate::resolve::{Form, Resolved};
use gpumem_core::graph::{NodeId, Source, Type};
use gpumem_core::program::loss::{Over, Reduction, Weighting};

/// Returns the input that has the number of steps of each sample, and the most steps. `None` without `lengths`, or after a mistake.
///
/// Without `lengths`, reports a mean that counts steps after the end of a sample like the others.
pub(super) fn counted(
    term: &Written,
    measured: &[(NodeId, Type)],
    resolved: &Resolved,
    errors: &mut Errors,
) -> Option<(NodeId, u64)> {
    let value = measured[0].1;
    let Some(name) = &term.lengths else {
        check_padding(term, value, resolved, errors);
        return None;
    };
    let text = name.to_string();
    let node = resolved.taps.get(&text).copied().flatten();
    let is_input = |&node: &NodeId| resolved.graph.nodes[node].source == Source::Input;
    let before = |node: NodeId| (0..node).filter(is_input).count();
    let declared = node.filter(is_input).and_then(|node| resolved.inputs.as_ref()?.get(before(node)));
    let Some(declared) = declared.filter(|declared| declared.form == Form::Lengths) else {
        let message = format!("`lengths` names an input of the type `Lengths`, but `{text}` is none");
        errors.add(name, message);
        return None;
    };
    let steps = declared.dimensions[0];
    if value.shape.dims().first() != Some(&steps) {
        let what = shapes::what(term, 0);
        let message =
            format!("`{text}` is `{declared}`, but {what} is {}, whose first axis has other steps", value.shape);
        errors.add(name, message);
        return None;
    }
    Some((node?, steps))
}

/// Returns the message that a loss of classes does not take `lengths`. `None` for other losses.
pub(super) fn of_classes(term: &Written) -> Option<String> {
    let loss = term.loss.name();
    let is_labelled = !term.options.options.probabilities;
    let leaves_out = if is_labelled { "leaves out steps by their labels" } else { "leaves out steps by a mask" };
    let instead = if is_labelled { by_label(term) } else { by_mask(term) };
    (term.over() == Over::Positions).then(|| format!("`{loss}` {leaves_out}; {instead}"))
}

/// Returns the message that `lengths` cannot be combined with `weights` or `mask`. `None` unless a term has both.
///
/// `option` is the one that is being read.
pub(super) fn beside_weights(term: &Written, option: &str) -> Option<String> {
    let other = match (option, term.options.options.weighting) {
        ("weights" | "mask", _) if term.lengths.is_some() => option,
        ("lengths", Weighting::Samples) => "weights",
        ("lengths", Weighting::Mask) => "mask",
        _ => return None,
    };
    let weight = if other == "weights" { ", and the weight of the sample before" } else { "" };
    let loss = term.loss.name();
    Some(format!("`{loss}` takes `lengths` or `{other}`, not both; {}{weight}", by_mask(term)))
}

/// Reports a mean over time steps of which some are padding.
fn check_padding(term: &Written, value: Type, resolved: &Resolved, errors: &mut Errors) {
    let options = &term.options.options;
    let of_side = |side: usize| match term.from.get(side) {
        Some(name) => resolved.padded.taps.get(&name.to_string()),
        None => resolved.padded.outputs.get(side).and_then(Option::as_ref),
    };
    let counts_all = match options.weighting {
        Weighting::None => options.ignored.is_none(),
        // The mean is over all terms, including those of positions that are left out.
        Weighting::Samples => true,
        Weighting::Mask => false,
    };
    let is_mean = options.reduction == Reduction::Mean && counts_all;
    let (Some(lengths), true) = ((0..term.over().values()).find_map(of_side), is_mean) else { return };
    let loss = term.loss.name();
    // True if the steps were the axis of classes, or of the elements of a vector.
    let is_across = match term.over() {
        Over::Sequences => return,
        Over::Elements | Over::Rankings => false,
        Over::Positions => value.shape.rank() != 2,
        Over::Pairs | Over::Triples => value.shape.rank() == 1,
        Over::Batch | Over::Mined => true,
    };
    let instead = match (term.over(), options.weighting) {
        _ if is_across => "measure what a reduction inside of `lengths` leaves".to_string(),
        (_, Weighting::Samples) => format!("{}, and the weight of the sample before", by_mask(term)),
        (Over::Elements, _) => format!("write `{loss}(lengths = {lengths})`"),
        (Over::Positions, _) if !options.probabilities => by_label(term),
        _ => by_mask(term),
    };
    let sum = match term.loss.row().options().contains(&"reduction") {
        true => format!(", or `{loss} {{ reduction: Sum }}` if that is meant"),
        false => String::new(),
    };
    let message = format!(
        "`{loss}` counts steps after the end of a sample like the others, which `{lengths}` says do not count; {instead}{sum}"
    );
    errors.add(term.place, message);
}

/// Returns advice on how a loss of classes leaves out steps after the end.
fn by_label(term: &Written) -> String {
    format!("write `{} {{ ignore_index: -100 }}`, and label steps after the end -100", term.loss.name())
}

/// Returns advice on how any loss of samples leaves out steps after the end.
fn by_mask(term: &Written) -> String {
    format!("write `{}(mask = m)` with a mask that is 0 after the end", term.loss.name())
}
