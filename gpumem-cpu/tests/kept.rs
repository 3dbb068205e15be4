//! What is not kept changes no bit: activations whose gradients are made with those of normalisations, and inputs that are read in front
//! of concatenations, beside steps that keep everything.

mod harness;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Sizes, Term, Training, levels, lower, lower_for, lower_in_order};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::{BatchNorm, Pointwise};
use gpumem_core::program::{Action, Op, Operand, Operation, Pass, Program, Slot};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::trained;
use harness::graphs::random::BATCH;
use harness::graphs::{chain, join, layer_of, numbers};

/// What builds a network.
type Build = Box<dyn Fn(&mut Graph) -> NodeId>;

fn options() -> Options<'static> {
    options_of(&[Term::CROSS_ENTROPY])
}

fn options_of(loss: &[Term]) -> Options<'_> {
    let descent = gpumem_core::train::Descent::PLAIN;
    let training =
        Training { loss, moments: 1, update: Update::Fused, skips_overflow: false, input_gradient: false, descent };
    Options { training: Some(training) }
}

fn plain(graph: &Graph, output: NodeId) -> Program {
    lower(graph, &[output], &options()).unwrap()
}

/// The normalisations of a program that run this way.
fn norms(program: &Program, pass: Pass) -> Vec<&BatchNorm> {
    let norm = |operation: &'_ Operation| matches!(&operation.action, Action::Run { pass: way, .. } if *way == pass);
    let ran = program.operations.iter().filter(|operation| norm(operation));
    ran.filter_map(|operation| match &operation.action {
        Action::Run { op: Op::BatchNorm(norm), .. } => Some(norm),
        _ => None,
    })
    .collect()
}

/// The step in which the first rectifier's gradient is an operation of its own, for which its output is kept.
fn apart(program: &Program) -> Program {
    let mut program = program.clone();
    let is_merged = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::BatchNorm(norm), pass: Pass::Backward } if norm.activation.is_some());
    let at = program.operations.iter().position(is_merged).unwrap();
    let merged = &mut program.operations[at];
    let Action::Run { op: Op::BatchNorm(norm), .. } = &mut merged.action else { unreachable!() };
    let function = norm.activation.take().unwrap();
    let tensor = merged.read(Slot::Gradient).unwrap();
    let (row, saved) = (merged.row, merged.read(Slot::Saved(0)).unwrap());
    // The rectifier follows the normalisation.
    let forward = program.operations.iter().position(|it| it.written(Slot::Saved(0)) == Some(saved)).unwrap();
    let Action::Run { op: Op::Pointwise(rectifier), .. } = &program.operations[forward + 1].action else { panic!() };
    let rectifier: Pointwise = rectifier.clone();
    assert_eq!(rectifier.function, function);
    let output = program.operations[forward + 1].written(Slot::Output).unwrap();
    let action = Action::Run { op: Op::Pointwise(rectifier), pass: Pass::Backward };
    let gradient = Operand { slot: Slot::Gradient, tensor };
    let reads = vec![gradient, Operand { slot: Slot::Output, tensor: output }];
    let writes = vec![Operand { slot: Slot::InputGradient(0), tensor }];
    program.operations.insert(at, Operation { action, row, accumulate: false, reads, writes });
    for tensor in &mut program.tensors {
        tensor.first += u32::from(tensor.first as usize >= at);
        tensor.last += u32::from(tensor.last as usize >= at);
    }
    // It was in use until here.
    let kept = &mut program.tensors[output as usize];
    kept.last = kept.last.max(at as u32);
    program
}

/// A rectifier behind which nothing reads its output again.
fn rectified(rectifier: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let text = format!("Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d | {rectifier} | AvgPool2d(2, 1)");
    let output = chain(&mut graph, input, &format!("{text} | Conv2d(3, 1) | Flatten | Linear(5)"));
    (graph, output)
}

#[test]
fn a_rectifier_behind_a_normalisation_keeps_nothing() {
    for rectifier in ["Relu", "Relu6", "Relu(inplace = true)"] {
        let (graph, output) = rectified(rectifier);
        let program = plain(&graph, output);
        let found: Vec<bool> = norms(&program, Pass::Backward).iter().map(|norm| norm.activation.is_some()).collect();
        assert_eq!(found, [true], "{rectifier}");
        assert_eq!(trained(&program, 1), trained(&apart(&program), 2), "{rectifier}");
    }
}

