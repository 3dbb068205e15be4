//! Lowering: which operations, in which order, on which tensors.
#![cfg(feature = "lower")]

mod chunks;
#[path = "../common/mod.rs"]
mod common;
mod fusion;
mod micro_batches;
mod modes;
mod moved;
mod recurrences;
mod stages;

use common::{again, chain, join, layer, numbers, plan, tokens, training};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{LowerError, Options, Term, Training, layer_table, lower};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::place::place;
use gpumem_core::program::Part;
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::Rectifier;
use gpumem_core::program::{Action, Class, Op, Operation, Program, Slot};
use gpumem_core::train::{Clip, Descent};
use gpumem_core::{Precision, Update};

fn network(input: &[u64], text: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(input)).unwrap();
    let output = chain(&mut graph, input, text);
    (graph, output)
}

/// What every program must satisfy, whatever the network.
fn check(program: &Program) {
    let mut written: Vec<bool> = program.tensors.iter().map(|tensor| tensor.class != Class::Transient).collect();
    for operation in &program.operations {
        for read in &operation.reads {
            assert!(written[read.tensor as usize], "read before it is written: {program}");
        }
        for write in &operation.writes {
            written[write.tensor as usize] = true;
        }
    }
    assert_eq!(Program::decode(&program.encode()).as_ref(), Some(program));
}

fn train(graph: &Graph, output: NodeId, moments: u64) -> Program {
    let program = lower(graph, &[output], &training(moments)).unwrap();
    check(&program);
    program
}

fn infer(graph: &Graph, output: NodeId) -> Program {
    let program = lower(graph, &[output], &Options::default()).unwrap();
    check(&program);
    program
}

fn is_function(op: &Op, wanted: Function) -> bool {
    match op {
        Op::Pointwise(pointwise) | Op::Rectifier(Rectifier { of: pointwise }) => pointwise.function == wanted,
        _ => false,
    }
}

fn actions(program: &Program) -> Vec<String> {
    let text = program.to_string();
    text.lines()
        .skip(1)
        .take(program.operations.len())
        .map(|line| line[6..].split("  ").next().unwrap().to_string())
        .collect()
}

#[test]
fn a_small_network_as_text() {
    let (graph, output) = network(
        &[1, 8, 8],
        "Conv2d(4, 3, padding = 1) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | Flatten | Dropout(0.25) | Linear(10)",
    );
    insta::assert_snapshot!("small_train", train(&graph, output, 1).to_string());
    insta::assert_snapshot!("small_infer", infer(&graph, output).to_string());
}

#[test]
fn a_transformer_block_as_text() {
    let mut graph = Graph::default();
    let input = graph.input(tokens(6)).unwrap();
    let embedded = layer(&mut graph, input, "Embedding(11, 8)");
    let positions = layer(&mut graph, input, "PositionEmbedding(6, 8)");
    let x = join(&mut graph, &[embedded, positions], "Add");
    let attended = chain(&mut graph, x, "LayerNorm | CausalSelfAttention(2)");
    let x = join(&mut graph, &[x, attended], "Add");
    let x = layer(&mut graph, x, "LayerNorm");
    let output = again(&mut graph, x, "Tied", 0);
    insta::assert_snapshot!("block_train", train(&graph, output, 2).to_string());
}

