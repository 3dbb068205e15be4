//! Batch normalisation in `eval`: by running statistics in training, through which no gradient flows.

use crate::channels_last;
use crate::host::harness::graphs::{again, chain, in_eval, join, layer, numbers};
use crate::host::{CAPABILITY, harness, kernels_in};
use crate::{check, check_narrow, check_trained, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::Op;
use gpumem_cuda::Kernel;

/// A network in `eval`, whose normalisations may be frozen.
fn resting<B: Fn(&mut Graph) -> NodeId + Copy>(is_frozen: bool, build: B) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let output = build(graph);
        in_eval(graph);
        for row in (0..graph.rows.len()).filter(|_| is_frozen) {
            if graph.rows[row].kind == "BatchNorm2d" {
                graph.freeze(row);
            }
        }
        output
    }
}

/// A chain of layers on one input.
fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, layers)
    }
}

/// Layers that read a value which is in the sum as well: gradients are added up.
fn shared(dims: &'static [u64]) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        let once = layer(graph, input, "BatchNorm2d");
        let twice = again(graph, once, "BatchNorm2d", 0);
        let plain = layer(graph, input, "BatchNorm2d(affine = false)");
        let sum = join(graph, &[twice, plain], "Add");
        join(graph, &[input, sum], "Add")
    }
}

/// The kernels of a training step.
fn kernels(build: impl Fn(&mut Graph) -> NodeId, batch: u64) -> Vec<Kernel> {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    kernels_in(&harness::compile(&program, batch), batch, Precision::F32, optimizer)
}

fn entries(all: &[Kernel], file: &str) -> Vec<&'static str> {
    all.iter().filter(|kernel| kernel.file == file).map(|kernel| kernel.entry).collect()
}

#[test]
fn no_pass_looks_for_statistics() {
    let all = |frozen| kernels(resting(frozen, along(&[3, 7, 5], "BatchNorm2d | Tanh | BatchNorm2d(eps = 0.01)")), 3);
    assert_eq!(
        entries(&all(true), "batch_norm.cu"),
        ["batch_norm_apply", "batch_norm_apply", "batch_norm_scale", "batch_norm_scale"]
    );
    let trained = all(false);
    let forward = ["batch_norm_apply", "batch_norm_apply"];
    assert_eq!(entries(&trained, "batch_norm.cu")[..2], forward);
    assert!(
        trained
            .iter()
            .filter(|kernel| kernel.file == "batch_norm.cu")
            .all(|kernel| { kernel.constants.iter().any(|(name, value)| *name == "EVAL" && value == "1") })
    );
}

#[test]
fn planes() {
    for frozen in [false, true] {
        let layers = "BatchNorm2d(affine = false) | Relu | BatchNorm2d(eps = 0.01, momentum = 0.25) | Silu";
        check("small", 3, resting(frozen, along(&[3, 7, 5], layers)));
        check("whole packs, in parts", 3, resting(frozen, along(&[2, 48, 50], "BatchNorm2d")));
        check("single elements, in parts", 2, resting(frozen, along(&[2, 43, 53], "BatchNorm2d")));
        check("one element", 1, resting(frozen, along(&[5, 1, 1], "BatchNorm2d")));
        check("gradients added", 2, resting(frozen, shared(&[3, 4, 5])));
        check_narrow("small", 2, resting(frozen, along(&[2, 3, 5], "BatchNorm2d | Relu")));
    }
    // Nobody asks for the gradient of the input.
    check_trained("first", 2, &[Precision::F32, Precision::Bf16], resting(false, along(&[3, 4, 5], "BatchNorm2d")));
}

/// The other use moves the statistics between the forward and the backward pass of the one that rests.
#[test]
fn uses_in_both_modes() {
    check("both modes", 3, |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        // Without a bias: a norm by the batch makes a sum of its gradient that cancels.
        let first = chain(graph, input, "Conv2d(3, 1, bias = false) | BatchNorm2d | Tanh");
        in_eval(graph);
        let second = again(graph, first, "BatchNorm2d", 1);
        let third = layer(graph, second, "Tanh");
        let last = again(graph, third, "BatchNorm2d", 1);
        let source = &mut graph.nodes[last].source;
        if let gpumem_core::graph::Source::Op { op: Op::BatchNorm(norm), .. } = source {
            norm.eval = true;
        }
        last
    });
}

#[test]
fn channels_side_by_side() {
    for (dims, channels) in [([3, 7, 5], 8), ([3, 27, 29], 24)] {
        for frozen in [false, true] {
            let build = resting(frozen, move |graph: &mut Graph| {
                let input = graph.input(numbers(&dims)).unwrap();
                let x = chain(graph, input, &format!("Conv2d({channels}, 1, bias = false) | BatchNorm2d | Relu"));
                let y = chain(graph, x, "BatchNorm2d(affine = false, eps = 0.01)");
                let sum = join(graph, &[x, y], "Add");
                chain(graph, sum, "Tanh | Conv2d(3, 1)")
            });
            let all = channels_last::kernels(build, (Precision::F32, CAPABILITY));
            let own = entries(&all, "batch_norm_last.cu");
            assert!(own.contains(&"batch_norm_scale"), "{own:?}");
            assert!(!own.contains(&"batch_norm_statistics") && !own.contains(&"batch_norm_forward"), "{own:?}");
            channels_last::check_all("in eval", build);
        }
    }
}
