use crate::host::harness::graphs::{chain, images, join, layer, numbers};
use crate::host::{CAPABILITY, Reference, Run, compare_programs, prepare_programs};
use crate::layouts::program;
use crate::{check, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use std::slice;

/// Numbers: in packs and one by one, with a gradient that is written and one that is added.
fn of_numbers(dims: [u64; 3], end: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        let x = layer(graph, input, "Tanh");
        let each = layer(graph, x, "Normalize([0.5; -0.25; 1], [2; 0.5; 0.75])");
        let all = chain(graph, x, "Sigmoid | Normalize(0.25, 4)");
        let again = layer(graph, x, "Normalize");
        let joined = join(graph, &[each, all, again], "Concat");
        chain(graph, joined, end)
    }
}

fn of_bytes(dims: [u64; 3], end: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(images(&dims)).unwrap();
        let x = layer(graph, input, "Normalize([0.485; 0.456; 0.406], [0.229; 0.224; 0.225])");
        chain(graph, x, end)
    }
}

#[test]
fn channels_less_a_number() {
    for dims in [[3, 4, 8], [3, 2, 6], [3, 5, 7]] {
        check(&format!("numbers {dims:?}"), 3, of_numbers(dims, "Sigmoid"));
        check(&format!("bytes {dims:?}"), 3, of_bytes(dims, "Conv2d(2, 1)"));
    }
}

/// With a loss of squares: terms that cancel would leave their rounding.
#[test]
fn sixteen_bits() {
    for precision in [Precision::Bf16, Precision::F16] {
        for dims in [[3, 4, 8], [3, 2, 6], [3, 5, 7]] {
            squares(&format!("numbers {dims:?}"), precision, of_numbers(dims, "Sigmoid"));
            squares(&format!("bytes {dims:?}"), precision, of_bytes(dims, "Conv2d(2, 1)"));
        }
    }
}

fn squares(what: &str, precision: Precision, build: impl Fn(&mut Graph) -> NodeId) {
    let (program, format, optimizer) = (program(build), (precision, CAPABILITY), gradients().1);
    prepare_programs(&[format], slice::from_ref(&program), 3, optimizer);
    let run = Run { batch: 3, optimizer, steps: 1, classes: 5, tolerance: 1e-2, reference: Reference::Cpu };
    compare_programs(format, 0..1, &format!("{what} in {precision:?}"), [&program, &program], run);
}
