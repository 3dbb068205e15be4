//! The modules in which an operation runs: from its name, or from what the exporter notes beside it.

use super::proto::NodeProto;
use crate::model::Module;
use std::collections::HashMap;
use std::rc::Rc;

/// Finds modules, and shares those of operations that run in the same ones.
#[derive(Default)]
pub(super) struct Scopes {
    known: HashMap<(String, String), Rc<[Module]>>,
}

/// The modules in which a node runs, and its operation in ATen.
#[derive(Clone, Default)]
pub(super) struct Scope {
    pub(super) modules: Rc<[Module]>,
    /// The operation of ATen that the exporter translated, such as `embedding`. Empty if the file does not say.
    pub(super) aten: String,
}

impl Scopes {
    pub(super) fn of(&mut self, node: &NodeProto) -> Scope {
        let note = |key: &str| {
            let found = node.metadata_props.iter().find(|entry| entry.key.as_deref() == Some(key));
            found.and_then(|entry| entry.value.clone()).unwrap_or_default()
        };
        let (mut paths, mut classes) = (note("pkg.torch.onnx.name_scopes"), note("pkg.torch.onnx.class_hierarchy"));
        if paths.is_empty() {
            (paths, classes) = (node.name.clone().unwrap_or_default(), String::new());
            // The last part is the operation.
            paths.truncate(paths.rfind('/').unwrap_or(0));
        }
        let aten = quoted(&classes).pop().and_then(|last| last.strip_prefix("aten.").map(String::from));
        let aten = aten.map_or(String::new(), |op| op.split('.').next().unwrap_or("").to_string());
        let key = (paths, classes);
        if let Some(modules) = self.known.get(&key) {
            return Scope { modules: modules.clone(), aten };
        }
        let modules: Rc<[Module]> = if key.1.is_empty() { named(&key.0) } else { noted(&key.0, &key.1) };
        self.known.insert(key, modules.clone());
        Scope { modules, aten }
    }
}

/// Returns the modules of `['', 'layers', 'layers.0', 'conv2d']`, whose last entry is the operation.
fn noted(paths: &str, classes: &str) -> Rc<[Module]> {
    let (mut paths, classes) = (quoted(paths), quoted(classes));
    paths.pop();
    let modules = paths.into_iter().zip(classes).map(|(path, class)| Module { call: path.clone(), path, class });
    modules.collect()
}

/// Returns the texts in quotes of a list that Python printed.
fn quoted(list: &str) -> Vec<String> {
    list.split('\'').skip(1).step_by(2).map(String::from).collect()
}

/// Returns the modules of `/layers/layers.0/conv1`. A part that begins with the one before it is a module of a list.
fn named(name: &str) -> Rc<[Module]> {
    if !name.starts_with('/') {
        return Rc::new([]);
    }
    let root = Module { call: String::new(), path: String::new(), class: String::new() };
    let mut modules = vec![root];
    let (mut base, mut last, mut path) = (String::new(), String::new(), String::new());
    for part in name.split('/').filter(|part| !part.is_empty()) {
        let is_listed = !last.is_empty() && part.strip_prefix(&last[..]).is_some_and(|rest| rest.starts_with('.'));
        if !is_listed {
            base = if path.is_empty() { String::new() } else { format!("{path}.") };
        }
        path = format!("{base}{part}");
        last = part.to_string();
        modules.push(Module { call: path.clone(), path: path.clone(), class: String::new() });
    }
    modules.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_pytorch() {
        let paths = |name: &str| named(name).iter().map(|module| module.path.clone()).collect::<Vec<_>>();
        assert_eq!(
            paths("/layers/layers.8/layers.8.0/layers/layers.1"),
            ["", "layers", "layers.8", "layers.8.0", "layers.8.0.layers", "layers.8.0.layers.1"]
        );
        assert_eq!(
            paths("/encoder/layer.0/attention"),
            ["", "encoder", "encoder.layer.0", "encoder.layer.0.attention"]
        );
        assert!(paths("Constant_724").is_empty());
    }
}
