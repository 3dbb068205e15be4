//! Rectifiers that keep a bit of each element change no bit of a step: beside steps that keep their outputs.

mod harness;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Blueprint, Options, Sizes, Steps, Term, Training, levels, lower, lower_in_order};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::number::Role;
use gpumem_core::program::{Action, Class, Op, Operand, Operation, Part, Pass, Program, Slot, Tensor, TensorId};
use gpumem_core::train::optim::{AdamW, Optimizer};
use gpumem_core::train::{Checkpoint, ConvNorm, Descent, Offload};
use gpumem_core::{Precision, Update};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::{fill, trained};
use harness::graphs::random::{BATCH, KINDS, network};
use harness::graphs::{chain, join, layer, numbers};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn options() -> Options<'static> {
    let loss = &[Term::CROSS_ENTROPY];
    let descent = Descent::PLAIN;
    let training =
        Training { loss, moments: 1, update: Update::Fused, skips_overflow: false, input_gradient: false, descent };
    Options { training: Some(training) }
}

fn lowered(graph: &Graph, output: NodeId) -> Program {
    lower(graph, &[output], &options()).unwrap()
}

fn is_sided(operation: &Operation) -> bool {
    matches!(&operation.action, Action::Run { op: Op::Rectifier(_), .. })
}

/// How many rectifiers keep bits.
fn sided(program: &Program) -> usize {
    program.operations.iter().filter(|operation| is_sided(operation) && operation.backward().is_some()).count()
}

/// The same step, whose rectifiers keep their outputs: what overwrites those finds a copy beside it.
fn whole(program: &Program) -> Program {
    let mut program = program.clone();
    let mut copies: Vec<(TensorId, TensorId)> = Vec::new();
    let mut operations = Vec::new();
    for mut operation in core::mem::take(&mut program.operations) {
        let Action::Run { op: Op::Rectifier(rectifier), pass } = &operation.action else {
            operations.push(operation);
            continue;
        };
        let (op, pass) = (Op::Pointwise(rectifier.of.clone()), *pass);
        operation.action = Action::Run { op, pass };
        if pass == Pass::Backward {
            let bits = operation.read(Slot::Saved(0)).unwrap();
            let (_, copy) = copies.iter().rfind(|(of, _)| *of == bits).unwrap();
            let saved = operation.reads.iter_mut().find(|operand| operand.slot == Slot::Saved(0)).unwrap();
            *saved = Operand { slot: Slot::Output, tensor: *copy };
            operations.push(operation);
            continue;
        }
        let (output, bits) = (operation.written(Slot::Output).unwrap(), operation.written(Slot::Saved(0)).unwrap());
        operation.writes.retain(|operand| operand.slot != Slot::Saved(0));
        let copy = program.tensors.len() as TensorId;
        let Tensor { shape, batched, row, .. } = *program.tensor(output);
        let (class, role, part) = (Class::Transient, Role::Activation, Part::Output);
        program.tensors.push(Tensor { class, role, part, shape, batched, row, ..program.tensor(bits).clone() });
        copies.push((bits, copy));
        let reads = vec![Operand { slot: Slot::Input(0), tensor: output }];
        let writes = vec![Operand { slot: Slot::Output, tensor: copy }];
        let copied = Operation { action: Action::Copy, row, accumulate: false, reads, writes };
        operations.extend([operation, copied]);
    }
    program.operations = operations;
    let lives = |id: TensorId| {
        let touches = |operation: &Operation| operation.tensors().any(|other| other == id);
        let first = program.operations.iter().position(touches)?;
        Some((first as u32, program.operations.iter().rposition(touches)? as u32))
    };
    let found: Vec<Option<(u32, u32)>> = (0..program.tensors.len() as TensorId).map(lives).collect();
    let end = program.operations.len() as u32 - 1;
    for ((id, tensor), life) in (0..).zip(&mut program.tensors).zip(found) {
        // What nobody touches any more has its bytes at the end, where nothing else is.
        let (first, last) = life.unwrap_or((end, end));
        // The loss of a batch in parts is there from the beginning on.
        (tensor.first, tensor.last) =
            if program.results.contains(&id) { (first.min(tensor.first), end) } else { (first, last) };
    }
    program
}

#[track_caller]
fn check(what: &str, count: usize, graph: &Graph, output: NodeId) {
    let program = lowered(graph, output);
    assert_eq!(sided(&program), count, "{what}: {program}");
    assert_eq!(trained(&program, 1), trained(&whole(&program), 2), "{what}");
    assert_eq!(Program::decode(&program.encode()).as_ref(), Some(&program), "{what}");
}

/// A network of these layers.
fn of(text: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let output = chain(&mut graph, input, text);
    (graph, output)
}