/// Where a step needs less with it, a rectifier keeps nothing though a convolution reads its output: that is gone when the convolution's input
/// has its gradient. A step that needs no less is left as it is.
#[test]
fn what_a_convolution_reads_is_gone_when_its_inputs_gradient_is_made() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let text = "Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d | Relu | Conv2d(2, 1) | Flatten | Linear(5)";
    let output = chain(&mut graph, input, text);
    let setting = Sizes::new(BATCH, Precision::F32, Workspaces { product: 0, convolution: 0 });
    let ordered = lower_for(&graph, &[output], &options(), &setting).unwrap();
    assert!(norms(&ordered, Pass::Backward).iter().all(|norm| norm.activation.is_some()), "{ordered}");
    let is_of_convolution = |operation: &&Operation| matches!(operation.backward(), Some(Op::Convolution(_)));
    let of_weight = ordered.operations.iter().position(|operation| is_of_convolution(&operation)).unwrap();
    let read = ordered.operations[of_weight].read(Slot::Input(0)).unwrap();
    assert_eq!(ordered.tensor(read).last as usize, of_weight, "{ordered}");
    let program = plain(&graph, output);
    assert!(norms(&program, Pass::Backward).iter().all(|norm| norm.activation.is_none()));
    assert_eq!(trained(&ordered, 1), trained(&program, 2));
}

/// A smooth function keeps neither its input nor its output. Beside a step in which a second reader, which adds nothing, has its input kept.
#[test]
fn a_function_behind_a_normalisation_keeps_nothing() {
    // A logarithm of what is negative is NaN.
    let all = Function::ALL.iter().filter(|it| it.has_slope_of_input() && **it != Function::Log);
    for function in all.filter_map(|&function| layer_of(function)) {
        let network = |twice: bool| {
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[3, 6, 5])).unwrap();
            let x = chain(&mut graph, input, "Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d");
            let mut y = chain(&mut graph, x, function);
            if twice {
                let nothing = chain(&mut graph, x, "Affine(0, 0)");
                y = join(&mut graph, &[y, nothing], "Add");
            }
            lower(&graph, &[y], &options_of(&[Term::MSE])).unwrap()
        };
        let [program, apart] = [false, true].map(network);
        let found = [&program, &apart].map(|program| norms(program, Pass::Backward)[0].activation.is_some());
        assert_eq!(found, [true, false], "{function}: {program}{apart}");
        assert_eq!(trained(&program, 1), trained(&apart, 2), "{function}");
    }
}

/// A program that nothing lowers to.
#[test]
fn a_function_that_keeps_more_than_its_input_is_refused() {
    let (graph, output) = rectified("Relu");
    let mut program = plain(&graph, output);
    let merged = program.operations.iter_mut().find(|operation| matches!(operation.backward(), Some(Op::BatchNorm(_))));
    let Action::Run { op: Op::BatchNorm(norm), .. } = &mut merged.unwrap().action else { unreachable!() };
    norm.activation = Some(Function::Tanh);
    let sgd = Optimizer::Sgd(Sgd::DEFAULT);
    let error = Loaded::of(&Cpu::with_threads(1).unwrap(), &program, BATCH, sgd).err().unwrap();
    let expected = "a normalisation has the gradient of a function that keeps more than its input";
    assert!(error.to_string().contains(expected), "{error}");
}

/// What keeps the output anyway, or reads the normalised map, or needs more than the sign.
#[test]
fn other_rectifiers_are_left_alone() {
    let one = |text: &'static str| {
        move |graph: &mut Graph| {
            let input = graph.input(numbers(&[3, 6, 5])).unwrap();
            chain(graph, input, text)
        }
    };
    let twice = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        let x = chain(graph, input, "Conv2d(4, 1) | BatchNorm2d");
        let branches = [chain(graph, x, "Relu"), x];
        let sum = join(graph, &branches, "Add");
        chain(graph, sum, "Flatten | Linear(5)")
    };
    let networks: [(&str, Build); 4] = [
        ("a convolution", Box::new(one("Conv2d(4, 1) | BatchNorm2d | Relu | Conv2d(2, 1) | Flatten | Linear(5)"))),
        ("a product behind a view", Box::new(one("Conv2d(4, 1) | BatchNorm2d | Relu | Flatten | Linear(5)"))),
        ("a slope", Box::new(one("Conv2d(4, 1) | BatchNorm2d | LeakyRelu(0.1) | AvgPool2d(2) | Flatten | Linear(5)"))),
        ("another reader", Box::new(twice)),
    ];
    for (what, build) in networks {
        let mut graph = Graph::default();
        let output = build(&mut graph);
        let program = plain(&graph, output);
        assert!(norms(&program, Pass::Backward).iter().all(|norm| norm.activation.is_none()), "{what}: {program}");
    }
}

