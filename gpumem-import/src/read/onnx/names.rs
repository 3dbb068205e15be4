//! The part of each tensor of a file in the model: by its name, and by the operations that read it.

use super::proto::{GraphProto, NodeProto};
use super::scope::Scopes;
use crate::model::{Dtype, StateKind};
use std::collections::HashMap;

/// Endings of names that buffers have in PyTorch's libraries. A file does not tell them from parameters.
const BUFFERS: [&str; 14] = [
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "inv_freq",
    "original_inv_freq",
    "position_ids",
    "token_type_ids",
    "attn_mask",
    "attention_mask",
    "causal_mask",
    "final_logits_bias",
    "relative_position_index",
    "relative_coords_table",
    "pos_embed.pos_embed",
];

/// A tensor's part in the operations that read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Role {
    /// The key that it has by its reader, such as `blocks.0.attn.qkv.weight`. Empty if no reader says.
    pub(super) key: String,
    /// True if it is the weight of a layer.
    is_weight: bool,
    /// True if all readers multiply with it as `[in, out]`.
    pub(super) is_turned: bool,
    /// True for running statistics.
    is_statistic: bool,
    /// True for a factor or a summand of a normalisation.
    pub(super) is_norm: bool,
    /// True for the parameter of a GroupNorm, which the file has with axes of one element.
    pub(super) is_flat: bool,
    /// True if its first reader is known to be the module that has it.
    pub(super) is_sure: bool,
    /// True if values are multiplied with it.
    is_factor: bool,
    /// True if it is an argument of an operation, such as a bound or a scale.
    is_setting: bool,
}

/// The roles of all tensors of a file.
#[derive(Default)]
pub(super) struct Roles {
    roles: HashMap<String, Role>,
    /// Keys of operands by the node that reads them, for tensors that modules of several keys read.
    operands: HashMap<(String, usize), String>,
    nothing: Role,
}

impl Roles {
    pub(super) fn of(&self, name: &str) -> &Role {
        self.roles.get(name).unwrap_or(&self.nothing)
    }

    /// Returns the key that an operand has by its module, if other modules read the same tensor under other keys.
    pub(super) fn operand(&self, node: &NodeProto, index: usize) -> Option<&str> {
        let output = node.output.first()?;
        if self.operands.is_empty() { None } else { self.operands.get(&(output.clone(), index)).map(|key| &key[..]) }
    }