#[test]
fn what_no_other_gradient_reads_is_a_bit_of_each_element() {
    let functions = ["Relu", "Relu(inplace = true)", "Relu6", "LeakyRelu(0.1)", "LeakyRelu(0)", "Hardsigmoid"];
    let following =
        ["Dropout(0.3)", "AvgPool2d(2, 1)", "Pad(1)", "Upsample(2)", "Mean(1)", "Affine(0.5, 0.25)", "Transpose(1, 2)"];
    for function in functions {
        for following in following {
            let text = format!("Conv2d(4, 3, padding = 1) | {function} | {following} | Flatten | Linear(5)");
            let (graph, output) = of(&text);
            check(&text, 1, &graph, output);
        }
    }
}

/// Where something reads the output again, where the loss does, and where a normalisation says as much.
#[test]
fn what_is_read_again_is_kept_whole() {
    for text in [
        "Conv2d(4, 1) | Relu | Conv2d(2, 1) | Flatten | Linear(5)",
        "Conv2d(4, 1) | Relu | Flatten | Linear(5)",
        "Conv2d(4, 1) | BatchNorm2d | Relu | AvgPool2d(2, 1) | Flatten | Linear(5)",
        "Conv2d(4, 1) | Flatten | Linear(5) | Relu",
        "Conv2d(5, 1) | Relu | Flatten",
        "Conv2d(4, 1) | Tanh | AvgPool2d(2, 1) | Flatten | Linear(5)",
        "Conv2d(4, 1) | Silu | AvgPool2d(2, 1) | Flatten | Linear(5)",
    ] {
        let (graph, output) = of(text);
        check(text, 0, &graph, output);
    }
    // What the normalisation keeps says nothing of a slope.
    let text = "Conv2d(4, 1) | BatchNorm2d | LeakyRelu(0.1) | AvgPool2d(2, 1) | Flatten | Linear(5)";
    let (graph, output) = of(text);
    check(text, 1, &graph, output);
}

/// Two readers, one value for all samples, and maps without a trained weight.
#[test]
fn other_places() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let x = chain(&mut graph, input, "Conv2d(4, 1) | Relu");
    let branches = [layer(&mut graph, x, "Dropout(0.5)"), x];
    let sum = join(&mut graph, &branches, "Add");
    let output = chain(&mut graph, sum, "Relu | Flatten | Dropout(0.1) | Linear(5)");
    check("a residual sum", 2, &graph, output);

    let (mut graph, output) =
        of("Conv2d(4, 1) | Relu | Conv2d(7, 3, padding = 1) | Relu | Conv2d(2, 1) | Flatten | Linear(5)");
    check("trained maps", 0, &graph, output);
    // The gradient of a map whose weight is not trained reads that weight alone.
    (2..6).for_each(|parameter| graph.freeze_parameter(parameter));
    check("frozen maps", 2, &graph, output);
}

/// What is computed again has its bits again.
#[test]
fn levels_change_no_bit() {
    let block =
        "Conv2d(4, 3, padding = 1) | Relu | Dropout(0.2) | BatchNorm2d | LeakyRelu(0.1) | Pad(1) | AvgPool2d(3, 1)";
    let (mut graph, output) = of(&format!("{block} | {block} | {block} | Flatten | Linear(5)"));
    let program = lowered(&graph, output);
    assert_eq!(sided(&program), 6);
    let expected = trained(&program, 1);
    assert_eq!(expected, trained(&whole(&program), 2));
    for only_cheap in [true, false] {
        let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
        let setting = Sizes { only_cheap, ..Sizes::new(BATCH, Precision::F32, workspaces) };
        let found = levels(&graph, &[output], &options(), &setting).unwrap();
        assert!(only_cheap || found.len() > 1);
        for level in &found {
            let leaner = lower_in_order(&graph, &[output], &options(), &level.order).unwrap();
            assert_eq!(trained(&leaner, 2), expected);
        }
    }
    let nodes = graph.nodes.len();
    graph.groups = vec![[0, nodes / 2]];
    let written = lowered(&graph, output);
    let is_again = |it: &&Operation| is_sided(it) && matches!(it.action, Action::Run { pass: Pass::Again, .. });
    assert!(written.operations.iter().filter(is_again).count() > 1, "{written}");
    assert_eq!(trained(&written, 2), expected);
}

/// Rectifiers that keep bits behind each of many convolutions, whose outputs are alike.
fn deep() -> (Graph, NodeId) {
    let block = "Conv2d(8, 3, padding = 1) | Relu | Dropout(0.2) | Conv2d(8, 3, padding = 1) | Tanh | \
                 Conv2d(8, 3, padding = 1) | LeakyRelu(0.1) | Pad(1) | AvgPool2d(3, 1) | BatchNorm2d";
    of(&format!("{} | Flatten | Linear(5)", [block; 10].join(" | ")))
}

