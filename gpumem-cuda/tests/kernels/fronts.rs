//! Normalisations that find their inputs in front of concatenations, beside the same kernels on the inputs themselves: the same
//! bits.

use crate::gradients;
use crate::host::harness::assert_close;
use crate::host::harness::graphs::{chain, join, layer, numbers, plan};
use crate::host::harness::layouts::arrange;
use crate::host::{self, CAPABILITY, Format, Products, Simulated, prepare_programs, spread};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::{Action, Class, Op, Pass, Program, Slot, StateWord};
use gpumem_core::{Half, Precision};
use gpumem_cuda::Kernel;
use std::collections::BTreeSet;

pub const BATCH: u64 = 2;

/// A dense block of so many channels and so many more for each layer, in which `after` follows the normalisations. With `again`, those run
/// a second time.
struct Block {
    dims: [u64; 3],
    channels: [u64; 2],
    after: &'static str,
    again: bool,
}

impl Block {
    fn program(&self) -> Program {
        let (mut graph, [first, more]) = (Graph::default(), self.channels);
        let input = graph.input(numbers(&self.dims)).unwrap();
        let mut x = layer(&mut graph, input, &format!("Conv2d({first}, 1, bias = false)"));
        for _ in 0..2 {
            let first = graph.nodes.len();
            let made = chain(&mut graph, x, &format!("BatchNorm2d | {} | Conv2d({more}, 1, bias = false)", self.after));
            if self.again {
                graph.groups.push([first, graph.nodes.len()]);
            }
            x = join(&mut graph, &[x, made], "Concat");
        }
        let output = chain(&mut graph, x, "BatchNorm2d | Relu | Conv2d(3, 1)");
        let training = Training { loss: &[Term::MSE], input_gradient: false, ..gradients().0 };
        lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
    }

    /// Channels of the last concatenation.
    fn whole(&self) -> u64 {
        self.channels[0] + 2 * self.channels[1]
    }
}

/// The step in which every normalisation reads its own input, which is kept for that.
fn apart(program: &Program) -> Program {
    let mut program = program.clone();
    let mut count = 0;
    for at in 0..program.operations.len() {
        let Action::Run { op: Op::BatchNorm(norm), .. } = &mut program.operations[at].action else { continue };
        if norm.within == 0 {
            continue;
        }
        norm.within = 0;
        let saved = program.operations[at].read(Slot::Saved(0)).unwrap();
        let forward = program.operations.iter().find(|it| it.written(Slot::Saved(0)) == Some(saved)).unwrap();
        let own = forward.read(Slot::Input(0)).unwrap();
        let reads = program.operations[at].reads.iter_mut().filter(|operand| operand.slot == Slot::Input(0));
        reads.for_each(|operand| operand.tensor = own);
        let kept = &mut program.tensors[own as usize];
        kept.last = kept.last.max(at as u32);
        count += 1;
    }
    assert!(count > 0, "{program}");
    program
}

/// What the kernels leave of a program's first step: all gradients, running statistics and the loss.
fn left(program: &Program, format: Format) -> Vec<Vec<f32>> {
    let compiled = plan(program, BATCH, format.0);
    let (placed, arena) = (place(&compiled).unwrap(), compiled.budget[Line::Arena]);
    let mut simulated = Simulated::new(placed, BATCH, arena, gradients().1, format, 0);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(BATCH).unwrap() as usize;
        let words = match tensor.class {
            Class::Parameter | Class::Input | Class::Target => spread(count, id),
            Class::Buffer => vec![1.0f32.to_bits(); count],
            Class::State => {
                let mut words = vec![0; count];
                words[StateWord::LossScale as usize] = 1.0f32.to_bits();
                words
            }
            _ => continue,
        };
        simulated.write(id, &words);
    }
    simulated.step();
    let lasting = program.of_class(Class::Gradient).chain(program.of_class(Class::Buffer));
    let mut all: Vec<u32> = lasting.chain(program.results.iter().copied()).collect();
    // Gradients are numbered as they are made.
    all.sort_by_key(|&id| &program.tensor(id).name);
    all.into_iter()
        .map(|id| id as usize)
        .map(|id| simulated.read(id).into_iter().map(f32::from_bits).collect())
        .collect()
}

