//! Maps and weights in other layouts than the one that lowering chooses: channels last, and rows with a pitch.

mod harness;

use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Action, ChannelOrder, Class, Layout, Op, Operation, Program, Slot, StateWord, Tensor};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::{Adafactor, Optimizer, Sgd};
use gpumem_core::{Role, Update};
use gpumem_cpu::{Cpu, Session};
use harness::graphs::{chain, join, layer, numbers, plan};
use harness::layouts::{WAYS, arrange, cases, first};

const BATCH: u64 = 2;

fn program(build: impl FnOnce(&mut Graph) -> usize, trains: bool) -> Program {
    program_with(&[Term::DOT], build, trains)
}

fn program_with(loss: &[Term], build: impl FnOnce(&mut Graph) -> usize, trains: bool) -> Program {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let training = Training {
        loss,
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    lower(&graph, &[output], &Options { training: trains.then_some(training) }).unwrap()
}

fn load(program: &Program) -> Result<(Session, Vec<u64>), Error> {
    load_with(program, Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }))
}

fn load_with(program: &Program, optimizer: Optimizer) -> Result<(Session, Vec<u64>), Error> {
    let compiled = plan(program, BATCH, Precision::F32);
    let placed = place(&compiled)?;
    let job = Job {
        name: "test",
        arena: compiled.budget[Line::Arena],
        reserve: 0,
        batch: BATCH,
        precision: Precision::F32,
        train: program.training.then(|| placed.clone()),
        evaluation: None,
        served: None,
        others: Vec::new(),
        infer: placed.clone(),
        optimizer,
        tf32: false,
        deterministic: false,
        settings: 0,
        operations: &Operations::NONE,
    };
    Ok((Cpu::with_threads(2).unwrap().with_poison(true).load(job)?, placed.offsets))
}

/// The bits of everything that the host sees after a step.
fn results(program: &Program) -> Vec<(String, Vec<u8>)> {
    results_of(program, load(program).unwrap())
}

fn results_of(program: &Program, (mut session, offsets): (Session, Vec<u64>)) -> Vec<(String, Vec<u8>)> {
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(BATCH).unwrap() as usize;
        let mut words: Vec<u32> =
            (0..count).map(|index| (((index * 7919 + id * 104_729) % 2003) as f32 / 1001.5 - 1.0).to_bits()).collect();
        match (tensor.class, tensor.role) {
            (Class::Transient | Class::Gradient, _) => continue,
            (_, Role::State) => {
                words.fill(0);
                words[StateWord::Seed as usize] = 42;
                words[StateWord::LossScale as usize] = 1f32.to_bits();
            }
            // Classes.
            (_, Role::Index) => words.iter_mut().zip(1..).for_each(|(word, label)| *word = label % 5),
            // Of running statistics one is a variance.
            (Class::Buffer, _) => words.iter_mut().for_each(|word| *word = (f32::from_bits(*word) + 1.5).to_bits()),
            _ => {}
        }
        let bytes: Vec<u8> = match tensor.role {
            Role::Byte => words.iter().map(|word| (word >> 16) as u8).collect(),
            _ => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        };
        session.write(offsets[id], &bytes).unwrap();
    }
    if program.training { session.train() } else { session.infer() }.unwrap();
    let mut seen = Vec::new();
    for (id, tensor) in program.tensors.iter().enumerate() {
        if tensor.class != Class::Transient || program.results.contains(&(id as u32)) {
            let width = tensor.role.bytes(Precision::F32);
            let mut bytes = vec![0; (tensor.elements(BATCH).unwrap() * width) as usize];
            session.read(offsets[id], &mut bytes).unwrap();
            seen.push((program.tensor_name(tensor).to_string(), bytes));
        }
    }
    seen
}

#[test]
fn results_do_not_depend_on_layouts() {
    for (what, build) in cases() {
        for trains in [true, false] {
            let plain = program(build, trains);
            let expected = results(&plain);
            let floats =
                |bytes: &[u8]| bytes.chunks_exact(4).all(|x| f32::from_le_bytes(x.try_into().unwrap()).is_finite());
            let is_other = |name: &str| name.contains("state") || name == "input" && what.contains("bytes");
            assert!(expected.iter().all(|(name, bytes)| is_other(name) || floats(bytes)), "{what}");
            let mut arranged = 0;
            for way in 0..WAYS {
                let mut program = plain.clone();
                arranged += arrange(&mut program, way);
                assert!(way != WAYS - 1 || program.tensors.iter().any(Tensor::is_turned), "{what}: weights");
                assert!(results(&program) == expected, "{what}, way {way}, training: {trains}:\n{program}");
            }
            assert!(arranged > 2, "{what}: {arranged}");
        }
    }
}