/// A weight that is made of parameters is made once, for all uses and all samples.
#[test]
fn a_weight_is_made_of_its_parameters_once() {
    let text = "Linear(8, weight_norm = true)";
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    let once = layer(&mut graph, input, text);
    let again = again(&mut graph, once, text, 0);
    let output = layer(&mut graph, again, "Linear(3)");
    let program = train(&graph, output, 1);
    let is_made = |operation: &&Operation| matches!(operation.forward(), Some(Op::Reparametrize(_)));
    let makes: Vec<&Operation> = program.operations.iter().filter(is_made).collect();
    let [makes] = makes[..] else { panic!("{program}") };
    let names = [0, 1].map(|input| &*program.tensor(makes.read(Slot::Input(input)).unwrap()).name);
    let prefix = "linear0.parametrizations.weight.original";
    assert_eq!(names, [format!("{prefix}1"), format!("{prefix}0")]);
    let weight = makes.written(Slot::Output).unwrap();
    let readers =
        program.operations.iter().filter(|it| it.forward().is_some() && it.read(Slot::Input(1)) == Some(weight));
    assert_eq!(readers.count(), 2, "{program}");
    // The weight, a statistic for each row, and the gradient to which both uses add are there once.
    let of_parts = [(Part::Output, vec![8, 8]), (Part::Saved, vec![1, 8]), (Part::OutputGradient, vec![8, 8])];
    for (part, dims) in of_parts {
        let is_it = |id: &u32| {
            let tensor = program.tensor(*id);
            tensor.part == part && tensor.shape.dims() == dims
        };
        let all: Vec<bool> = program.transients().filter(is_it).map(|id| program.tensor(id).batched).collect();
        assert_eq!(all, [false], "{part:?}, {program}");
    }
    let backward = program.operations.iter().filter(|it| matches!(it.backward(), Some(Op::Reparametrize(_))));
    let backward: Vec<&Operation> = backward.collect();
    assert!(matches!(backward[..], [it] if !it.accumulate), "{program}");
    // Frozen, it is made all the same, and nothing is kept of how.
    (0..3).for_each(|parameter| graph.freeze_parameter(parameter));
    let program = train(&graph, output, 1);
    let makes = program.operations.iter().find(is_made).unwrap();
    assert_eq!((makes.writes.len(), program.operations.iter().filter(|it| it.backward().is_some()).count()), (1, 1));
}

/// Lengths begin as those of the directions that were drawn, so that the weight is what was drawn.
#[test]
fn weight_norm_begins_with_the_weight_that_was_drawn() {
    for (text, dims, sizes) in [
        ("Conv1d(6, 5, groups = 2, weight_norm = 2)", &[4u64, 9][..], [12, 5, 1]),
        ("Conv1d(6, 1, weight_norm = 2)", &[4, 9], [24, 1, 1]),
        ("Conv2d(6, [2; 3], weight_norm = true)", &[4, 5, 5], [1, 6, 24]),
        ("Linear(6, weight_norm = 1)", &[4], [6, 4, 1]),
    ] {
        let (graph, output) = network(dims, text);
        let program = infer(&graph, output);
        let find = |name: &str| (0..).zip(&program.tensors).find(|(_, it)| it.name.ends_with(name)).unwrap().0;
        let [g, v] = ["original0", "original1"].map(|name| program.initial(find(name), 7));
        let mut squares = vec![0.0f64; sizes[1]];
        for (at, v) in v.iter().enumerate() {
            squares[at / sizes[2] % sizes[1]] += f64::from(*v).powi(2);
        }
        assert!(v.iter().any(|v| *v != v.abs()) && v.len() == sizes.iter().product(), "{text}");
        let lengths: Vec<f32> = squares.iter().map(|square| square.sqrt() as f32).collect();
        assert_eq!(g, lengths, "{text}");
    }
}

#[test]
fn the_input_gets_no_gradient() {
    let (graph, output) = network(&[3, 8, 8], "Conv2d(4, 3) | Relu | Flatten | Linear(5)");
    let program = train(&graph, output, 0);
    let written =
        |slot| program.operations.iter().any(|operation| operation.row == 0 && operation.written(slot).is_some());
    assert!(written(Slot::InputGradient(1)) && written(Slot::InputGradient(2)), "weight and bias\n{program}");
    assert!(!written(Slot::InputGradient(0)), "{program}");
}

