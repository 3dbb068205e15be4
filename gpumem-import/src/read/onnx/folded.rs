//! Finds convolutions that an exporter has made of a convolution and its BatchNorm.

use super::names::looks_like_key;
use super::proto::{GraphProto, NodeProto};
use super::scope::Scopes;
use crate::error::Error;
use std::path::Path;

/// Refuses a graph whose convolutions hold a BatchNorm: how it trains is no longer in the file.
pub(super) fn check(graph: &GraphProto, path: &Path) -> Result<(), Error> {
    let mut scopes = Scopes::default();
    let mut names: Vec<String> = Vec::new();
    for node in graph.node.iter().filter(|node| is_folded(node, graph)) {
        let module = scopes.of(node).modules.last().map_or(String::new(), |module| module.path.clone());
        names.push(if module.is_empty() { node.name.clone().unwrap_or_default() } else { module });
    }
    let Some(first) = names.first() else { return Ok(()) };
    let more = match names.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let what = format!(
        "has BatchNorm folded into the convolution `{first}`{more}, so that a training step of it is unknown; export it for training: \
         `torch.onnx.export(model, args, \"model.onnx\", dynamo=False, training=torch.onnx.TrainingMode.TRAINING, \
         do_constant_folding=False)`, or as `.pt2`: `torch.export.save(torch.export.export(model.train(), args), \"model.pt2\")`; \
         for inference it can be read as it is"
    );
    Err(Error::new(path, what))
}

/// True for a convolution with a weight and a bias that were computed, or with a name or a class that says so.
fn is_folded(node: &NodeProto, graph: &GraphProto) -> bool {
    if !matches!(node.op_type.as_deref(), Some("Conv" | "ConvTranspose" | "Gemm")) {
        return false;
    }
    let is_convolution = node.op_type.as_deref() != Some("Gemm");
    let classes =
        node.metadata_props.iter().find(|entry| entry.key.as_deref() == Some("pkg.torch.onnx.class_hierarchy"));
    let classes = classes.and_then(|entry| entry.value.as_deref()).unwrap_or("");
    if classes.contains("batch_norm") || node.input.get(2).is_some_and(|bias| bias.ends_with("weight_bias")) {
        return true;
    }
    // An exporter that names its tensors like this one gives each a name when it computes them.
    let [_, weight, bias] = &node.input[..] else { return false };
    let is_computed = |name: &str| name.starts_with("onnx::") && is_stored(name, graph);
    is_convolution && is_computed(weight) && is_computed(bias) && !looks_like_key(weight)
}

fn is_stored(name: &str, graph: &GraphProto) -> bool {
    graph.initializer.iter().any(|tensor| tensor.name.as_deref() == Some(name))
}
