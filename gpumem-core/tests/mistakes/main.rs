//! Every message of a layer's shape rule and arguments.
#![cfg(feature = "lower")]

#[path = "../common/mod.rs"]
mod common;
mod maps;
mod sequences;
mod values;

use common::{inputs, try_join};
use gpumem_core::graph::Graph;

/// An input, a layer, and what is wrong with them.
type Case = (&'static str, &'static str, &'static str);

fn check(cases: &[Case]) {
    for &(input, layer, expected) in cases {
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, input);
        let mistake = if layer == "Tied(w)" {
            try_join(&mut graph, &nodes, "Tied").unwrap_err()
        } else {
            match try_join(&mut graph, &nodes, layer) {
                Ok(node) => panic!("{layer} of {input} produces {}", graph.value(node).shape),
                Err(mistake) => mistake,
            }
        };
        assert_eq!(mistake.to_string(), expected, "{layer} of {input}");
    }
}
