//! Weights that are made of parameters.

use crate::host::harness::graphs::{again, chain, layer, numbers};
use crate::{check, check_mixed, check_narrow};
use gpumem_core::graph::{Graph, NodeId};

fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, layers)
    }
}

#[test]
fn a_warp_for_each_part() {
    check("filters, standardised", 2, along(&[3, 6, 5], "Conv2d(9, 3, standardized = true) | Tanh"));
    check("filters, scaled", 2, along(&[4, 5, 5], "Conv2d(10, [2; 3], groups = 2, standardized = true, gamma = 1.5)"));
    check("rows", 3, along(&[37], "Linear(19, weight_norm = true)"));
    check("columns", 3, along(&[37], "Linear(19, weight_norm = 1)"));
    check("taps", 2, along(&[4, 12], "Conv1d(6, 5, groups = 2, weight_norm = 2) | Tanh"));
    check("input channels", 2, along(&[6, 4, 3], "ConvTranspose2d(5, 3, stride = 2, weight_norm = true)"));
    check("input channels of filters", 2, along(&[6, 4, 3], "Conv2d(5, 3, weight_norm = 1)"));
}

#[test]
fn a_block_for_each_part() {
    check("rows", 2, along(&[1100], "Linear(3, weight_norm = true)"));
    check("rows, standardised", 2, along(&[1061], "Linear(2, standardized = true, gamma = 2.0)"));
    check("taps", 1, along(&[33, 7], "Conv1d(34, 3, weight_norm = 2)"));
}

#[test]
fn weights_over_their_largest_singular_value() {
    check("rows", 3, along(&[37], "Linear(19, spectral_norm = true)"));
    check("columns", 3, along(&[37], "Linear(19, spectral_norm = 1)"));
    check("filters", 2, along(&[4, 5, 6], "Conv2d(70, 3, spectral_norm = true) | Tanh"));
    check("input channels", 2, along(&[6, 4, 3], "ConvTranspose2d(5, 3, stride = 2, spectral_norm = true)"));
    check("many rows", 1, along(&[3], "Linear(1100, spectral_norm = true)"));
    check_narrow("filters in 16 bits", 2, along(&[4, 5, 5], "Conv2d(8, 3, spectral_norm = true)"));
    check_mixed("filters, mixed", 2, along(&[4, 5, 5], "Conv2d(8, 3, spectral_norm = true)"));
}

#[test]
fn gradients_of_all_uses() {
    for text in [
        "Linear(20, weight_norm = true)",
        "Linear(20, spectral_norm = true)",
        "Linear(20, standardized = true, gamma = 1.25)",
    ] {
        check(text, 3, |graph| {
            let input = graph.input(numbers(&[20])).unwrap();
            let once = chain(graph, input, &format!("Tanh | {text}"));
            let again = again(graph, once, text, 1);
            layer(graph, again, "Tanh")
        });
    }
}

#[test]
fn in_sixteen_bits() {
    check_narrow("filters", 2, along(&[4, 5, 5], "Conv2d(8, 3, standardized = true, gamma = 1.5)"));
    check_narrow("taps", 2, along(&[4, 9], "Conv1d(6, 4, weight_norm = 2)"));
    check_mixed("filters", 2, along(&[4, 5, 5], "Conv2d(8, 3, standardized = true, gamma = 1.5)"));
}