    /// Finds the roles of the tensors of a graph.
    pub(super) fn find(graph: &GraphProto) -> Roles {
        let mut roles = Roles::default();
        let mut scopes = Scopes::default();
        let mut readers: HashMap<&str, Vec<(&NodeProto, usize)>> = HashMap::new();
        let mut makers: HashMap<&str, &NodeProto> = HashMap::new();
        // The name of a tensor that was found to equal another one.
        let mut same: HashMap<&str, &str> = HashMap::new();
        for node in &graph.node {
            for (index, input) in node.input.iter().enumerate() {
                let input = same.get(&input[..]).copied().unwrap_or(input);
                readers.entry(input).or_default().push((node, index));
            }
            for output in &node.output {
                makers.insert(output, node);
            }
            if let ("Identity", [input], [output]) =
                (node.op_type.as_deref().unwrap_or(""), &node.input[..], &node.output[..])
                && !looks_like_key(output)
            {
                same.insert(output, same.get(&input[..]).copied().unwrap_or(input));
            }
        }
        let stored = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref());
        let copies = graph.node.iter().filter_map(copied).map(|(_, copy)| copy);
        for name in stored.chain(copies) {
            let Some(all) = readers.get(name) else { continue };
            let mut keys: Vec<String> = Vec::new();
            let mut apart: Vec<((String, usize), String)> = Vec::new();
            let mut role = Role { is_turned: true, ..Role::default() };
            for &(node, index) in all.iter().filter(|(node, _)| node.op_type.as_deref() != Some("Identity")) {
                let is_bias = is_added_bias(node, index, &makers, &mut scopes);
                let (suffix, is_turned) = match group_norm(node, index, &makers) {
                    Some(suffix) => {
                        role.is_flat = true;
                        (suffix, false)
                    }
                    None if is_bias => ("bias", false),
                    None => reader(node, index),
                };
                role.is_norm |= node.op_type.as_deref().is_some_and(|op| op.ends_with("Normalization")) && index > 0;
                let op = node.op_type.as_deref().unwrap_or("");
                role.is_setting |=
                    matches!((op, index), ("Resize" | "Clip", 1 | 2) | ("Upsample" | "Dropout", 1) | ("Pad", 2));
                role.is_factor |= matches!(node.op_type.as_deref(), Some("Mul"));
                role.is_turned &= is_turned;
                role.is_weight |= !suffix.is_empty();
                role.is_statistic |= suffix.starts_with("running");
                if !suffix.is_empty() {
                    let next = node.output.first().and_then(|output| readers.get(&output[..]));
                    let module = scopes.of(node).modules.last().cloned();
                    let own = match module.as_ref().map_or("", |module| &module.path) {
                        "" => String::new(),
                        path => format!("{path}.{suffix}"),
                    };
                    let package = if is_bias { LINEAR } else { package(node.op_type.as_deref().unwrap_or("")) };
                    let is_leaf = module.is_some_and(|module| module.class.starts_with(package));
                    role.is_sure |= keys.is_empty() && is_leaf;
                    if let (true, Some(output)) = (is_leaf, node.output.first()) {
                        apart.push(((output.clone(), index), own.clone()));
                    }
                    // A bias that several layers read has the name of one of them.
                    let bias = bias(node, index, next).filter(|bias| !is_leaf || readers[bias].len() == 1);
                    keys.push(bias.and_then(beside).unwrap_or(own));
                }
            }
            role.is_sure |= keys.iter().any(|key| key == name);
            let is_apart = looks_like_key(name) && apart.iter().any(|(_, key)| *key == name);
            if is_apart && apart.len() == keys.len() {
                roles.operands.extend(apart.into_iter().filter(|(_, key)| *key != name));
            }
            role.key = keys.into_iter().next().unwrap_or_default();
            roles.roles.insert(name.to_string(), role);
        }
        roles
    }
}

/// Returns the tensor that a node copies, and the copy's name if a parameter has it. Exporters merge tensors that have the same numbers.
pub(super) fn copied(node: &NodeProto) -> Option<(&str, &str)> {
    match (node.op_type.as_deref()?, &node.input[..], &node.output[..]) {
        ("Identity", [input], [output]) if looks_like_key(output) => Some((input, output)),
        _ => None,
    }
}

/// Returns the name of an operand in the layer that an operation is, and true for a matrix that it multiplies with as `[in, out]`. The
/// name is empty if the operand may be anything.
fn reader(node: &NodeProto, index: usize) -> (&'static str, bool) {
    let turns = |name: &str| {
        let attribute = node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        attribute.and_then(|attribute| attribute.i).unwrap_or(0) != 0
    };
    let suffix = match (node.op_type.as_deref().unwrap_or(""), index) {
        ("Gemm", 1) => return ("weight", !turns("transB")),
        ("MatMul", 1) => return ("weight", true),
        ("Conv" | "ConvTranspose", 1) | ("PRelu", 1) => "weight",
        ("Gemm" | "Conv" | "ConvTranspose", 2) => "bias",
        ("BatchNormalization" | "InstanceNormalization" | "LayerNormalization" | "GroupNormalization", 1) => "weight",
        ("BatchNormalization" | "InstanceNormalization" | "LayerNormalization" | "GroupNormalization", 2) => "bias",
        ("RMSNormalization" | "SimplifiedLayerNormalization", 1) => "weight",
        // A weight that is standardised before the convolution reads it.
        ("BatchNormalization", 0) => "weight",
        ("BatchNormalization", 3) => "running_mean",
        ("BatchNormalization", 4) => "running_var",
        ("LSTM" | "GRU" | "RNN", 1) => "weight_ih_l0",
        ("LSTM" | "GRU" | "RNN", 2) => "weight_hh_l0",
        ("LSTM" | "GRU" | "RNN", 3) => "bias_l0",
        ("Gather", 0) => "weight",
        _ => "",
    };
    (suffix, false)
}