/// The bits of three losses of batches in parts that differ, and of all that lasts after them, by name.
fn stepped(program: &Program) -> (Vec<u32>, Vec<(String, Vec<u32>)>) {
    let cpu = Cpu::with_threads(2).unwrap().with_poison(true);
    let (parts, adam) = (program.descent.micro_batches, Optimizer::AdamW(AdamW::DEFAULT));
    let mut loaded = Loaded::of(&cpu, program, BATCH * parts, adam).unwrap();
    fill(&mut loaded);
    let part = loaded.parts(1).remove(0);
    let turned = |by: usize| {
        let turn = |(name, words): &(String, Vec<u32>)| {
            let mut words = words.clone();
            let by = by % words.len();
            words.rotate_left(by);
            (name.clone(), words)
        };
        part.iter().map(turn).collect::<Vec<_>>()
    };
    let mut step = |number| {
        let given: Vec<_> = (0..parts as usize).map(|part| turned(number + part)).collect();
        loaded.step_of(&given).unwrap().to_bits()
    };
    let losses = (0..3).map(&mut step).collect();
    (losses, loaded.carried())
}

/// Parts of a batch, what lies in host memory, and what is computed again, each with each: losses and all that lasts are those of rectifiers that keep their
/// outputs, where nothing leaves the arena and nothing is computed again.
#[test]
fn other_savers_change_no_bit() {
    let (graph, output) = deep();
    let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
    for micro_batches in [1, 3] {
        let setting = Sizes::new(BATCH * micro_batches, Precision::F32, workspaces);
        let steps = |offload, checkpoint| {
            let descent = Descent { micro_batches, offload, ..Descent::PLAIN };
            let (loss, update) = (vec![Term::CROSS_ENTROPY], Update::Fused);
            let training = Some(Steps {
                loss,
                moments: 2,
                update,
                checkpoint,
                descent,
                conv_norm: ConvNorm::Fused,
                ordered_at: None,
            });
            let blueprint = Blueprint {
                graph: graph.clone(),
                outputs: vec![output],
                training,
                cached: None,
                parts: Default::default(),
            };
            blueprint.trainings(&setting).unwrap()
        };
        let plain = &steps(Offload::None, Checkpoint::None)[0];
        assert_eq!(sided(plain), 20);
        let expected = stepped(&whole(plain));
        for offload in [Offload::None, Offload::OptimizerState, Offload::Activations, Offload::All] {
            for checkpoint in [Checkpoint::Norms, Checkpoint::None, Checkpoint::Cheap, Checkpoint::Auto] {
                let found = steps(offload, checkpoint);
                let leanest = found.last().unwrap();
                let what = format!("{micro_batches} parts, {offload:?}, {checkpoint:?}");
                assert_eq!(sided(leanest), 20, "{what}");
                let has_left = leanest.of_class(Class::Host).map(|id| leanest.tensor(id));
                let (bits, maps): (Vec<_>, Vec<_>) = has_left.partition(|tensor| tensor.role == Role::Bit);
                // A bit of each element is not worth a copy.
                assert!(bits.is_empty(), "{what}");
                assert!(maps.len() > 1 || checkpoint == Checkpoint::Auto || !leanest.descent.parks(), "{what}");
                let is_again =
                    |it: &&Operation| is_sided(it) && matches!(it.action, Action::Run { pass: Pass::Again, .. });
                let again = leanest.operations.iter().filter(is_again).count();
                assert!((again > 1) == (checkpoint == Checkpoint::Auto), "{what}: {again}");
                assert!(stepped(leanest) == expected, "{what}");
            }
        }
    }
}

/// The random networks below do have such rectifiers.
#[test]
fn some_of_the_random_networks_keep_bits() {
    let mut runner = TestRunner::deterministic();
    let mut has_some = || {
        let choices = choices().new_tree(&mut runner).unwrap().current();
        let (graph, output) = network(&choices, true);
        sided(&lowered(&graph, output)) > 0
    };
    let count = (0..200).filter(|_| has_some()).count();
    assert!(count >= 20, "{count} of 200");
}

/// Every other one is what has two slopes, of those that differ from a smooth function.
fn choices() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((prop_oneof![0..KINDS, 58usize..60], 0usize..20, 0usize..20), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_networks(choices in choices()) {
        let (graph, output) = network(&choices, true);
        let program = lowered(&graph, output);
        if sided(&program) > 0 {
            prop_assert_eq!(trained(&program, 1), trained(&whole(&program), 2));
        }
    }
}
