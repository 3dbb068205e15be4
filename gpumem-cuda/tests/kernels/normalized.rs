//! Convolutions of one pixel that are one with the normalisations behind them, beside the CPU's.

use crate::host::harness::bottleneck::{BATCH, Given, errors, programs};
use crate::host::harness::compile;
use crate::host::harness::curves::Trained;
use crate::host::harness::graphs::{chain, join, layer, numbers, plan};
use crate::host::harness::layouts::arrange;
use crate::host::tested::Tested;
use crate::host::{CAPABILITY, FEW, Format, Products, Simulated, TURING, is_apart, narrow, prepare_programs, widen};
use crate::{check, check_mixed, check_narrow, check_trained, gradients, layouts, norms};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Node, NodeId, Source};
use gpumem_core::lower::{Options, Term, Training, lower, with_normalized_convolutions};
use gpumem_core::memory::place::place;
use gpumem_core::program::{Action, Class, Op, Pass, Program, StateWord};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cuda::{Call, Convolution, Launch};

/// Two convolutions of what is normalised, of so many channels in and out, whose outputs are normalised and added up.
fn block(size: [u64; 2], [inner, outer]: [u64; 2], affine: bool) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&[inner, size[0], size[1]])).unwrap();
        let before = layer(graph, input, "BatchNorm2d(affine = false)");
        let text = format!("Conv2d({outer}, 1, bias = false) | BatchNorm2d(affine = {affine})");
        let [one, other] = [(), ()].map(|()| chain(graph, before, &text));
        let output = join(graph, &[one, other], "Add");
        *graph = with_normalized_convolutions(graph, &[output]);
        output
    }
}

#[test]
fn in_f32() {
    check("few channels", 2, block([5, 7], [4, 9], true));
    check("without factors", 3, block([4, 4], [5, 12], false));
    check("more channels than a block has threads", 2, block([12, 11], [260, 521], true));
    check("many pixels", 3, block([24, 25], [3, 8], true));
}

#[test]
fn in_sixteen_bits() {
    check_narrow("few channels", 2, block([5, 7], [8, 24], true));
    check_narrow("without factors", 3, block([4, 4], [8, 16], false));
    check_mixed("few channels", 2, block([7, 6], [8, 24], true));
}

/// From statistics that are known: running ones without training, and those that were saved where a step computes them again.
#[test]
fn known_statistics() {
    for affine in [true, false] {
        let mut graph = Graph::default();
        let output = block([5, 7], [4, 9], affine)(&mut graph);
        let untrained = lower(&graph, &[output], &Options::default()).unwrap();
        norms::forward_program(untrained, 2, |word| word, 1e-5);
    }
    let program = layouts::program(|graph| {
        let output = between(graph, "Silu | Conv2d(3, 1)");
        let is_it = |node: &Node| matches!(node.source, Source::Op { op: Op::NormalizedConvolution(_), .. });
        let first = graph.nodes.iter().position(is_it).unwrap();
        // With the sum behind it, and the function that reads that again.
        graph.groups.push([first, first + 3]);
        output
    });
    let is_again =
        |action: &Action| matches!(action, Action::Run { op: Op::NormalizedConvolution(_), pass: Pass::Again });
    assert!(program.operations.iter().any(|operation| is_again(&operation.action)), "{program}");
    layouts::compare_ways("again", &program, (Precision::F32, CAPABILITY), &[0], 1e-5);
}

/// A block between convolutions of one pixel, whose other sides the host sees, with these layers behind the sum.
fn between(graph: &mut Graph, behind: &str) -> NodeId {
    sized([5, 7], [8, 24], graph, behind)
}

