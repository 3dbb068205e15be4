//! Weights that are computed from parameters: standardised, with a norm of their own, divided by their largest singular value.

use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::fold::Origin;
use crate::model::{Argument, Node, StateKind, ValueId};

/// The most values that are walked back from a weight to its parameters.
const FARTHEST: usize = 64;
/// The default of `eps` of a standardised weight.
const EPS: f64 = 1e-6;

/// The weight of a layer.
pub(super) enum Weight {
    /// Parameters, with options that say how the weight is made of them.
    Parameters { options: Vec<(&'static str, Literal)>, keys: Vec<(&'static str, String)> },
    /// Any other value.
    Computed(ValueId),
}

impl Weight {
    /// True if it is a parameter as it is stored.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Weight::Parameters { options, .. } if options.is_empty())
    }

    /// Adds the options and names the parameters. The layer has no input for a computed weight.
    pub(super) fn on(self, layer: Layer) -> Result<Layer> {
        match self {
            Weight::Parameters { options, keys } => {
                let layer = options.into_iter().fold(layer, |layer, (name, value)| layer.set(name, value));
                Ok(keys.iter().fold(layer, |layer, (name, key)| layer.key(name, Some(key))))
            }
            Weight::Computed(_) => refuse("its weight is computed"),
        }
    }
}

/// Returns how a weight is made. `rows` is the axis of its outputs.
pub(super) fn weight(lift: &Lift<'_>, node: &Node, rows: i64) -> Result<Weight> {
    let Some(value) = node.tensor("weight") else { return refuse("it has no `weight`") };
    if let (Some(state), Origin::Parameters) = (lift.state(value), &lift.origins[value]) {
        return Ok(Weight::Parameters { options: Vec::new(), keys: vec![("weight", state.key.clone())] });
    }
    let found = weight_norm(lift, value).or_else(|| standardized(lift, value)).or_else(|| spectral(lift, value, rows));
    Ok(found.unwrap_or(Weight::Computed(value)))
}

/// Returns the node that makes a value.
fn maker<'m>(lift: &Lift<'m>, value: ValueId) -> Option<&'m Node> {
    let model = lift.model;
    lift.makers[value].map(|maker| &model.nodes[maker])
}

fn key(lift: &Lift<'_>, value: ValueId) -> Option<String> {
    lift.state(value).filter(|state| matches!(state.kind, StateKind::Parameter { .. })).map(|state| state.key.clone())
}

/// `torch._weight_norm(v, g, dim)`: lengths times directions.
fn weight_norm(lift: &Lift<'_>, value: ValueId) -> Option<Weight> {
    let node = maker(lift, value).filter(|node| matches!(&node.op[..], "_weight_norm" | "_weight_norm_interface"))?;
    let (directions, lengths) = (key(lift, node.tensor("v")?)?, key(lift, node.tensor("g")?)?);
    let axis = node.int("dim").unwrap_or(0);
    let rank = lift.model.values[value].shape.len() as i64;
    let axis = if axis < 0 { axis + rank } else { axis };
    let mut options = vec![("weight_norm", if axis == 0 { true.into() } else { axis.into() })];
    let names = match lengths.ends_with("weight_g") {
        true => {
            options.push(("weight_norm_names", "weight_g".into()));
            ["weight_v", "weight_g"]
        }
        false => ["parametrizations.weight.original1", "parametrizations.weight.original0"],
    };
    Some(Weight::Parameters { options, keys: vec![(names[0], directions), (names[1], lengths)] })
}

