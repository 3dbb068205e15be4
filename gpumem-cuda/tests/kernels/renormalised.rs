//! Outputs of normalisations that are made again in the pass that makes the gradient, beside the same networks in which they are kept: the same
//! bits.

use crate::fronts::{BATCH, beside};
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::host::harness::layouts::arrange;
use crate::host::{CAPABILITY, FEW, Format, is_apart};
use crate::{check, gradients};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Sizes, Term, Training, lower, lower_for, with_normalized_convolutions};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Op, Pass, Program};
use gpumem_core::{Half, Precision};
use std::collections::BTreeSet;

/// A card on which blocks do not wait for each other.
const OLDER: (i32, i32) = (7, 5);

/// A step that keeps what its normalisations give, and the same where that is made again.
fn both(build: impl Fn(&mut Graph) -> NodeId) -> [Program; 2] {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let training = Training { loss: &[Term::MSE], input_gradient: false, ..gradients().0 };
    let options = Options { training: Some(training) };
    // Scratch memory would be most of what such small networks need.
    let setting = Sizes::new(BATCH, Precision::F32, Workspaces { product: 0, convolution: 0 });
    [lower(&graph, &[output], &options), lower_for(&graph, &[output], &options, &setting)].map(Result::unwrap)
}

/// Normalisations that run again.
fn again(program: &Program) -> usize {
    let is_it = |action: &Action| matches!(action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Again });
    program.operations.iter().filter(|operation| is_it(&operation.action)).count()
}

/// Compares both, with all maps dense or all channels last; the entries of the kernels that make an output again, of which there are `count`.
fn compare(
    build: impl Fn(&mut Graph) -> NodeId,
    count: usize,
    format: Format,
    is_last: bool,
) -> BTreeSet<&'static str> {
    let mut both = both(build);
    assert_eq!([again(&both[0]), again(&both[1])], [0, count], "{}", both[1]);
    if is_last {
        both.iter_mut().for_each(|program| assert!(arrange(program, 0) > 0));
    }
    let kernels = beside("a network", &both, format, 0.0);
    let makes = |(name, _): &(&str, String)| *name == "AGAIN";
    kernels.iter().filter(|kernel| kernel.constants.iter().any(makes)).map(|kernel| kernel.entry).collect()
}

/// Normalisations with and without rectifiers, of 16 channels.
fn layers(dims: [u64; 3]) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        let text = "Conv2d(16, 1, bias = false) | BatchNorm2d | Relu | Conv2d(16, 3, padding = 1) | \
                    BatchNorm2d(affine = false) | Silu | Conv2d(16, 1) | BatchNorm2d | Conv2d(16, 1) | BatchNorm2d | Relu6 | Conv2d(3, 1)";
        chain(graph, input, text)
    }
}

/// Concatenations whose first channels are what is normalised, and to whose gradients is added.
fn block(dims: [u64; 3]) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        let mut x = layer(graph, input, "Conv2d(8, 1, bias = false)");
        for _ in 0..3 {
            let made = chain(graph, x, "BatchNorm2d | Relu | Conv2d(8, 1, bias = false)");
            x = join(graph, &[x, made], "Concat");
        }
        chain(graph, x, "BatchNorm2d | Relu | Conv2d(3, 1)")
    }
}

#[test]
fn dense_maps() {
    for (dims, entry) in
        [([3, 5, 7], "batch_norm_backward"), ([3, 4, 6], "batch_norm_backward"), ([2, 64, 66], "batch_norm_input")]
    {
        assert_eq!(compare(layers(dims), 4, (Precision::F32, CAPABILITY), false), BTreeSet::from([entry]));
    }
    assert_eq!(
        compare(layers([3, 4, 6]), 4, (Precision::Bf16, CAPABILITY), false),
        BTreeSet::from(["batch_norm_backward"])
    );
    assert_eq!(
        compare(block([3, 4, 6]), 4, (Precision::Bf16, CAPABILITY), false),
        BTreeSet::from(["batch_norm_backward"])
    );
}

/// A normalisation of the network's input has no gradient to be made beside, and an output that lies otherwise than its gradient is made by itself.
#[test]
fn what_is_made_by_itself() {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 5, 7])).unwrap();
        let text = "BatchNorm2d | Silu | Conv2d(3, 3, padding = 1) | ".repeat(4);
        chain(graph, input, &format!("{text}BatchNorm2d | Relu | Conv2d(3, 1)"))
    };
    let both = both(build);
    let kernels = beside("a network", &both, (Precision::F32, CAPABILITY), 0.0);
    let has = |entry: &str, constant: &str| {
        kernels.iter().any(|kernel| kernel.entry == entry && kernel.constants.iter().any(|(name, _)| *name == constant))
    };
    assert!(again(&both[1]) == 5 && has("batch_norm_apply", "KEPT") && has("batch_norm_backward", "AGAIN"));
}