/// States of rows and columns lie as their shapes are written wherever the weight has its channels; in another order they are refused.
#[test]
fn factored_states_do_not_depend_on_the_layout_of_the_weight() {
    let optimizer = Optimizer::Adafactor(Adafactor { weight_decay: 0.1, ..Adafactor::DEFAULT });
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let output = chain(&mut graph, input, "Conv2d(4, 3) | Tanh | Conv2d(2, 3)");
    let (loss, moments, update) = (&[Term::MSE], optimizer.moments(), Update::Separate);
    let training = Training {
        loss,
        moments,
        update,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let plain = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let expected = results_of(&plain, load_with(&plain, optimizer).unwrap());
    let is_weight = |tensor: &Tensor| tensor.shape.rank() == 4 && !tensor.batched;
    let mut turned = plain.clone();
    for update in plain.operations.iter().filter(|operation| operation.action == Action::Update) {
        for slot in [update.written(Slot::Parameter), update.read(Slot::ParameterGradient)] {
            let tensor = &mut turned.tensors[slot.unwrap() as usize];
            tensor.layout = if is_weight(tensor) { LAST } else { tensor.layout };
        }
    }
    assert_eq!(turned.tensors.iter().filter(|tensor| tensor.is_turned()).count(), 4);
    assert!(results_of(&turned, load_with(&turned, optimizer).unwrap()) == expected, "{turned}");
    let state = turned.tensors.iter_mut().find(|tensor| tensor.class == Class::Moment && is_weight(tensor));
    state.unwrap().layout = LAST;
    refused(&turned);
}

/// Logits and their gradient in rows that lie apart, as products and the loss say that they take them.
#[test]
fn results_do_not_depend_on_gaps_between_rows() {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 4])).unwrap();
        layer(graph, input, "Linear(5)")
    };
    let plain = program_with(&[Term::CROSS_ENTROPY], build, true);
    let expected = results(&plain);
    let is_loss = |operation: &&Operation| matches!(operation.action, Action::Loss(_));
    let logits = plain.operations.iter().find(is_loss).unwrap().read(Slot::Input(0)).unwrap() as usize;
    for pitch in [6, 64] {
        let mut program = plain.clone();
        program.tensors[logits].pitch = 0;
        program.tensors[logits].layout = Layout { pitch, ..Layout::DENSE };
        assert_eq!(results(&program), expected, "{pitch}");
    }
}

/// Lowering leaves everything dense.
#[test]
fn programs_are_dense_by_themselves() {
    for (what, build) in cases() {
        let program = program(build, true);
        assert!(program.tensors.iter().all(|tensor| tensor.layout.is_dense()), "{what}");
    }
}

const LAST: Layout = Layout { order: ChannelOrder::ChannelsLast, pitch: 0 };

/// A program in which the tensor that the first such operation writes or reads has a layout of its own.
fn with_layout(text: &str, is: impl Fn(&Op) -> bool, slot: Slot, layout: Layout) -> Program {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        chain(graph, input, text)
    };
    let mut program = program(build, true);
    let operation = &program.operations[first(&program, is)];
    let id = operation.written(slot).or(operation.read(slot)).unwrap();
    program.tensors[id as usize].layout = layout;
    program
}

fn refused(program: &Program) {
    let text = load(program).unwrap_err().to_string();
    assert!(text.contains("a tensor in another layout than its shape is written in, for this operation"), "{text}");
}