/// Compares what the kernels of two programs leave; the kernels of the second one.
pub fn beside(what: &str, both: &[Program; 2], format: Format, tolerance: f64) -> Vec<Kernel> {
    let optimizer = gradients().1;
    prepare_programs(&[format], both, BATCH, optimizer);
    if std::env::var_os("GPUMEM_SKIP_HOST").is_none() {
        let [expected, found] = [&both[0], &both[1]].map(|program| left(program, format));
        assert!(expected.iter().flatten().all(|value| value.is_finite()));
        for (expected, found) in expected.iter().zip(&found) {
            assert_close(what, found, expected, tolerance);
        }
    }
    let placed = place(&plan(&both[1], BATCH, format.0)).unwrap();
    host::kernels(&Products::Own.steps(&placed, BATCH, format, optimizer))
}

/// Compares both, with all maps dense or all channels last; the kernels that know of the wider map.
fn compare(block: &Block, format: Format, is_last: bool, tolerance: f64) -> BTreeSet<&'static str> {
    let mut both = [apart(&block.program()), block.program()];
    if is_last {
        both.iter_mut().for_each(|program| assert!(arrange(program, 0) > 0));
    }
    let kernels = beside("a dense block", &both, format, tolerance);
    let whole = format!("{}ull", block.whole());
    let is_within = |(name, value): &(&str, String)| *name == "WITHIN" && *value == whole;
    kernels.iter().filter(|kernel| kernel.constants.iter().any(is_within)).map(|kernel| kernel.entry).collect()
}

/// Packs of 4, 2 and 1, one block a channel and several; forward passes too where they run again.
#[test]
fn dense_maps() {
    for (dims, channels) in [([3, 4, 6], [4, 3]), ([3, 5, 6], [5, 2]), ([3, 5, 5], [4, 3]), ([2, 64, 66], [2, 2])] {
        for (after, again) in [("Relu", false), ("Relu", true), ("Relu | AvgPool2d(1, 1)", false)] {
            let block = Block { dims, channels, after, again };
            let entries = compare(&block, (Precision::F32, CAPABILITY), false, 0.0);
            assert_eq!(entries.contains("batch_norm_apply"), again, "{entries:?}");
            let backward = if dims[1] > 50 { "batch_norm_input" } else { "batch_norm_backward" };
            assert!(entries.contains(backward), "{entries:?}");
        }
    }
}

#[test]
fn maps_channels_last() {
    for dims in [[3, 5, 7], [3, 27, 29]] {
        for again in [false, true] {
            let block = Block { dims, channels: [8, 8], after: "Relu", again };
            for precision in [Precision::F32, Precision::Bf16, Precision::Mixed(Half::F16)] {
                for capability in [CAPABILITY, (7, 5)] {
                    let entries = compare(&block, (precision, capability), true, 0.0);
                    assert_eq!(entries.contains("batch_norm_apply"), again, "{entries:?}");
                }
            }
        }
    }
    // The wider map is no whole number of packs, so that elements are read one by one, and added up in another order.
    let block = Block { dims: [3, 5, 7], channels: [4, 3], after: "Tanh", again: true };
    compare(&block, (Precision::F32, CAPABILITY), true, 1e-3);
}

/// Where nothing is in front of anything, no kernel knows of a wider map.
#[test]
fn other_normalisations_know_of_no_wider_map() {
    let program = Block { dims: [3, 4, 6], channels: [4, 3], after: "Relu", again: false }.program();
    let is_norm = |action: &Action, wanted: Pass| matches!(action, Action::Run { op: Op::BatchNorm(norm), pass } if *pass == wanted && norm.within == 0);
    let count = |pass: Pass| program.operations.iter().filter(|it| is_norm(&it.action, pass)).count();
    assert_eq!((count(Pass::Forward), count(Pass::Backward)), (3, 1));
}