#[test]
fn an_update_follows_its_gradient_and_frees_it() {
    let (graph, output) = network(&[20], "Linear(30) | Relu | Linear(10)");
    let program = train(&graph, output, 1);
    for id in program.transients() {
        let tensor = program.tensor(id);
        if tensor.name.ends_with("gradient") {
            assert!(tensor.last - tensor.first <= 3, "{} lives {}..{}", tensor.name, tensor.first, tensor.last);
        }
    }
    let mut separate = training(1);
    separate.training.as_mut().unwrap().update = Update::Separate;
    let program = lower(&graph, &[output], &separate).unwrap();
    check(&program);
    assert!(program.holds_gradients);
    assert_eq!(program.of_class(Class::Gradient).count(), 4);
    let updates: Vec<usize> =
        (0..program.operations.len()).filter(|&index| program.operations[index].action == Action::Update).collect();
    assert_eq!(updates, (program.operations.len() - 5..program.operations.len() - 1).collect::<Vec<_>>());
}

/// Clipped by their norm, gradients are held until it is known, whatever is said of updates; by value, nothing changes.
#[test]
fn the_norm_of_all_gradients_comes_before_updates() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[40])).unwrap();
    let first = layer(&mut graph, input, "Linear(40)");
    let second = again(&mut graph, first, "Linear(40)", 0);
    let output = chain(&mut graph, second, "Linear(3)");
    let last = graph.parameters.len() - 1;
    graph.freeze_parameter(last);
    let with = |clip, update| {
        let mut training = training(1).training.unwrap();
        (training.descent, training.update) = (Descent { clip, ..Descent::PLAIN }, update);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        check(&program);
        program
    };
    let by_norm = with(Some(Clip::GlobalNorm(1.0)), Update::Fused);
    assert_eq!(by_norm, with(Some(Clip::GlobalNorm(1.0)), Update::Separate));
    assert!(by_norm.holds_gradients);
    // One gradient for the parameters that two layers share, none for the frozen one. A weight of 1600 elements is two pieces.
    let end = &by_norm.operations[by_norm.operations.len() - 8..];
    let found: Vec<&Action> = end.iter().map(|operation| &operation.action).collect();
    let squares = [Action::Squares(0), Action::Squares(2), Action::Squares(3)];
    let [a, b, c] = &squares;
    let (norm, update) = (&Action::Norm, &Action::Update);
    assert_eq!(found, [a, b, c, norm, update, update, update, &Action::Advance]);
    let sums = end[3].read(Slot::Workspace).unwrap();
    assert!(end[..3].iter().all(|operation| operation.written(Slot::Workspace) == Some(sums)));
    assert_eq!(by_norm.tensor(sums).shape.dims(), [4]);
    let plain = with(None, Update::Fused);
    let by_value = with(Some(Clip::Value(1.0)), Update::Fused);
    assert_eq!((&by_value.operations, &by_value.tensors), (&plain.operations, &plain.tensors));
    assert_eq!(by_value.descent.clip, Some(Clip::Value(1.0)));
}

#[test]
fn a_parameter_is_updated_only_after_its_last_use() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let first = layer(&mut graph, input, "Linear(6)");
    let output = again(&mut graph, first, "Linear(6)", 0);
    let program = train(&graph, output, 0);
    assert_eq!(graph.parameters.len(), 2);
    let update = program.operations.iter().position(|operation| operation.action == Action::Update).unwrap();
    let last_use = program
        .operations
        .iter()
        .rposition(|operation| !matches!(operation.action, Action::Update | Action::Advance))
        .unwrap();
    assert!(update > last_use, "{program}");
    assert!(program.operations[last_use].accumulate, "the second use adds to the first one's gradient\n{program}");
}