/// The package of linear layers.
const LINEAR: &str = "torch.nn.modules.linear.";

/// Returns the package of the modules whose parameters an operation reads.
fn package(op: &str) -> &'static str {
    match op {
        "Conv" | "ConvTranspose" => "torch.nn.modules.conv.",
        "Gemm" | "MatMul" => LINEAR,
        "Gather" => "torch.nn.modules.sparse.",
        "BatchNormalization" => "torch.nn.modules.batchnorm.",
        _ => "torch.nn.modules.normalization.",
    }
}

/// Returns the name of an operand of a GroupNorm: it follows an InstanceNormalization of another shape.
fn group_norm(node: &NodeProto, index: usize, makers: &HashMap<&str, &NodeProto>) -> Option<&'static str> {
    let made = |node: &NodeProto, index: usize, op: &str| {
        let maker = makers.get(&node.input.get(index)?[..]).copied()?;
        (maker.op_type.as_deref() == Some(op)).then_some(maker)
    };
    let scaled = |node: &NodeProto, place: usize| {
        made(node, place, "Reshape").and_then(|shape| made(shape, 0, "InstanceNormalization")).is_some()
    };
    let other = 1usize.checked_sub(index)?;
    match node.op_type.as_deref()? {
        "Mul" => scaled(node, other).then_some("weight"),
        "Add" => {
            let product = made(node, other, "Mul")?;
            (scaled(product, 0) || scaled(product, 1)).then_some("bias")
        }
        _ => None,
    }
}

/// Returns the bias of the layer whose weight an operand is.
fn bias<'g>(node: &'g NodeProto, index: usize, next: Option<&Vec<(&'g NodeProto, usize)>>) -> Option<&'g str> {
    if index != 1 {
        return None;
    }
    match node.op_type.as_deref()? {
        "Gemm" | "Conv" | "ConvTranspose" => node.input.get(2).map(|bias| &bias[..]),
        "MatMul" => {
            let (add, place) = next?.iter().find(|(next, _)| next.op_type.as_deref() == Some("Add"))?;
            add.input.get(1 - (*place).min(1)).map(|bias| &bias[..])
        }
        _ => None,
    }
}

/// True if an operand is added to a product with a stored matrix, inside of the module of a linear layer.
fn is_added_bias(node: &NodeProto, index: usize, makers: &HashMap<&str, &NodeProto>, scopes: &mut Scopes) -> bool {
    let Some(other) = 1usize.checked_sub(index).and_then(|other| node.input.get(other)) else { return false };
    let product = makers.get(&other[..]).filter(|product| product.op_type.as_deref() == Some("MatMul"));
    let is_stored = product.and_then(|product| product.input.get(1)).is_some_and(|it| !makers.contains_key(&it[..]));
    let is_sum = is_stored && node.op_type.as_deref() == Some("Add");
    is_sum && scopes.of(node).modules.last().is_some_and(|module| module.class.starts_with(LINEAR))
}

/// Returns the key by the bias of the same layer: that has its name where the weight has lost it.
fn beside(bias: &str) -> Option<String> {
    let stem = bias.strip_suffix("bias").filter(|_| looks_like_key(bias))?;
    Some(format!("{stem}weight"))
}

/// True for a name that a parameter or a buffer has in PyTorch, and not one that an exporter made up.
pub(super) fn looks_like_key(name: &str) -> bool {
    let made_up = name.is_empty()
        || name.contains("::")
        || name.contains('/')
        || name.ends_with("weight_bias")
        || name.bytes().all(|byte| byte.is_ascii_digit())
        || numbered(name, "val")
        || numbered(name, "_val")
        || numbered(name, "Constant");
    !made_up && (name.contains('.') || !is_operation(name))
}

fn numbered(name: &str, stem: &str) -> bool {
    let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('_'));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Operations after which the dynamo exporter names what it has folded. Those of the first list keep the numbers of a parameter.
const VIEWS: [&str; 14] = [
    "tmp",
    "expand",
    "clone",
    "t",
    "permute",
    "transpose",
    "view",
    "unsqueeze",
    "squeeze",
    "reshape",
    "_to_copy",
    "slice",
    "select",
    "flatten",
];
const COMPUTED: [&str; 33] = [
    "add",
    "mul",
    "sub",
    "div",
    "cos",
    "sin",
    "cat",
    "arange",
    "where",
    "exp",
    "neg",
    "tril",
    "triu",
    "full",
    "ones",
    "zeros",
    "eq",
    "le",
    "gt",
    "lt",
    "ge",
    "ne",
    "logical_not",
    "logical_and",
    "bitwise_not",
    "index",
    "pow",
    "sqrt",
    "rsqrt",
    "mean",
    "var",
    "stack",
    "getitem",
];

/// True for the name of an operation, with a number or without.
fn is_operation(name: &str) -> bool {
    let stem = stem(name);
    VIEWS.contains(&stem) || COMPUTED.contains(&stem) || stem == "onnx_initializer" || stem == "const"
}

fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => name,
    }
}

