//! Checks the values that a loss measures: their number, kind and shape, and the names of what a step is given.

use super::{Target, Written, shapes};
use crate::errors::Errors;
use crate::resolve::{Declared, Form, Resolved};
use crate::syntax::Place;
use gpumem_core::Loss;
use gpumem_core::graph::{Elements, NodeId, Source, Type};
use gpumem_core::lower::{Term, unchunkable};
use gpumem_core::program::loss::{Compares, Over, Takes, Weighting};
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;

/// Checks that each term with `chunks` can be measured in chunks. `chunks` has the place of that option, or `None` without it.
pub(super) fn check_chunks(terms: &[Term], chunks: &[Option<Place>], resolved: &Resolved, errors: &mut Errors) {
    let Some(outputs) = &resolved.outputs else { return };
    for (index, place) in chunks.iter().enumerate() {
        if let Some(place) = place
            && let Some(mistake) = unchunkable(&resolved.graph, outputs, terms, index)
        {
            errors.add(*place, mistake);
        }
    }
}

/// Returns the values that a term measures: one, or two or three for losses that compare values. `None` after a mistake.
pub(super) fn all_measured(term: &Written, resolved: &Resolved, errors: &mut Errors) -> Option<Vec<(NodeId, Type)>> {
    let sides: Vec<Option<&Ident>> = match &*term.from {
        [] => vec![None; term.over().values()],
        from => from.iter().map(Some).collect(),
    };
    let found: Vec<_> =
        sides.iter().enumerate().map(|(side, name)| measured(term, (side, *name), resolved, errors)).collect();
    found.into_iter().collect()
}

/// Returns one of the values that a term measures. `None` after a mistake.
pub(super) fn measured(
    term: &Written,
    (side, name): (usize, Option<&Ident>),
    resolved: &Resolved,
    errors: &mut Errors,
) -> Option<(NodeId, Type)> {
    let node = match name {
        None => match resolved.outputs.as_ref()?.get(side) {
            Some(output) => *output,
            None if side == 0 => return None,
            None => {
                let loss = term.loss.name();
                let message = match term.over().values() {
                    2 => format!(
                        "`{loss}` compares two values, but `forward` returns one; return both, or name both, as \
                         `{loss}(from = (x, y))` with `tap(x)` and `tap(y)` in `forward`"
                    ),
                    _ => format!(
                        "`{loss}` compares three values, but `forward` returns fewer; return all of them, or name them, as \
                         `{loss}(from = (a, p, n))` with `tap(a)`, `tap(p)` and `tap(n)` in `forward`"
                    ),
                };
                // Reported once, even if several outputs are missing.
                if resolved.outputs.as_ref().is_some_and(|outputs| side == outputs.len()) {
                    errors.add(term.place, message);
                }
                return None;
            }
        },
        Some(name) => tapped(name, resolved, errors)?,
    };
    let value = resolved.graph.value(node);
    let what = shapes::what(term, side);
    if let Some([given, _]) = value.elements.no_numbers() {
        errors.add(term.place, format!("a loss measures numbers, but {what} is {given}"));
        return None;
    }
    if !value.batched {
        // The network itself reports an output that is equal for every sample.
        name?;
        errors.add(term.place, format!("a loss measures each sample, but {what} is the same for every sample"));
        return None;
    }
    Some((node, value))
}

/// Returns the value that `tap(name)` marks. `None` if it is unknown after a mistake.
pub(super) fn tapped(name: &Ident, resolved: &Resolved, errors: &mut Errors) -> Option<NodeId> {
    let text = name.to_string();
    match resolved.taps.get(&text) {
        // After a mistake has been reported, a tap may be unknown.
        Some(tapped) => *tapped,
        None => {
            let mut known: Vec<&str> = resolved.taps.keys().map(String::as_str).collect();
            known.sort_unstable();
            let hint = match nearest(&text, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("put `tap({text})` into `forward` where the value is"),
            };
            errors.add(name, format!("`forward` taps no value as `{text}`; {hint}"));
            None
        }
    }
}