#[test]
fn in_place_where_provably_free() {
    let is_relu = |op: &Op| is_function(op, Function::Relu);
    let count = |program: &Program, slot: Slot| program.operations.iter().filter(|op| op.read(slot).is_some()).count();
    // The convolution keeps its input, not its output: the activation may overwrite it without being asked.
    let (graph, output) = network(&[3, 8, 8], "Conv2d(4, 3) | Relu | Conv2d(4, 3) | Relu | Flatten | Linear(5)");
    let program = train(&graph, output, 0);
    for operation in &program.operations {
        if operation.forward().is_some_and(is_relu) {
            assert_eq!(operation.read(Slot::Input(0)), operation.written(Slot::Output), "{program}");
        }
        if operation.backward().is_some_and(is_relu) {
            assert_eq!(operation.read(Slot::Gradient), operation.written(Slot::InputGradient(0)), "{program}");
        }
        if let Action::Loss(_) = operation.action {
            assert_eq!(operation.read(Slot::Input(0)), operation.written(Slot::InputGradient(0)), "{program}");
        }
    }
    assert!(count(&program, Slot::Output) > 0);
    // Gelu keeps its input, so Sigmoid after it may overwrite Gelu's output, but Gelu not the product.
    let (graph, output) = network(&[8], "Linear(8) | Gelu | Sigmoid | Linear(5)");
    let program = train(&graph, output, 0);
    let in_place = |function| {
        program.operations.iter().any(|operation| {
            operation.forward().is_some_and(|op| is_function(op, function))
                && operation.read(Slot::Input(0)) == operation.written(Slot::Output)
        })
    };
    assert!(!in_place(Function::Gelu) && in_place(Function::Sigmoid), "{program}");
}

/// What a rectifier keeps is smaller after a pooling than before it.
#[test]
fn pooling_comes_before_rectifying() {
    let pooled_first = |text: &str| {
        let (graph, output) = network(&[3, 8, 8], text);
        let program = train(&graph, output, 0);
        check(&program);
        let position = |is: &dyn Fn(&Op) -> bool| {
            program.operations.iter().position(|operation| operation.forward().is_some_and(is))
        };
        position(&|op| matches!(op, Op::MaxPool(_))) < position(&|op| matches!(op, Op::Pointwise(_)))
    };
    assert!(pooled_first("Conv2d(4, 3) | Relu(inplace = true) | MaxPool2d(2) | Flatten | Linear(5)"));
    assert!(pooled_first("Conv2d(4, 3) | Relu6 | MaxPool2d(3, 2, padding = 1) | Flatten | Linear(5)"));
    assert!(!pooled_first("Conv2d(4, 3) | Relu | MaxPool2d(2, dilation = 2) | Flatten | Linear(5)"));
    assert!(!pooled_first("Conv2d(4, 3) | LeakyRelu | MaxPool2d(2) | Flatten | Linear(5)"));
    // Padding makes this map larger.
    assert!(!pooled_first("Conv2d(4, 3) | Relu | MaxPool2d(2, 1, padding = 1) | Flatten | Linear(5)"));
    // Where something else reads the rectified map, it has to be there.
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 8, 8])).unwrap();
    let skip = chain(&mut graph, input, "Conv2d(4, 3, padding = 1) | Relu");
    let inner = chain(&mut graph, skip, "MaxPool2d(2) | Upsample(2)");
    let both = join(&mut graph, &[skip, inner], "Concat");
    let program = train(&graph, both, 0);
    assert!(actions(&program).iter().position(|action| action.starts_with("relu1")) < Some(2), "{program}");
}

/// In inference no layer keeps anything, so that every layer which can works in place.
#[test]
fn inference_works_in_place() {
    let (graph, output) =
        network(&[3, 8, 8], "Conv2d(4, 3) | BatchNorm2d | Gelu | Dropout | Flatten | LayerNorm | Silu | Softmax");
    let program = infer(&graph, output);
    let values = program.transients().filter(|&id| program.tensor(id).part != Part::Workspace).count();
    assert_eq!(values, 1, "{program}");
    // The input is the user's.
    let (graph, output) = network(&[3, 8, 8], "BatchNorm2d | Gelu");
    assert_eq!(infer(&graph, output).transients().count(), 1);
}

#[test]
fn in_place_that_would_destroy_a_needed_value_is_refused() {
    let (graph, output) = network(&[8], "Linear(8) | Sigmoid | Relu(inplace = true) | Linear(5)");
    let error = lower(&graph, &[output], &training(0)).unwrap_err();
    assert_eq!(error.row, Some(2));
    assert_eq!(
        error.message,
        "cannot work in place, because `sigmoid1` still needs what would be overwritten; remove `inplace`"
    );
    // Without a backward pass nothing needs it.
    lower(&graph, &[output], &Options::default()).unwrap();

    let (graph, output) = network(&[8], "Relu(inplace = true) | Linear(5)");
    let error = lower(&graph, &[output], &training(0)).unwrap_err();
    assert_eq!(
        error,
        LowerError {
            row: Some(0),
            message: "cannot work in place, because its input is the network's own input; remove `inplace`".into()
        }
    );
}