/// The same of so many pixels, and channels in and out.
fn sized(size: [u64; 2], [inner, outer]: [u64; 2], graph: &mut Graph, behind: &str) -> NodeId {
    let input = graph.input(numbers(&[3, size[0], size[1]])).unwrap();
    let before = chain(graph, input, &format!("Conv2d({inner}, 1, bias = false) | BatchNorm2d(affine = false)"));
    let beside = layer(graph, before, &format!("Conv2d({outer}, 1)"));
    let made = chain(graph, before, &format!("Conv2d({outer}, 1, bias = false) | BatchNorm2d"));
    let sum = join(graph, &[made, beside], "Add");
    let output = chain(graph, sum, behind);
    *graph = with_normalized_convolutions(graph, &[output]);
    output
}

/// Channels last, in 16 bits with all sums in one launch. Behind a rectifier, a number that is rounded once more on its way may be cut off.
#[test]
fn channels_last() {
    let plain = |graph: &mut Graph| between(graph, "Conv2d(3, 1)");
    layouts::check(("a block", plain), (Precision::F32, CAPABILITY), 0..1, 1e-5);
    layouts::check(("a block", plain), (Precision::F16, CAPABILITY), 0..1, 1e-2);
    let parts = |graph: &mut Graph| sized([17, 19], [16, 40], graph, "Conv2d(3, 1)");
    layouts::check(("several parts", parts), (Precision::F16, CAPABILITY), 0..1, 1e-2);
    let tiles = |graph: &mut Graph| sized([9, 8], [136, 280], graph, "Conv2d(3, 1)");
    layouts::check(("several tiles", tiles), (Precision::F16, CAPABILITY), 0..1, 1e-2);
    let masked = |graph: &mut Graph| between(graph, "Relu | Conv2d(3, 1)");
    layouts::check(("masked", masked), (Precision::F16, CAPABILITY), 0..1, 1e-2);
    let masked = |graph: &mut Graph| sized([12, 11], [136, 280], graph, "Relu | Conv2d(3, 1)");
    layouts::check(("masked tiles", masked), (Precision::F16, CAPABILITY), 0..1, 1e-2);
}

/// Where each block has several tiles of parts and several rows of what is made of them; and with other tensor cores.
#[test]
fn on_other_cards() {
    for card in [FEW, TURING] {
        let format = (Precision::F16, card);
        for (size, channels, behind) in [
            ([17, 19], [16, 40], "Conv2d(3, 1)"),
            ([9, 8], [136, 280], "Conv2d(3, 1)"),
            ([5, 7], [8, 24], "Relu | Conv2d(3, 1)"),
            ([12, 11], [136, 280], "Relu | Conv2d(3, 1)"),
        ] {
            let build = |graph: &mut Graph| sized(size, channels, graph, behind);
            layouts::check((behind, build), format, 0..1, 1e-2);
        }
    }
    if is_apart() {
        return;
    }
    let blocks = |card| {
        let all = calls([9, 8], [136, 280], "Relu | Conv2d(3, 1)", (Precision::F16, card));
        let together = |call: &Call| match call {
            Call::Kernel(it) if it.kernel.entry.ends_with("together") => Some((it.kernel.entry, it.grid[0])),
            _ => None,
        };
        all.iter().filter_map(together).collect::<Vec<_>>()
    };
    let [forward, backward] = ["normalized_forward_together", "normalized_backward_together"];
    assert_eq!(blocks(FEW), [(forward, 4), (backward, 4)]);
    assert_eq!(blocks(TURING), [(forward, 40), (backward, 40)]);
    assert_eq!(blocks(CAPABILITY), [(forward, 70), (backward, 70)], "a block for each four rows");
}