#[test]
fn what_an_operation_cannot_do_is_unsupported() {
    let is_convolution = |op: &Op| matches!(op, Op::Convolution(_));
    // A softmax takes no layout at all, nor does a product, which sees the map as a vector.
    refused(&with_layout("Conv2d(4, 1) | Softmax | Conv2d(3, 1)", is_convolution, Slot::Output, LAST));
    refused(&with_layout("Conv2d(4, 1) | Flatten | Linear(3)", is_convolution, Slot::Output, LAST));
    // A function of one number, a sum and a gate only where all tensors lie alike.
    refused(&with_layout("Conv2d(4, 1) | Gelu | Conv2d(3, 1)", is_convolution, Slot::Output, LAST));
    for text in ["Add", "Mul"] {
        let mut program = program(
            |graph| {
                let input = graph.input(numbers(&[3, 6, 5])).unwrap();
                let branches = ["Conv2d(4, 1)", "Conv2d(4, 1)"].map(|text| layer(graph, input, text));
                join(graph, &branches, text)
            },
            true,
        );
        let output = program.operations[first(&program, is_convolution)].written(Slot::Output).unwrap();
        program.tensors[output as usize].layout = LAST;
        refused(&program);
    }
    // A value that is repeated has another shape than its output.
    let mut gate = program(
        |graph| {
            let input = graph.input(numbers(&[3, 6, 5])).unwrap();
            let x = layer(graph, input, "Conv2d(4, 1)");
            let mean = layer(graph, x, "AdaptiveAvgPool2d(1)");
            let gate = join(graph, &[x, mean], "Mul");
            layer(graph, gate, "Conv2d(2, 1)")
        },
        true,
    );
    let output = gate.operations[first(&gate, is_convolution)].written(Slot::Output).unwrap();
    gate.tensors[output as usize].layout = LAST;
    refused(&gate);
    // The rows of a sequence, side by side.
    let mut rows = program(
        |graph| {
            let input = graph.input(numbers(&[5, 4])).unwrap();
            let branches = ["Linear(4)", "Linear(3)"].map(|text| layer(graph, input, text));
            join(graph, &branches, "Concat")
        },
        true,
    );
    let output = rows.operations[first(&rows, |op| matches!(op, Op::Concat(_)))].read(Slot::Input(0)).unwrap();
    rows.tensors[output as usize].layout = Layout { pitch: 8, ..Layout::DENSE };
    refused(&rows);
}

#[test]
fn damaged_layouts_are_found_when_tensors_are_placed() {
    let damaged = |program: &Program, expected: &str| {
        let compiled = plan(program, BATCH, Precision::F32);
        let error = place(&compiled).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)) && error.to_string().contains(expected), "{error}");
    };
    let text = "Conv2d(4, 1) | Conv2d(3, 1) | Flatten | Linear(2)";
    let is_convolution = |op: &Op| matches!(op, Op::Convolution(_));
    let pitch = |order, pitch| with_layout(text, is_convolution, Slot::Output, Layout { order, pitch });
    let seen = "a tensor that the host sees is not stored as the host has it";
    damaged(&with_layout(text, is_convolution, Slot::Input(0), LAST), seen);
    // A weight has an order, but no gaps; other parameters have neither.
    for (slot, layout) in [
        (1, Layout { pitch: 1, ..Layout::DENSE }),
        (1, Layout { pitch: 3, ..LAST }),
        (2, Layout { pitch: 4, ..Layout::DENSE }),
    ] {
        damaged(&with_layout(text, is_convolution, Slot::Input(slot), layout), seen);
    }
    let mut inference = program(
        |graph| {
            let x = graph.input(numbers(&[3, 6, 5])).unwrap();
            layer(graph, x, "Conv2d(4, 1)")
        },
        false,
    );
    let output = inference.results[0] as usize;
    inference.tensors[output].layout = LAST;
    damaged(&inference, seen);
    // What has no room has no plan either: the layout is damaged after the planning.
    let room = "a tensor's layout has no room for its shape";
    let short = [
        pitch(ChannelOrder::ChannelsFirst, 4),
        pitch(ChannelOrder::ChannelsLast, 3),
        pitch(ChannelOrder::ChannelsFirst, u64::MAX),
    ];
    let vector = with_layout(text, |op| matches!(op, Op::Product(_)), Slot::Output, LAST);
    for bad in short.into_iter().chain([vector]) {
        let mut sound = bad.clone();
        sound.tensors.iter_mut().for_each(|tensor| tensor.layout = Layout::DENSE);
        let mut compiled = plan(&sound, BATCH, Precision::F32);
        let bad = bad.encode();
        compiled.program = &bad;
        let error = place(&compiled).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)) && error.to_string().contains(room), "{error}");
    }
}