#[test]
fn a_residual_adds_into_the_gradient_that_is_there() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4, 6, 6])).unwrap();
    let x = layer(&mut graph, input, "Conv2d(4, 1)");
    let y = chain(&mut graph, x, "Conv2d(4, 3, padding = 1) | BatchNorm2d");
    let sum = join(&mut graph, &[x, y], "Add");
    let output = chain(&mut graph, sum, "Relu(inplace = true) | GlobalAvgPool | Linear(3)");
    let program = train(&graph, output, 0);
    let no_copies = !program.operations.iter().any(|op| matches!(op.action, Action::Copy | Action::Accumulate));
    assert!(no_copies, "{program}");
    assert!(actions(&program).contains(&"conv2d1 Convolution backward +=".to_string()), "{program}");
}

#[test]
fn a_gradient_that_several_branches_hold_is_not_overwritten() {
    // Both branches start with an activation that would like to work in place on the gradient of the sum.
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let x = layer(&mut graph, input, "Linear(6)");
    let a = chain(&mut graph, x, "Linear(6) | Relu");
    let b = chain(&mut graph, x, "Linear(6) | Tanh");
    let sum = join(&mut graph, &[a, b, x], "Add");
    let output = layer(&mut graph, sum, "Linear(3)");
    let program = train(&graph, output, 0);
    let dy = |function| {
        let is_its = |operation: &&Operation| operation.backward().is_some_and(|op| is_function(op, function));
        let operation = program.operations.iter().find(is_its).unwrap();
        (operation.read(Slot::Gradient), operation.written(Slot::InputGradient(0)))
    };
    let (tanh, relu) = (dy(Function::Tanh), dy(Function::Relu));
    assert_eq!(tanh.0, relu.0, "both read the gradient of the sum\n{program}");
    assert_ne!(tanh.0, tanh.1, "the first must not overwrite it\n{program}");
    // `x` got a copy of its own when the other branch added to it, so the last reader may.
    assert_eq!(relu.0, relu.1, "{program}");
}

#[test]
fn a_value_added_to_itself() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let x = layer(&mut graph, input, "Linear(6)");
    let sum = join(&mut graph, &[x, x], "Add");
    let product = join(&mut graph, &[sum, sum], "Mul");
    let output = layer(&mut graph, product, "Linear(3)");
    let program = train(&graph, output, 0);
    assert!(actions(&program).iter().any(|action| action.ends_with("gradient +=")), "{program}");
    // A backend need not be prepared for an output that overwrites two branches at once.
    for operation in &program.operations {
        let overwritten = |slot| operation.read(slot) == operation.written(Slot::Output);
        let both = overwritten(Slot::Input(0)) && overwritten(Slot::Input(1));
        assert!(operation.forward().is_none() || !both, "{program}");
    }
}

#[test]
fn what_nothing_depends_on_is_not_computed() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let x = layer(&mut graph, input, "Linear(6)");
    layer(&mut graph, x, "Linear(100)");
    let output = layer(&mut graph, x, "Linear(3)");
    let program = train(&graph, output, 0);
    assert!(!program.operations.iter().any(|operation| operation.row == 1));
    assert_eq!(program.of_class(Class::Parameter).count(), 4, "what nothing reads has no place");
}

/// A position embedding takes its length from its input and reads nothing of it.
#[test]
fn a_value_whose_shape_alone_matters_is_not_computed() {
    let mut graph = Graph::default();
    let input = graph.input(tokens(6)).unwrap();
    let words = layer(&mut graph, input, "Embedding(11, 8)");
    let unread = layer(&mut graph, words, "Linear(4)");
    let positions = layer(&mut graph, unread, "PositionEmbedding(6, 8)");
    let sum = join(&mut graph, &[words, positions], "Add");
    let program = train(&graph, sum, 0);
    assert!(!program.operations.iter().any(|operation| operation.row == 1), "{program}");
    let updates = program.operations.iter().filter(|operation| operation.action == Action::Update).count();
    assert_eq!(updates, 2, "both tables are trained\n{program}");
}

