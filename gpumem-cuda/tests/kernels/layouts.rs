//! Maps in other layouts than the one that lowering chooses: channels last, and rows with a pitch.

use crate::gradients;
use crate::host::harness::graphs::{chain, compile, numbers};
use crate::host::harness::layouts::{WAYS, arrange, cases, first};
use crate::host::{CAPABILITY, Format, Products, Reference, Run, compare_programs, prepare_programs};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::operation::Operations;
use gpumem_core::program::{ChannelOrder, Layout, Op, Program, Slot};
use gpumem_cuda::operations::{Context, LaunchContext, calls};
use gpumem_cuda::program_calls::steps;
use std::ops::Range;
use std::slice;

/// A training step with a loss of squares: one whose terms cancel is as wrong as its largest terms.
pub fn program(build: impl FnOnce(&mut Graph) -> NodeId) -> Program {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let training = Training { loss: &[Term::MSE], ..gradients().0 };
    lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
}

/// The kernels on arranged programs against the dense one: on the CPU backend in 32 bits; in 16 bits on the kernels as well, whose
/// own tests compare them with the CPU backend. A bias's gradient that cancels to a tenth of its terms shows their rounding otherwise.
pub fn compare_ways(what: &str, plain: &Program, format: Format, ways: &[usize], tolerance: f64) {
    let arranged = |&way: &usize| {
        let mut program = plain.clone();
        arrange(&mut program, way);
        program
    };
    let all: Vec<Program> = ways.iter().map(arranged).collect();
    let (batch, optimizer) = (2, gradients().1);
    prepare_programs(&[format], &[slice::from_ref(plain), &all].concat(), batch, optimizer);
    for (way, arranged) in ways.iter().zip(&all) {
        let reference = if format.0 == Precision::F32 { Reference::Cpu } else { Reference::Kernels };
        let run = Run { batch, optimizer, steps: 1, classes: 5, tolerance, reference };
        compare_programs(format, 0..1, &format!("{what}, way {way}"), [plain, arranged], run);
    }
}

/// The same of a network.
pub fn check(
    (what, build): (&str, impl FnOnce(&mut Graph) -> NodeId),
    format: Format,
    ways: Range<usize>,
    tolerance: f64,
) {
    compare_ways(what, &program(build), format, &ways.collect::<Vec<_>>(), tolerance);
}

/// Every second case from `first` on, its maps channels last or each in a layout of its own by turns. The sweep has all of both.
fn check_in_turns(first: usize) {
    for (index, case) in cases().into_iter().skip(first).step_by(2).enumerate() {
        let way = if index % 2 == 0 { 0 } else { 4 };
        check(case, (Precision::F32, CAPABILITY), way..way + 1, 1e-5);
    }
}

#[test]
fn results_do_not_depend_on_layouts() {
    check_in_turns(0);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn results_of_further_cases_do_not_depend_on_layouts() {
    check_in_turns(1);
}

/// Ways by turns: in 16 bits each case is in the others.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn results_do_not_depend_on_any_layouts() {
    for (index, (what, build)) in cases().into_iter().enumerate() {
        compare_ways(what, &program(build), (Precision::F32, CAPABILITY), &ways_in_turn(index + 1), 1e-5);
    }
}

/// Every second way: of two cases in a row, each has those that the other has not.
pub fn ways_in_turn(index: usize) -> Vec<usize> {
    (index % 2..WAYS).step_by(2).collect()
}

/// On tensor cores. Ways by turns: in 32 bits each case is in the others.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn layouts_of_sixteen_bits() {
    for (index, (what, build)) in cases().into_iter().enumerate() {
        compare_ways(what, &program(build), (Precision::Bf16, CAPABILITY), &ways_in_turn(index), 1e-2);
    }
}

fn setting() -> LaunchContext {
    let (precision, optimizer) = (Precision::F32, gradients().1);
    let (tf32, deterministic, library, cudnn) = (false, false, true, true);
    LaunchContext {
        rank: 0,
        batch: 2,
        precision,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32,
        deterministic,
        library,
        cudnn,
        operations: &Operations::NONE,
    }
}

/// A program in which the output of the first convolution lies channels last.
fn with_layout(text: &str) -> Program {
    let mut program = program(|graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        chain(graph, input, text)
    });
    let convolution = &program.operations[first(&program, |op| matches!(op, Op::Convolution(_)))];
    let output = convolution.written(Slot::Output).unwrap();
    program.tensors[output as usize].layout = Layout { order: ChannelOrder::ChannelsLast, pitch: 0 };
    program
}

#[test]
fn what_an_operation_cannot_do_is_unsupported() {
    for text in ["Conv2d(4, 1) | Softmax", "Conv2d(4, 1) | Gelu | Conv2d(3, 1)", "Conv2d(4, 1) | Flatten | Linear(3)"] {
        let placed = compile(&with_layout(text), 2);
        let error = steps(&placed, setting()).unwrap_err();
        let expected = "a tensor in another layout than its shape is written in, for this operation";
        assert!(matches!(error, Error::Unsupported { device: "CUDA", .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// In f32 the library is asked for dense convolutions only; in 16 bits for those between maps and a weight of one order, too.
#[test]
fn other_layouts_run_with_the_own_kernels() {
    let text = "Conv2d(4, 3) | Relu | Conv2d(3, 1)";
    let mut program = program(|graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        chain(graph, input, text)
    });
    let plain = Products::Library.steps(&compile(&program, 2), 2, (Precision::F32, CAPABILITY), gradients().1);
    let has_convolution =
        |calls: &[gpumem_cuda::Call]| calls.iter().any(|it| matches!(it, gpumem_cuda::Call::Convolution(_)));
    assert!(plain.iter().any(|step| step.count > 1) && plain.iter().any(|step| has_convolution(&step.calls)));
    arrange(&mut program, 0);
    let placed = compile(&program, 2);
    let found = Products::Library.steps(&placed, 2, (Precision::F32, CAPABILITY), gradients().1);
    assert!(found.iter().all(|step| !has_convolution(&step.calls)));
    for operation in &placed.program.operations {
        let calls = calls(&Context { placed: &placed, operation, setting: setting() }).unwrap();
        assert!(!has_convolution(&calls));
    }
    let narrow = |program: &Program| {
        let placed = compile(program, 2);
        let steps = Products::Library.steps(&placed, 2, (Precision::Bf16, CAPABILITY), gradients().1);
        steps.iter().filter(|step| has_convolution(&step.calls)).count()
    };
    // What the host feeds and fetches is channels first: one convolution writes what lies otherwise, the other reads it. All
    // that the gradient of the input reads and writes lies alike.
    assert_eq!(narrow(&program), 1);
    program.tensors.iter_mut().for_each(|tensor| tensor.layout = Layout::DENSE);
    assert_eq!(narrow(&program), 6);
}