/// Checks that a loss of positions, such as `CrossEntropy`, measures scores of classes.
pub(super) fn check_classes(term: &Written, resolved: &Resolved, value: Type, errors: &mut Errors) {
    if term.over() != Over::Positions {
        return;
    }
    let loss = term.loss.name();
    let promised: Option<&Declared> = resolved.promised.as_ref().and_then(|promised| promised.first());
    match (term.from.first(), promised) {
        (None, Some(promised)) if !matches!(promised.form, Form::Logits | Form::TokenLogits | Form::Map) => {
            let instead = as_map(value.shape)
                .unwrap_or_else(|| "return `Logits`, `TokenLogits` or `Map`, or use `loss: Mse`".to_string());
            let message = format!("`{loss}` compares classes, but `forward` returns `{promised}`; {instead}");
            errors.add(term.place, message);
        }
        (Some(name), _) if value.shape.rank() > 3 => {
            let instead = as_map(value.shape).unwrap_or_else(|| "make a map of it with `Reshape`".to_string());
            let shape = value.shape;
            let message =
                format!("`{loss}` compares classes of vectors, sequences and maps, but `{name}` is {shape}; {instead}");
            errors.add(term.place, message);
        }
        _ => {}
    }
}

/// Reports a loss of numbers, such as `Mse`, on logits. They are scores of classes, so another type or another loss was meant. If a loss
/// of classes measures them too, there is no mistake.
pub(super) fn check_numbers(written: &[Written], resolved: &Resolved, errors: &mut Errors) {
    let promised = resolved.promised.as_ref().and_then(|promised| promised.first());
    let (Some(promised), Some(term)) = (promised, written.iter().find(|term| term.from.is_empty())) else { return };
    let is_of_numbers = |term: &&Written| {
        let row = term.loss.row();
        (row.over, row.compares, row.takes) == (Over::Elements, Compares::Numbers, Takes::Numbers)
    };
    let numbers = match promised.form {
        Form::Logits => "Features",
        Form::TokenLogits => "Sequence",
        _ => return,
    };
    if written.iter().filter(|term| term.from.is_empty()).all(|term| is_of_numbers(&term)) {
        let sizes: Vec<String> = promised.dimensions.iter().map(u64::to_string).collect();
        let message = format!(
            "`{}` compares numbers, but `forward` returns `{promised}`, which are those of classes; write `-> {numbers}<{}>` for \
             numbers, or `loss: CrossEntropy` for classes",
            term.loss.name(),
            sizes.join(", ")
        );
        errors.add(term.place, message);
    }
}

/// Checks that the arguments of a step are not named like a value of `forward`. These are targets, lengths and weights; a term's own tap is allowed.
pub(super) fn check_handed_in(term: &Written, resolved: &Resolved, errors: &mut Errors) {
    let weights = if term.options.options.weighting == Weighting::Mask { "mask" } else { "weights" };
    let given = [("target", &term.target), ("input_lengths", &term.input_lengths), (weights, &term.weights)];
    for (option, name) in given {
        let Some(name) = name.as_ref().filter(|name| !term.from.contains(name)) else { continue };
        if !resolved.taps.contains_key(&name.to_string()) {
            continue;
        }
        let loss = term.loss.name();
        let measured = term.from.first().map_or("[]".to_string(), |from| format!("from({from})"));
        let function = match term.loss {
            Loss::Mse => "Pow(2.0), ",
            Loss::L1 => "Abs, ",
            _ => "",
        };
        let instead = match option {
            "target" => format!(
                "to compare two values of the network write `Mean(from = loss)` for `{loss}`, and \
                 `Sub({measured}, from({name})), {function}tap(loss)` in `forward`; otherwise choose another name"
            ),
            _ => "choose another name".to_string(),
        };
        let message =
            format!("`{option}` names what `train_step` is given, but `{name}` is a value of `forward`; {instead}");
        errors.add(name, message);
    }
}