#[test]
fn nothing_to_train_and_nothing_to_compute_are_refused() {
    let (graph, output) = network(&[8], "Relu | Softmax");
    assert!(lower(&graph, &[output], &training(0)).unwrap_err().message.contains("nothing to train"));
    let (graph, output) = network(&[8, 2, 2], "Flatten");
    assert!(lower(&graph, &[output], &Options::default()).unwrap_err().message.contains("add a layer"));
}

#[test]
fn the_input_gradient_on_request() {
    let (graph, output) = network(&[3, 6, 6], "Conv2d(2, 3) | Flatten");
    let options = Options {
        training: Some(Training {
            loss: &[Term::DOT],
            moments: 0,
            update: Update::Separate,
            skips_overflow: false,
            input_gradient: true,
            descent: gpumem_core::train::Descent::PLAIN,
        }),
    };
    let program = lower(&graph, &[output], &options).unwrap();
    check(&program);
    let gradient = program.transients().map(|id| program.tensor(id)).find(|tensor| tensor.name == "input.gradient");
    assert_eq!(gradient.unwrap().last as usize, program.operations.len() - 1);
}

/// An auxiliary head that the loss alone reads is no part of the forward pass.
#[test]
fn multiplications_are_those_up_to_the_outputs() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let trunk = chain(&mut graph, input, "Linear(8, bias = false) | Relu");
    let output = layer(&mut graph, trunk, "Linear(5, bias = false)");
    let head = chain(&mut graph, trunk, "Linear(6, bias = false) | Linear(5, bias = false)");
    assert_eq!(graph.macs(&[output]), [32, 0, 40, 0, 0]);
    assert_eq!(graph.macs(&[head]), [32, 0, 0, 48, 30]);
    assert_eq!(graph.macs(&[output, head]), [32, 0, 40, 48, 30]);
    let loss = [Term::CROSS_ENTROPY, Term { from: Some(head), weight: 0.3, target: 1, ..Term::CROSS_ENTROPY }];
    let training = Training { loss: &loss, ..training(0).training.unwrap() };
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let table = layer_table(&graph, &[output], &program);
    assert_eq!(table.iter().map(|line| line.macs).sum::<u64>(), 72);
}

#[test]
fn what_is_kept_is_counted_once_for_the_first_layer_that_needs_it() {
    let (graph, output) = network(
        &[3, 8, 8],
        "Conv2d(4, 3, padding = 1) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | Conv2d(4, 3) | Flatten | Dropout | Linear(5)",
    );
    let program = train(&graph, output, 0);
    let kept: Vec<[u64; 6]> = layer_table(&graph, &[output], &program).into_iter().map(|line| line.kept).collect();
    assert_eq!(
        kept,
        [
            [0, 0, 0, 0, 0, 0],   // its input is the network's
            [0, 256, 8, 0, 0, 0], // the convolution's output, and two statistics a channel
            [0, 64, 0, 0, 0, 0],  // its own output, which is pooled
            [0, 0, 0, 0, 0, 64],  // places in windows
            [0, 0, 0, 0, 0, 0],   // what the rectifier keeps
            [0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0],  // a seed
            [0, 16, 0, 0, 0, 0], // dropout's output
        ]
    );
}

#[test]
fn networks_that_cannot_be_lowered() {
    let message =
        |graph: &Graph, outputs: &[NodeId], options: &Options<'_>| lower(graph, outputs, options).unwrap_err().message;
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    assert_eq!(message(&graph, &[], &Options::default()), "the network has no output");
    assert_eq!(message(&graph, &[input], &Options::default()), "the network computes nothing; add a layer");
    let x = layer(&mut graph, input, "Linear(8)");
    graph.freeze(0);
    assert_eq!(
        message(&graph, &[x], &training(0)),
        "the loss depends on no parameter that is trained; take `freeze` off a layer, or use `const INFER`"
    );
}

