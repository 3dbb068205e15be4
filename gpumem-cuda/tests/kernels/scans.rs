//! Selective scans: chunks of steps, groups of channels, and every number of threads for a channel.

use crate::host::CAPABILITY;
use crate::host::harness::graphs::{join, layer, numbers};
use crate::{check, check_formats, check_mixed, check_narrow};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};

/// A scan whose step sizes are the logarithms of `1 + exp(x)` of an input.
fn scans(steps: u64, channels: u64, states: u64) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let mut input = |width| graph.input(numbers(&[steps, width])).unwrap();
        let [u, sizes, b, c] = [channels, channels, states, states].map(&mut input);
        let sizes = layer(graph, sizes, "Softplus");
        join(graph, &[u, sizes, b, c], "SelectiveScan")
    }
}

/// One lane and two, with a state each and with several.
#[test]
fn few_states() {
    check("a scan of one state", 2, scans(5, 3, 1));
    check("three states of a lane", 3, scans(17, 33, 3));
    check("two lanes", 2, scans(33, 35, 7));
}

/// As Mamba has them: four lanes of four states.
#[test]
fn sixteen_states() {
    check("a scan of several groups", 2, scans(35, 67, 16));
    check("a scan of one step", 3, scans(1, 32, 16));
    check("a scan of whole chunks", 1, scans(32, 8, 16));
}

/// Fewer channels at a time than are summed up together.
#[test]
fn many_states() {
    check("eight lanes", 2, scans(18, 35, 30));
    check("sixteen lanes", 1, scans(17, 34, 64));
    check("thirty-two lanes", 1, scans(17, 35, 100));
}

#[test]
fn scans_in_16_bits() {
    check_narrow("a scan of several groups", 2, scans(19, 35, 16));
    check_mixed("a scan of several groups", 2, scans(19, 35, 16));
    let f16 = [((Precision::F16, CAPABILITY), 0..3)];
    check_formats("a scan in all orders", &f16, 1, scans(18, 34, 5));
}

/// Gradients that are added to others, and u, b and c that are one value.
#[test]
fn gradients_that_are_added() {
    check("two scans of the same values", 2, |graph| {
        let input = graph.input(numbers(&[19, 6])).unwrap();
        let x = layer(graph, input, "Tanh");
        let sizes = layer(graph, x, "StepSizes(6)");
        let first = join(graph, &[x, sizes, x, x], "SelectiveScan");
        let second = join(graph, &[first, sizes, x, first], "SelectiveScan");
        join(graph, &[first, second], "Add")
    });
}