/// Weights, or factors and summands, that are not trained, and an input whose gradient nobody wants.
#[test]
fn what_is_not_trained() {
    for frozen in ["convolution", "normalisation", "both"] {
        let build = |graph: &mut Graph| {
            let input = graph.input(numbers(&[8, 17, 19])).unwrap();
            let before = layer(graph, input, "BatchNorm2d(affine = false)");
            let made = [(); 2].map(|()| {
                let convolution = layer(graph, before, "Conv2d(24, 1, bias = false)");
                [convolution, layer(graph, convolution, "BatchNorm2d")]
            });
            for (node, is_frozen) in made[1].into_iter().zip([frozen != "normalisation", frozen != "convolution"]) {
                if is_frozen {
                    graph.freeze(graph.nodes[node].row);
                }
            }
            let sum = join(graph, &made.map(|[_, norm]| norm), "Add");
            let output = chain(graph, sum, "Relu | Conv2d(3, 1, bias = false)");
            *graph = with_normalized_convolutions(graph, &[output]);
            let is_it = |node: &&Node| matches!(node.source, Source::Op { op: Op::NormalizedConvolution(_), .. });
            assert_eq!(graph.nodes.iter().filter(is_it).count(), 2, "{frozen}");
            output
        };
        check_trained(frozen, 2, &[Precision::F32], build);
        let mut graph = Graph::default();
        let output = build(&mut graph);
        let training = Training { loss: &[Term::MSE], input_gradient: false, ..gradients().0 };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        layouts::compare_ways(frozen, &program, (Precision::F16, CAPABILITY), &[0], 1e-2);
    }
}

/// The calls of a step of a block of that size with these layers behind it, channels last.
fn calls(size: [u64; 2], channels: [u64; 2], behind: &str, format: Format) -> Vec<Call> {
    let mut program = layouts::program(|graph| sized(size, channels, graph, behind));
    assert!(arrange(&mut program, 0) > 0);
    let steps = Products::Library.steps(&compile(&program, 2), 2, format, gradients().1);
    steps.into_iter().flat_map(|step| step.calls).collect()
}

/// Entry points of this kind of convolution, with parts and whether the gradient comes through a rectifier there.
fn entries(calls: &[Call]) -> Vec<(&'static str, Option<String>, bool)> {
    let entry = |call: &Call| {
        let Call::Kernel(Launch { kernel, .. }) = call else { return None };
        let constant =
            |name: &str| kernel.constants.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        let is_masked = constant("MASKED").is_some_and(|value| value == "1");
        (kernel.file == "normalized_convolution.cu").then(|| (kernel.entry, constant("PARTS"), is_masked))
    };
    calls.iter().filter_map(entry).collect()
}

#[test]
fn sums_over_pixels_are_taken_in_the_same_launch() {
    // Blocks do not wait for each other there.
    if is_apart() {
        return;
    }
    let (forward, backward) = ("normalized_forward_together", "normalized_backward_together");
    let map = ("normalized_map_gradient", None, false);
    let direct = ("normalized_direct_output", None, false);
    let direct_parameters = ("normalized_direct_parameters", None, false);
    let direct_map = ("normalized_direct_gradient", None, false);
    let f16 = (Precision::F16, CAPABILITY);
    let of = |size, channels, behind: &str, format| entries(&calls(size, channels, behind, format));
    let parts = |count: u64| Some(format!("{count}u"));
    let one = |count, is_masked| {
        let [of_forward, of_backward] = [(forward, parts(count), false), (backward, parts(count), is_masked)];
        [of_forward, direct.clone(), of_backward, direct_parameters.clone(), map.clone(), direct_map.clone()]
    };
    assert_eq!(of([5, 7], [8, 24], "Conv2d(3, 1)", f16), one(1, false));
    assert_eq!(of([5, 7], [8, 24], "Relu | Conv2d(3, 1)", f16), one(1, true));
    assert_eq!(of([9, 8], [136, 280], "Conv2d(3, 1)", f16), one(1, false));
    assert_eq!(of([17, 19], [16, 40], "Relu6 | Conv2d(3, 1)", f16), one(2, true));
    // In f32, and of channels that are not eights, in passes of their own.
    let gradients =
        ["normalized_gradients", "normalized_matrix", "normalized_direct_parameters", "normalized_direct_gradient"];
    let apart = ["normalized_weight", "normalized_direct_output"].into_iter().chain(gradients);
    let apart: Vec<_> = apart.map(|entry| (entry, None, false)).collect();
    assert_eq!(of([5, 7], [8, 24], "Conv2d(3, 1)", (Precision::F32, CAPABILITY)), apart);
    assert_eq!(of([5, 7], [4, 9], "Relu | Conv2d(3, 1)", f16), apart);
}

