//! Weights that several layers share.

use crate::lift::Layer;
use std::collections::HashSet;

/// Makes a linear map with the weight of an embedding the embedding's transposed use.
pub(crate) fn tie(layers: &mut [Layer]) {
    let mut tables: HashSet<String> = HashSet::new();
    for layer in layers {
        let key = |name: &str| layer.keys.iter().find_map(|(own, key)| (*own == name).then(|| key.clone()));
        let Some(weight) = key("weight").filter(|_| layer.changes.is_empty()) else { continue };
        match layer.kind {
            "Embedding" => drop(tables.insert(weight)),
            "Linear" if tables.contains(&weight) && !layer.flags.contains(&"transposed") => {
                let has_bias = key("bias").is_some();
                layer.kind = "Tied";
                layer.arguments.clear();
                layer.options.clear();
                layer.flags = if has_bias { vec!["bias"] } else { Vec::new() };
            }
            _ => {}
        }
    }
}