impl Role {
    /// True if the first module that reads a tensor of this name has another name for it.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        let last = |key: &str| key.rsplit('.').next().map(String::from);
        // A module may read what a module inside of it has.
        let module = self.key.rsplit_once('.').map_or("", |(module, _)| module);
        let is_inside = name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        self.is_sure && !self.key.is_empty() && self.key != name && last(&self.key) == last(name) && !is_inside
    }

    /// Returns what a tensor is: a parameter, a buffer or a constant.
    pub(super) fn kind(&self, name: &str, dtype: Dtype, shape: &[u64]) -> StateKind {
        let is_named = looks_like_key(name);
        if self.is_statistic || is_named && (!dtype.is_float() || BUFFERS.iter().any(|buffer| name.ends_with(buffer))) {
            return StateKind::Buffer { is_saved: true };
        }
        if !dtype.is_float()
            || shape.is_empty() && (!name.contains('.') && name.ends_with("_cast") || name.ends_with("_default"))
        {
            return StateKind::Constant;
        }
        // A table that values are multiplied with is one of angles; a factor for each channel has one axis.
        let is_table = self.is_factor && shape.iter().filter(|size| **size > 1).count() > 1;
        let is_view = !shape.is_empty() && VIEWS.contains(&stem(name)) && !is_table;
        let is_parameter = is_named || is_view || self.is_weight && !shape.is_empty();
        if is_parameter { StateKind::Parameter { trains: true } } else { StateKind::Constant }
    }
}

/// Returns the key of a tensor in the state dict: its name, or that of the operand which it is.
pub(super) fn key_of(name: &str, role: &Role) -> String {
    match looks_like_key(name) || role.key.is_empty() {
        true => name.to_string(),
        false => role.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exporters_are_no_keys() {
        for name in [
            "onnx::MatMul_1328",
            "val_37",
            "391",
            "/Constant_output_0",
            "expand",
            "clone_3",
            "conv1.weight_bias",
            "t_5",
        ] {
            assert!(!looks_like_key(name), "{name}");
        }
        for name in ["layer1.0.conv1.weight", "class_token", "pos_embed", "encoder.layers.0.bias", "logit_scale"] {
            assert!(looks_like_key(name), "{name}");
        }
    }
}
