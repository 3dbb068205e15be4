//! Rectifiers that keep a bit of each element: by themselves, in chains, in both orders, in every format.

use crate::chains::{chained, chains, placed};
use crate::channels_last::check_all;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_narrow};
use gpumem_core::Precision;
use gpumem_core::graph::Graph;
use gpumem_core::program::Op;

/// Every function, with a last byte that is not full, and a pooling behind each: no chain.
#[test]
fn rectifiers_that_keep_bits() {
    for function in ["Relu", "Relu6", "LeakyRelu(0.1)", "Hardsigmoid"] {
        // On both sides of everything; in 16 bits where no element is rounded to an upper edge.
        let build = |factor: &'static str| {
            move |graph: &mut Graph| {
                let input = graph.input(numbers(&[3, 7, 5])).unwrap();
                chain(graph, input, &format!("Affine({factor}, 0.5) | {function} | AvgPool2d(2, 1)"))
            }
        };
        check(function, 3, build("9.0"));
        check_narrow(function, 3, build("2.0"));
    }
    // Two readers, the second of which adds its gradient; and a value for all samples.
    check("added", 3, |graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        let x = layer(graph, input, "Tanh");
        let rectified = chain(graph, x, "Relu | AvgPool2d(3, 1, padding = 1)");
        join(graph, &[rectified, x], "Add")
    });
}

#[test]
fn channels_last() {
    check_all("rectifier", |graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        chain(graph, input, "Conv2d(8, 1, bias = false) | LeakyRelu(0.2) | AvgPool2d(2, 1) | Conv2d(3, 1)")
    });
}

/// What follows is in the same launch, and the bits are written and read there.
#[test]
fn rectifiers_in_chains() {
    for features in [24, 19] {
        chained("a rectifier and dropout", 3, &[2, 2], |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            chain(graph, input, "Softmax | Relu | Dropout(0.3) | Softmax")
        });
        chained("a residual sum", 3, &[3, 3], |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            let x = chain(graph, input, "Softmax");
            let y = chain(graph, x, "Affine(-2.0, 0.3)");
            let sum = join(graph, &[x, y], "Add");
            chain(graph, sum, "Relu6 | Softmax")
        });
    }
    // Rows of four elements are not repeated for eight at a time.
    let build = |graph: &mut Graph| {
        let [whole, part] = [[3, 5, 4], [3, 1, 1]].map(|dims| graph.input(numbers(&dims)).unwrap());
        let x = join(graph, &[whole, part], "Add");
        chain(graph, x, "Relu | Dropout(0.5) | AvgPool2d(2, 1)")
    };
    let placed = placed(3, Precision::F32, build);
    let kept = placed.program.operations.iter().filter(|it| matches!(it.backward(), Some(Op::Rectifier(_))));
    assert_eq!(kept.count(), 1, "{}", placed.program);
    let all = chains(&placed, 3, Precision::F32);
    assert!(all.iter().all(|(_, launch)| {
        !launch.kernel.constants.iter().any(|(name, value)| *name == "LOADS" && value.contains("/4u"))
    }));
    check("rows of four", 3, build);
}