/// A batch norm over the rows of a weight, with a factor for each row or none.
fn standardized(lift: &Lift<'_>, value: ValueId) -> Option<Weight> {
    let (norm, _) = reshaped(lift, value)?;
    let node = maker(lift, norm).filter(|node| node.op == "batch_norm" && node.is("training", false))?;
    if node.tensor("running_mean").is_some() || node.tensor("bias").is_some() {
        return None;
    }
    let (parameter, _) = reshaped(lift, node.tensor("input")?)?;
    let (shape, weight) = (&lift.model.values[parameter].shape, key(lift, parameter)?);
    let rows = *shape.first()?;
    let each = lift.model.values[parameter].elements()?.checked_div(rows)?;
    if lift.model.values[node.tensor("input")?].shape != [1, rows, each] || lift.model.values[value].shape != *shape {
        return None;
    }
    let mut options: Vec<(&'static str, Literal)> = vec![("standardized", true.into())];
    let mut keys = vec![("weight", weight)];
    if let Some(factor) = node.tensor("weight") {
        let (gain, scale) = gain(lift, factor)?;
        // The factor of a row is `gamma` over the root of its elements, times a learned one.
        let gamma = scale * (each as f64).sqrt();
        let rounded = (gamma * 1e6).round() / 1e6;
        options.push(("gamma", if (gamma - rounded).abs() < 1e-9 { rounded } else { gamma }.into()));
        keys.push(("gain", key(lift, gain)?));
    }
    let eps = node.float("eps").unwrap_or(1e-5);
    if eps != EPS {
        options.push(("eps", eps.into()));
    }
    Some(Weight::Parameters { options, keys })
}

/// Returns the value that reshapes lead back to, and the node that made the last of them.
fn reshaped(lift: &Lift<'_>, mut value: ValueId) -> Option<(ValueId, usize)> {
    let mut last = usize::MAX;
    for _ in 0..FARTHEST {
        let Some(index) = lift.makers[value] else { break };
        let node = &lift.model.nodes[index];
        if !matches!(
            &node.op[..],
            "view" | "reshape" | "reshape_as" | "view_as" | "flatten" | "_unsafe_view" | "squeeze" | "unsqueeze"
        ) {
            break;
        }
        (value, last) = (node.tensors().next()?, index);
    }
    Some((value, last))
}

/// Returns the parameter and the number whose product a value is.
fn gain(lift: &Lift<'_>, factor: ValueId) -> Option<(ValueId, f64)> {
    let (value, _) = reshaped(lift, factor)?;
    if lift.state(value).is_some() {
        return Some((value, 1.0));
    }
    let node = maker(lift, value).filter(|node| node.op == "mul")?;
    let (first, second) = (node.tensor("self")?, node.argument("other")?);
    let (number, value) = match second {
        Argument::Float(number) => (*number, first),
        Argument::Int(number) => (*number as f64, first),
        Argument::Tensor(second) => match (lift.origins[first].numbers(), lift.origins[*second].numbers()) {
            (Some(tensor), None) => (tensor.numbers().first().copied()?, *second),
            (None, Some(tensor)) => (tensor.numbers().first().copied()?, first),
            _ => return None,
        },
        _ => return None,
    };
    Some((reshaped(lift, value)?.0, number))
}

/// A parameter over its largest singular value, which two buffers estimate.
fn spectral(lift: &Lift<'_>, value: ValueId, rows: i64) -> Option<Weight> {
    let node = maker(lift, value).filter(|node| node.op == "div")?;
    let (parameter, sigma) = (reshaped(lift, node.tensor("self")?)?.0, node.tensor("other")?);
    let product = maker(lift, sigma).filter(|node| matches!(&node.op[..], "dot" | "vdot"))?;
    let weight = key(lift, parameter)?;
    let shape = &lift.model.values[parameter].shape;
    // The matrix whose singular value it is, and the vectors, which earlier steps may have improved.
    let (mut near, mut at) = (product.tensors().collect::<Vec<_>>(), 0);
    let (mut vectors, mut axis) = (Vec::new(), 0);
    while let Some(&one) = near.get(at).filter(|_| at < FARTHEST) {
        at += 1;
        if let Some(state) = lift.state(one) {
            if one != parameter && !vectors.contains(&(one, &state.key)) {
                vectors.push((one, &state.key));
            }
            continue;
        }
        let node = maker(lift, one)?;
        if node.op == "permute" && node.tensors().next() == Some(parameter) {
            axis = *node.ints("dims")?.first()?;
        }
        for other in node.tensors() {
            if !near.contains(&other) {
                near.push(other);
            }
        }
    }
    let outputs = *shape.get(usize::try_from(axis).ok()?)?;
    let vector = |length: u64, name: &str| {
        let all = vectors.iter().filter(|(value, _)| lift.model.values[*value].shape == [length]);
        all.map(|(_, key)| (*key).clone()).find(|key| key.ends_with(name))
    };
    let inputs = lift.model.values[parameter].elements()?.checked_div(outputs)?;
    let keys = vec![
        ("parametrizations.weight.original", weight),
        ("parametrizations.weight.0._u", vector(outputs, "_u")?),
        ("parametrizations.weight.0._v", vector(inputs, "_v")?),
    ];
    let option = if axis == rows { true.into() } else { axis.into() };
    Some(Weight::Parameters { options: vec![("spectral_norm", option)], keys })
}
