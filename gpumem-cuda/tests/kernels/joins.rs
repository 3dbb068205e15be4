//! Joins and dropout.

use crate::check;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use gpumem_core::graph::Graph;

#[test]
fn sums() {
    for features in [13, 300] {
        check("a sum of three, one of them the output", 3, |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            let branches = [layer(graph, input, "Tanh"), input, layer(graph, input, "LeakyRelu(0.3)")];
            join(graph, &branches, "Add")
        });
    }
    check("a sum of more than one launch adds up", 2, |graph| {
        let input = graph.input(numbers(&[5, 6])).unwrap();
        let x = layer(graph, input, "Sigmoid");
        let mut branches = vec![x; 9];
        branches.push(input);
        let sum = join(graph, &branches, "Add");
        layer(graph, sum, "Tanh")
    });
}

#[test]
fn sums_with_a_branch_without_a_batch() {
    for width in [5, 12] {
        check("positions added to every sample, and again", 3, |graph| {
            let input = graph.input(numbers(&[7, width])).unwrap();
            let positions = chain(graph, input, "PositionEmbedding(7) | Tanh");
            // A sum without a batch, its output in the place of a branch.
            let twice = [layer(graph, positions, "Sigmoid"), positions];
            let positions = join(graph, &twice, "Add");
            let sum = join(graph, &[input, positions], "Add");
            join(graph, &[positions, sum, sum], "Add")
        });
    }
}

#[test]
fn products() {
    for features in [13, 700] {
        check("a gate", 3, |graph| {
            let input = graph.input(numbers(&[features])).unwrap();
            let branches = [layer(graph, input, "Sigmoid"), layer(graph, input, "Tanh")];
            let product = join(graph, &branches, "Mul");
            // Both gradients of the square are added to one tensor.
            join(graph, &[product, product], "Mul")
        });
    }
}

#[test]
fn branches_side_by_side() {
    check("channels", 3, |graph| {
        let input = graph.input(numbers(&[3, 5, 7])).unwrap();
        let branches = [layer(graph, input, "Sigmoid"), layer(graph, input, "MaxPool2d(3, 1, padding = 1)"), input];
        join(graph, &branches, "Concat")
    });
    check("the last axis of a sequence", 3, |graph| {
        let input = graph.input(numbers(&[11, 12])).unwrap();
        let x = layer(graph, input, "Tanh");
        let once = join(graph, &[x, input], "Concat");
        // Parts of 24 and 12 elements, and the second is used twice.
        join(graph, &[once, x, x], "Concat")
    });
}

#[test]
fn random_zeros_of_channels_and_samples() {
    let after = |shape: &'static [u64], text: &'static str| {
        move |graph: &mut Graph| {
            let input = graph.input(numbers(shape)).unwrap();
            let x = layer(graph, input, "Tanh");
            // Two that read it, so that the zeros have a launch of their own.
            let branches = [layer(graph, x, text), layer(graph, x, "Silu")];
            join(graph, &branches, "Concat")
        }
    };
    for shape in [&[5, 4, 3][..], &[3, 8, 8]] {
        check("channels", 3, after(shape, "Dropout2d(0.4)"));
        check("samples", 3, after(shape, "DropPath(0.4)"));
    }
    check("channels of signals", 3, after(&[7, 5], "Dropout1d(0.3)"));
    check("gradients added", 3, |graph| {
        let input = graph.input(numbers(&[3, 2, 5])).unwrap();
        let x = layer(graph, input, "Tanh");
        let branches = [layer(graph, x, "Dropout2d(0.3)"), layer(graph, x, "DropPath"), x];
        join(graph, &branches, "Add")
    });
}

#[test]
fn random_zeros() {
    // In place on both ways, and 7 * 13 * 3 is no multiple of 4.
    check("in place", 3, |graph| {
        let input = graph.input(numbers(&[7, 13])).unwrap();
        chain(graph, input, "Sigmoid | Dropout(0.3) | Dropout(0.5, inplace = true)")
    });
    check("to another tensor, and gradients added", 3, |graph| {
        let input = graph.input(numbers(&[2, 300])).unwrap();
        let x = layer(graph, input, "Tanh");
        let branches = [layer(graph, x, "Dropout(0.1)"), layer(graph, x, "Dropout"), x];
        join(graph, &branches, "Add")
    });
}