/// Functions whose slopes are computed again in the pass of the normalisation, in 32 bits beside the CPU backend.
#[test]
fn smooth_functions() {
    for function in ["Silu", "Hardswish", "Gelu", "Mish"] {
        check(function, 3, |graph| {
            let input = graph.input(numbers(&[3, 5, 7])).unwrap();
            let norm = format!("Conv2d(8, 1, bias = false) | BatchNorm2d | {function}");
            let rest = format!("Conv2d(8, 3, bias = false) | BatchNorm2d(affine = false) | {function}");
            chain(graph, input, &format!("{norm} | {rest} | AvgPool2d(2, 1)"))
        });
        // In 16 bits beside a function that keeps its input, since another one, which adds nothing, reads that, too.
        let program = |twice: bool| {
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[3, 5, 7])).unwrap();
            let x = chain(&mut graph, input, "Conv2d(8, 1, bias = false) | BatchNorm2d");
            let mut y = chain(&mut graph, x, function);
            if twice {
                let nothing = chain(&mut graph, x, "Affine(0, 0)");
                y = join(&mut graph, &[y, nothing], "Add");
            }
            let training = Training { loss: &[Term::MSE], input_gradient: false, ..gradients().0 };
            lower(&graph, &[y], &Options { training: Some(training) }).unwrap()
        };
        for precision in [Precision::Bf16, Precision::F16] {
            beside(function, &[program(true), program(false)], (precision, CAPABILITY), 1e-2);
        }
    }
}

#[test]
fn maps_channels_last() {
    for (dims, is_one) in [([3, 5, 7], true), ([3, 27, 29], false)] {
        for precision in [Precision::F32, Precision::Bf16, Precision::Mixed(Half::F16)] {
            for capability in [CAPABILITY, OLDER] {
                let expected = match capability {
                    _ if is_one => "batch_norm_backward",
                    OLDER => "batch_norm_input",
                    _ if is_apart() => "batch_norm_input",
                    _ => "batch_norm_backward_parts",
                };
                let format = (precision, capability);
                assert_eq!(compare(layers(dims), 4, format, true), BTreeSet::from([expected]));
                // With eight channels of 16 bits, one block is enough for some.
                assert!(compare(block(dims), 4, format, true).contains(expected));
            }
        }
    }
}

/// Three convolutions that are one with their normalisations read what is made again, behind these layers, and their gradients come through those.
fn bottlenecks(size: [u64; 2], [inner, outer]: [u64; 2], before: &str, behind: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&[3, size[0], size[1]])).unwrap();
        let mut x = layer(graph, input, &format!("Conv2d({outer}, 1)"));
        for _ in 0..3 {
            let inner = chain(graph, x, &format!("Conv2d({inner}, 1, bias = false) | {before}"));
            let made = chain(graph, inner, &format!("Conv2d({outer}, 1, bias = false) | BatchNorm2d"));
            let sum = join(graph, &[made, x], "Add");
            x = chain(graph, sum, behind);
        }
        let output = layer(graph, x, "Conv2d(3, 1)");
        *graph = with_normalized_convolutions(graph, &[output]);
        output
    }
}

#[test]
fn what_a_normalised_convolution_reads() {
    for (size, channels, before, behind) in [
        ([17, 19], [16, 40], "BatchNorm2d | Relu", "Relu"),
        ([17, 19], [16, 40], "BatchNorm2d(affine = false)", "Tanh"),
        ([17, 19], [16, 40], "BatchNorm2d | Silu", "Relu6"),
        // Tiles beside each other read the same of both maps.
        ([9, 8], [136, 280], "BatchNorm2d | Relu", "Relu"),
    ] {
        for precision in [Precision::Bf16, Precision::Mixed(Half::F16)] {
            let alone = compare(bottlenecks(size, channels, before, behind), 3, (precision, OLDER), true);
            assert!(alone.is_empty(), "{alone:?}");
            for card in [CAPABILITY, FEW] {
                let found = compare(bottlenecks(size, channels, before, behind), 3, (precision, card), true);
                let expected = if is_apart() { None } else { Some("normalized_backward_together") };
                assert_eq!(found, expected.into_iter().collect(), "{before}, {behind}");
            }
        }
    }
}
