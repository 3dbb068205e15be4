//! Functions of two numbers, with broadcasting.

use crate::gradients;
use crate::host::harness::compile;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::host::{CAPABILITY, steps_without_chains};
use crate::{check, check_narrow};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::operation::Operations;
use gpumem_core::program::{Op, Slot};
use gpumem_cuda::Call;
use gpumem_cuda::operations::{Context, LaunchContext, calls};

const FUNCTIONS: [&str; 6] = ["Add", "Sub", "Mul", "Div", "Maximum", "Minimum"];

/// A function of two inputs. Divisors are between a quarter and three quarters.
fn pair(graph: &mut Graph, function: &str, [left, right]: [&[u64]; 2]) -> NodeId {
    let [a, b] = [left, right].map(|dims| graph.input(numbers(dims)).unwrap());
    let b = layer(graph, b, "Sigmoid");
    join(graph, &[a, b], function)
}

/// All functions of two inputs, side by side: the gradients of the inputs are those of the last one, and the others added.
fn all(graph: &mut Graph, [left, right]: [&[u64]; 2]) -> NodeId {
    let [a, b] = [left, right].map(|dims| graph.input(numbers(dims)).unwrap());
    let b = layer(graph, b, "Sigmoid");
    let results = FUNCTIONS.map(|function| join(graph, &[a, b], function));
    join(graph, &results, "Concat")
}

/// Entry points of the kernels of a network that are in `binary.cu`, or multiply.
fn entries(graph: &Graph, output: NodeId) -> Vec<&'static str> {
    let (training, optimizer) = gradients();
    let placed = compile(&lower(graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
    let steps = steps_without_chains(&placed, 3, Precision::F32, optimizer);
    let entry = |call: &Call| match call {
        Call::Kernel(launch) => Some(launch.kernel.entry),
        Call::Product(_)
        | Call::Convolution(_)
        | Call::Attention(_)
        | Call::Recurrence(_)
        | Call::Passage(_)
        | Call::Exchange(_) => None,
    };
    let entries = steps.iter().flat_map(|step| &step.calls).filter_map(entry);
    entries.filter(|entry| entry.starts_with("binary") || *entry == "multiply").collect()
}

#[test]
fn equal_shapes() {
    for features in [13, 12] {
        check("equal shapes", 3, |graph| all(graph, [&[7, features], &[7, features]]));
    }
}

/// Repeated at the front, in the middle, at the end, both ways at once; rows in fours and singly.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn broadcast() {
    for [left, right] in [
        [&[5, 3, 7][..], &[5, 1, 1]],
        [&[5, 2, 6], &[5, 1, 1]],
        [&[1, 4], &[3, 1]],
        [&[3, 1], &[1, 5]],
        [&[7], &[2, 3, 7]],
        [&[2, 3, 8], &[2, 1, 8]],
        [&[1], &[3, 5]],
    ] {
        check(&format!("{left:?} and {right:?}"), 3, |graph| all(graph, [left, right]));
    }
}

/// The gradient of what is repeated: by parts of a warp, by a block, by columns in one slice and in many.
#[test]
fn sums_over_repetitions() {
    for ([left, right], entry) in [
        ([&[3, 2, 1][..], &[3, 1, 1]], "binary_rows"),
        ([&[3, 33, 40], &[3, 1, 1]], "binary_rows"),
        ([&[70, 35], &[1, 35]], "binary_columns"),
        ([&[2, 300], &[1, 300]], "binary_columns"),
    ] {
        let mut graph = Graph::default();
        let output = pair(&mut graph, "Mul", [left, right]);
        assert_eq!(entries(&graph, output), ["binary", "binary_gradient", entry]);
        check(entry, 3, |graph| pair(graph, "Div", [left, right]));
    }
}

#[test]
fn values_without_a_batch() {
    for width in [4, 5] {
        check("a table", 3, |graph| {
            let input = graph.input(numbers(&[7, width])).unwrap();
            let table = chain(graph, input, "PositionEmbedding(7) | Sigmoid");
            let positive = layer(graph, input, "Sigmoid");
            // As the second value and as the first.
            let second = FUNCTIONS.map(|function| join(graph, &[input, table], function));
            let first = FUNCTIONS.map(|function| join(graph, &[table, positive], function));
            join(graph, &[second, first].concat(), "Concat")
        });
    }
}

#[test]
fn squeeze_and_excitation() {
    for (channels, height, width) in [(6, 5, 7), (4, 6, 6)] {
        check("squeeze and excitation", 2, |graph| {
            let input = graph.input(numbers(&[channels, height, width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let gate = chain(graph, x, &format!("AdaptiveAvgPool2d(1) | Conv2d({channels}, 1) | Sigmoid"));
            join(graph, &[x, gate], "Mul")
        });
    }
}

/// A value with itself, and gradients that are added to others.
#[test]
fn values_used_twice() {
    check("twice", 3, |graph| {
        let [whole, row] = [[5, 6], [1, 6]].map(|dims| graph.input(numbers(&dims)).unwrap());
        let [whole, row] = [whole, row].map(|input| layer(graph, input, "Sigmoid"));
        let parts = ["Sub", "Div", "Add"].map(|function| join(graph, &[whole, row], function));
        let quotient = join(graph, &[whole, whole], "Div");
        join(graph, &[parts[0], parts[1], parts[2], quotient], "Concat")
    });
}

/// The product of values of one size has the kernel that it always had.
#[test]
fn plain_products() {
    let mut graph = Graph::default();
    let output = pair(&mut graph, "Mul", [&[7, 13], &[7, 13]]);
    assert_eq!(entries(&graph, output), ["multiply"; 3]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits() {
    for [left, right] in [[&[5, 3, 7][..], &[5, 1, 1]], [&[4, 8], &[1, 8]], [&[4, 8], &[4, 8]]] {
        check_narrow("all", 2, |graph| all(graph, [left, right]));
    }
}

#[test]
fn a_repeated_value_is_not_overwritten() {
    let mut graph = Graph::default();
    let output = pair(&mut graph, "Mul", [&[5, 3], &[5, 1]]);
    let (training, optimizer) = gradients();
    let mut program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let at = program.operations.iter().position(|operation| matches!(operation.forward(), Some(Op::Binary(_))));
    let at = at.unwrap();
    let repeated = program.operations[at].read(Slot::Input(1)).unwrap();
    program.operations[at].writes[0].tensor = repeated;
    let placed = compile(&program, 3);
    let setting = LaunchContext {
        rank: 0,
        batch: 3,
        precision: Precision::F32,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    };
    let context = Context { placed: &placed, operation: &placed.program.operations[at], setting };
    assert_eq!(calls(&context), Err(Error::Damaged("a repeated value cannot be overwritten")));
}