/// Layers that read all before them, and the nodes of each.
fn dense(layers: usize) -> (Graph, NodeId, Vec<[NodeId; 2]>) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 5, 4])).unwrap();
    let mut x = chain(&mut graph, input, "Conv2d(4, 1, bias = false)");
    let mut of_layers = Vec::new();
    for _ in 0..layers {
        let first = graph.nodes.len();
        let made = chain(&mut graph, x, "BatchNorm2d | Relu | Conv2d(3, 3, padding = 1, bias = false)");
        of_layers.push([first, graph.nodes.len()]);
        x = join(&mut graph, &[x, made], "Concat");
    }
    let output = chain(&mut graph, x, "BatchNorm2d | Relu | Conv2d(2, 1) | Flatten | Linear(5)");
    (graph, output, of_layers)
}

/// The channels of the maps in whose front normalisations find their inputs.
fn within(program: &Program, pass: Pass) -> Vec<u64> {
    norms(program, pass).iter().map(|norm| norm.within).collect()
}

#[test]
fn a_dense_block_keeps_its_last_concatenation() {
    let (mut graph, output, of_layers) = dense(4);
    let program = plain(&graph, output);
    assert_eq!(within(&program, Pass::Forward), [0; 5]);
    assert_eq!(within(&program, Pass::Backward), [0, 16, 16, 16, 16]);
    // Where all of it is computed again, each normalisation reads what it read.
    let nodes = graph.nodes.len();
    graph.groups = vec![[0, nodes]];
    let whole = plain(&graph, output);
    assert_eq!(within(&whole, Pass::Backward), [0; 5]);
    assert_eq!(trained(&program, 1), trained(&whole, 2));
    // Where layers are computed again, but not what joins them, they read from there again, too.
    graph.groups = of_layers;
    let layers = plain(&graph, output);
    assert_eq!(within(&layers, Pass::Again), [16; 4]);
    assert_eq!(trained(&layers, 1), trained(&whole, 2));
}

/// The gradient of what the loss measures takes its place: nothing else is read from there.
#[test]
fn a_block_that_the_loss_measures_keeps_its_maps() {
    // The concatenation in front of the last one stays what it was.
    for (layers, expected) in [(2, vec![0; 2]), (3, vec![0, 10, 10])] {
        let (mut graph, _, of_layers) = dense(layers);
        let output = of_layers[layers - 1][1];
        let lower = |graph: &Graph| lower(graph, &[output], &options_of(&[Term::MSE])).unwrap();
        let program = lower(&graph);
        assert_eq!(within(&program, Pass::Backward), expected);
        // Where all of it is computed again, each normalisation reads what it read.
        graph.groups = vec![[0, output + 1]];
        assert_eq!(trained(&program, 1), trained(&lower(&graph), 2));
    }
}

/// Whatever is computed again for less memory.
#[test]
fn levels_of_a_dense_block_change_no_bit() {
    let (graph, output, _) = dense(5);
    let expected = trained(&plain(&graph, output), 1);
    for only_cheap in [true, false] {
        let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
        let setting = Sizes { only_cheap, ..Sizes::new(BATCH, Precision::F32, workspaces) };
        let found = levels(&graph, &[output], &options(), &setting).unwrap();
        assert!(found.len() > 1);
        for level in &found {
            let program = lower_in_order(&graph, &[output], &options(), &level.order).unwrap();
            assert_eq!(trained(&program, 2), expected);
        }
    }
}

/// Two maps that one concatenation begins with are less than it: it would be held longer than what it saves.
#[test]
fn a_concatenation_that_is_larger_than_its_front_is_left_alone() {
    let (graph, output, _) = dense(1);
    assert_eq!(within(&plain(&graph, output), Pass::Backward), [0; 2]);
}
