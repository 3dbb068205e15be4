//! What is in the lists is tested: a layer, a function or an optimizer without a case fails here.
#![cfg(feature = "lower")]

mod common;

use common::random::{KINDS, network};
use gpumem_core::graph::Source;
use gpumem_core::layers::Entry;
use gpumem_core::program::Op;
use gpumem_core::program::function::Function;
use std::collections::BTreeSet;

/// Both backends run random networks, against differences of losses and against each other.
#[test]
fn random_networks_have_every_layer_operation_and_function() {
    let (mut layers, mut operations, mut functions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for kind in 0..KINDS {
        for (first, second) in (0..6).flat_map(|first| (0..6).map(move |second| (first, second))) {
            // After a layer whose weight can be tied.
            let (graph, _) = network(&[(12, 0, 0), (kind, first, second)], true);
            layers.extend(graph.rows.iter().map(|row| row.kind.clone()));
            for node in &graph.nodes {
                let Source::Op { op, .. } = &node.source else { continue };
                operations.insert(op.name());
                if let Op::Pointwise(op) = op {
                    functions.insert(op.function.name());
                }
            }
        }
    }
    let missing = |all: &[&'static str], found: &BTreeSet<&str>| -> Vec<&'static str> {
        all.iter().copied().filter(|name| !found.contains(name)).collect()
    };
    let layers = layers.iter().map(String::as_str).collect();
    assert_eq!(missing(&Entry::names(), &layers), [""; 0], "layers");
    assert_eq!(missing(Op::NAMES, &operations), [""; 0], "operations");
    let names: Vec<&str> = Function::ALL.iter().map(|function| function.name()).collect();
    assert_eq!(missing(&names, &functions), [""; 0], "functions");
}

/// Names are unique, and in Rust's case.
#[test]
fn names() {
    let names = Entry::names();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
    for name in names {
        assert!(name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric), "{name}");
    }
}
