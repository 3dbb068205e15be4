//! `torch.nn.MultiheadAttention` over one sequence: its joined projection, its attention and its output projection are one layer.

use crate::lift::patterns::matching::{output, plain};
use crate::lift::{Layer, Lift};
use crate::model::{Node, ValueId};

/// Looks for the output projection of such a module.
pub(in crate::lift::patterns) fn find(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    if node.op != "linear" {
        return None;
    }
    let (weight, bias) = keys(lift, node)?;
    let module = weight.strip_suffix("out_proj.weight")?.to_string();
    let rows = plain(lift, node.tensor("input")?);
    let attention = lift.planned_layer(rows).filter(|layer| layer.kind == "Attention")?;
    let &[joined] = &attention.inputs[..] else { return None };
    let (options, flags) = (attention.options.clone(), attention.flags.clone());
    let option = |name: &str| options.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
    let (_, projection) = lift.maker(joined).filter(|(_, node)| node.op == "linear")?;
    let (in_weight, in_bias) = keys(lift, projection)?;
    let input = projection.tensor("input")?;
    let &[steps, width] = &lift.sample(input)[..] else { return None };
    let is_module =
        in_weight.strip_suffix("in_proj_weight") == Some(module.as_str()) && bias.is_some() == in_bias.is_some();
    let result = output(node)?;
    if !is_module || option("scale").is_some() || option("kv_heads").is_some() || lift.sample(result) != [steps, width]
    {
        return None;
    }
    let mut layer = Layer::new("MultiHeadAttention", input, result)
        .with(option("heads").unwrap_or(crate::lift::Literal::Int(1)))
        .flag("causal", flags.contains(&"causal"))
        .option("bias", bias.is_some(), true);
    for name in ["dropout", "window"] {
        if let Some(value) = option(name) {
            layer = layer.set(name, value);
        }
    }
    let layer = layer
        .key("in_proj_weight", Some(&in_weight))
        .key("in_proj_bias", in_bias.as_deref())
        .key("out_proj.weight", Some(&weight))
        .key("out_proj.bias", bias.as_deref());
    lift.plan(index, vec![layer]);
    Some(())
}

/// Returns the keys of weight and bias.
fn keys(lift: &Lift<'_>, node: &Node) -> Option<(String, Option<String>)> {
    let key = |value: ValueId| lift.state(value).map(|state| state.key.clone());
    let weight = key(node.tensor("weight")?)?;
    let bias = match node.tensor("bias") {
        Some(bias) => Some(key(bias)?),
        None => None,
    };
    Some((weight, bias))
}