#[test]
fn the_library_adds_a_map_and_rectifies_in_the_same_pass() {
    let convolutions = |format: Format| -> Vec<Convolution> {
        let all = calls([5, 7], [8, 24], "Relu | Conv2d(3, 1)", format);
        all.into_iter().filter_map(|call| if let Call::Convolution(it) = call { Some(it) } else { None }).collect()
    };
    let all = convolutions((Precision::Bf16, CAPABILITY));
    let is_fused = |it: &&Convolution| it.addend.is_some() && it.relu && it.bias.is_some();
    assert_eq!(all.iter().filter(is_fused).count(), 1, "{all:?}");
    assert!(convolutions((Precision::F32, CAPABILITY)).iter().all(|it| it.addend.is_none()));
}

/// A bottleneck on the kernels.
struct OnKernels(Simulated);

impl OnKernels {
    fn id(&self, name: &str) -> usize {
        self.0.placed.program.tensors.iter().position(|tensor| tensor.name == name).unwrap()
    }

    fn new(program: &Program, format: Format, still: Optimizer) -> OnKernels {
        let placed = place(&plan(program, BATCH as u64, format.0)).unwrap();
        let ends = placed.offsets.iter().zip(&placed.bytes).map(|(offset, bytes)| offset + bytes);
        let arena = ends.max().unwrap().next_multiple_of(256);
        let mut simulated = Simulated::new(placed, BATCH as u64, arena, still, format, 0);
        for (id, tensor) in program.tensors.iter().enumerate() {
            let mut words = vec![0; tensor.elements(BATCH as u64).unwrap() as usize];
            match tensor.class {
                Class::State => words[StateWord::LossScale as usize] = 1f32.to_bits(),
                Class::Buffer => {}
                _ => continue,
            }
            simulated.put(id, &words);
        }
        OnKernels(simulated)
    }
}

impl Trained for OnKernels {
    fn set(&mut self, name: &str, words: &[u32]) {
        self.0.put(self.id(name), words);
    }

    fn get(&mut self, name: &str) -> Option<Vec<f32>> {
        let id = self.id(name);
        Some(Tested::get(&mut self.0, id).into_iter().map(f32::from_bits).collect())
    }

    fn step(&mut self) -> f32 {
        self.0.step();
        let loss = self.0.placed.program.results[0] as usize;
        f32::from_bits(self.0.read(loss)[0])
    }
}

/// Whatever comes in, errors against a step in float64 are those of the convolution and the normalisation apart, or up to twice those.
fn check_errors(format: Format, is_last: bool, floor: f64) {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let still = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let programs = programs().map(|mut program| {
        assert!(!is_last || arrange(&mut program, 0) > 0);
        program
    });
    prepare_programs(&[format], &programs, BATCH as u64, still);
    for (case, mut given) in Given::cases() {
        if format.0 != Precision::F32 {
            given.round(|number| f32::from_bits(widen(format.0, narrow(format.0, number.to_bits()))));
        }
        let [apart, one] = errors(&programs, &given, |program| OnKernels::new(program, format, still));
        println!("{format:?}, {case}: {one:?} as one, {apart:?} apart");
        for (one, apart) in one.into_iter().zip(apart) {
            assert!(one <= 2.0 * apart + floor, "{format:?}, {case}: {one:e} as one, {apart:e} apart");
        }
    }
}

#[test]
fn errors_are_those_of_both_apart() {
    check_errors((Precision::F32, CAPABILITY), false, 2e-6);
}

#[test]
fn errors_in_sixteen_bits_are_those_of_both_apart() {
    for precision in [Precision::Bf16, Precision::F16] {
        check_errors((precision, CAPABILITY), false, 1e-2);
        check_errors((precision, CAPABILITY), true, 1e-2);
    }
}