#[test]
fn in_place_spares_what_is_read_at_the_end() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    let x = layer(&mut graph, input, "Linear(8)");
    let y = layer(&mut graph, x, "Relu(inplace = true)");
    let error = lower(&graph, &[x, y], &Options::default()).unwrap_err();
    let why = "cannot work in place, because its input is an output of the network; remove `inplace`";
    assert_eq!((error.row, error.message.as_str()), (Some(1), why));
    let loss = [Term::MSE, Term { from: Some(x), ..Term::MSE }];
    let training = Training { loss: &loss, ..training(0).training.unwrap() };
    let error = lower(&graph, &[y], &Options { training: Some(training) }).unwrap_err();
    let why = "cannot work in place, because the loss reads its input; remove `inplace`";
    assert_eq!((error.row, error.message.as_str()), (Some(1), why));
}

/// The pitches of what the losses of a training step read, in 16 bits.
fn pitches(input: &[u64], text: &str, terms: &[Term]) -> Vec<u64> {
    let (graph, output) = network(input, text);
    let Some(training) = training(0).training else { return Vec::new() };
    let options = Options { training: Some(Training { loss: terms, ..training }) };
    let program = lower(&graph, &[output], &options).unwrap();
    check(&program);
    assert!(program.tensors.iter().all(|tensor| tensor.layout.is_dense()), "{program}");
    let losses = program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_)));
    losses.map(|loss| program.tensor(loss.read(Slot::Input(0)).unwrap()).pitch).collect()
}

#[test]
fn rows_of_logits_have_gaps_in_sixteen_bits() {
    let one = &[Term::CROSS_ENTROPY];
    assert_eq!(pitches(&[7], "Linear(10)", one), [64]);
    assert_eq!(pitches(&[6, 7], "Relu | Linear(65, bias = false)", one), [128]);
    // Whole already; what is no row of classes; what an operation reads that knows no gaps.
    assert_eq!(pitches(&[7], "Linear(128)", one), [0]);
    assert_eq!(pitches(&[7], "Linear(10)", &[Term::MSE]), [0]);
    assert_eq!(pitches(&[3, 4, 4], "Conv2d(10, 1)", one), [0]);
    assert_eq!(pitches(&[7], "Linear(10) | Tanh", one), [0]);
    // Two terms that measure the same logits add their gradients.
    let again = Term { target: 1, ..Term::CROSS_ENTROPY };
    assert_eq!(pitches(&[7], "Linear(10)", &[Term::CROSS_ENTROPY, again]), [64, 64]);
    let (graph, output) = network(&[7], "Linear(10)");
    assert!(infer(&graph, output).tensors.iter().all(|tensor| tensor.pitch == 0), "a caller reads them");
}

#[test]
fn gaps_are_counted_in_sixteen_bits_alone() {
    let (graph, output) = network(&[6, 7], "Linear(10)");
    let program = train(&graph, output, 0);
    for (precision, stored) in [(Precision::F32, 60 * 4), (Precision::Bf16, 6 * 64 * 2), (Precision::F16, 6 * 64 * 2)] {
        let compiled = plan(&program, 3, precision);
        let placed = place(&compiled).unwrap();
        let loss = placed.program.operations.iter().find(|it| matches!(it.action, Action::Loss(_))).unwrap();
        let logits = loss.read(Slot::Input(0)).unwrap() as usize;
        assert_eq!(placed.bytes[logits], 3 * stored, "{precision:?}");
        assert_eq!(compiled.budget.largest_bytes, 3 * stored, "{precision:?}");
    }
    let mut short = program.clone();
    short.tensors.iter_mut().filter(|tensor| tensor.pitch > 0).for_each(|tensor| tensor.pitch = 9);
    let compiled = plan(&program, 3, Precision::Bf16);
    let damaged = Compiled { program: &short.encode(), ..compiled };
    let error = place(&damaged).unwrap_err().to_string();
    assert!(error.contains("a tensor's layout has no room for its shape"), "{error}");
}