/// Returns advice on how the voxels of a volume become pixels of a map, which keeps their order. `None` unless the shape is [C, D, H, W].
pub(super) fn as_map(volume: Shape) -> Option<String> {
    let &[classes, depth, height, width] = volume.dims() else { return None };
    let rows = depth.saturating_mul(height);
    Some(format!(
        "its voxels are the pixels of `Map<{classes}, {rows}, {width}>` after `Reshape({classes}, {rows}, {width})`"
    ))
}

/// Reports a layer that spoils the input of a loss. A loss of logits has its own softmax or sigmoid, so a layer that bounds its input keeps
/// it from learning. A loss of log-probabilities is wrong on probabilities.
pub(super) fn check_logits(term: &Written, resolved: &Resolved, mut node: NodeId, errors: &mut Errors) {
    while let Source::View(input) = resolved.graph.nodes[node].source {
        node = input;
    }
    let Source::Op { .. } = &resolved.graph.nodes[node].source else { return };
    let row = resolved.graph.nodes[node].row;
    let (layer, loss) = (resolved.graph.rows[row].kind.as_str(), term.loss.name());
    let is_of_elements = term.over() == Over::Elements;
    let does = match (term.loss.row().takes, layer) {
        (Takes::LogProbabilities, "Softmax" | "Linear") if term.over() == Over::Sequences => {
            let gives = if layer == "Softmax" { "probabilities" } else { "any numbers" };
            let instead = if layer == "Softmax" { "in its place" } else { "after it" };
            let message = format!(
                "`{loss}` takes logarithms of probabilities, and `{layer}` gives {gives}; write `LogSoftmax` {instead}"
            );
            return errors.add(resolved.places[row], message);
        }
        (Takes::LogProbabilities, "Softmax") => {
            let instead = if is_of_elements { "CrossEntropy { targets: Probabilities }" } else { "CrossEntropy" };
            let message = format!(
                "`{loss}` takes logarithms of probabilities, and `{layer}` gives probabilities; remove `{layer}` and use \
                 `{instead}`, which takes logits"
            );
            return errors.add(resolved.places[row], message);
        }
        (Takes::Logits, "Softmax" | "LogSoftmax") if !is_of_elements => "and makes their softmax itself",
        (Takes::Logits, "Sigmoid") if is_of_elements => "and makes their sigmoid itself",
        (Takes::Logits, "Relu" | "Relu6") => "also negative ones, which are cut off here",
        (Takes::Logits, "Sigmoid" | "Softmax") => "of any size, which are pressed between 0 and 1 here",
        _ => return,
    };
    let message = format!(
        "`{loss}` takes logits, {does}; remove `{layer}`, or let the loss measure what arrives, with `tap(logits)` before \
         `{layer}` and `{loss}(from = logits)`"
    );
    errors.add(resolved.places[row], message);
}

/// Returns the target that a loss compares a value with. `None` if it compares with nothing.
pub(super) fn target_of(term: &Written, value: Type) -> Option<Target> {
    let (shape, is_indices) = term.options.options.target(term.loss.into(), value.shape)?;
    Some(Target { shape, elements: if is_indices { Elements::Indices } else { Elements::Numbers } })
}

pub(super) fn check_target(term: &Written, known: Target, needed: Target, errors: &mut Errors) {
    if known == needed {
        return;
    }
    let describe = |target: Target| {
        format!(
            "{} {}",
            if target.elements == Elements::Indices { "class indices of shape" } else { "numbers of shape" },
            target.shape
        )
    };
    let message = format!(
        "this term compares with {}, but the target is {}; give it one of its own, as `target = name`",
        describe(needed),
        describe(known)
    );
    errors.add(term.place, message);
}
