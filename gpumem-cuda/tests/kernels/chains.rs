//! Operations that are element by element, as one launch: that they are, that every tensor has the same bits as from a launch for
//! each, and that they stay apart where they must. Every test that compares a network compares bits, too.

use crate::gradients;
use crate::host::chains::{same_bits, same_bits_in};
use crate::host::harness::graphs::random::{BATCH, Choice, KINDS, network};
use crate::host::harness::graphs::{chain, join, layer, numbers, plan};
use crate::host::{CAPABILITY, compare_in, prepare, steps_of};
use crate::norms::forward;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::program::{Action, Op, Operation, Pass, Phase, Slot, TensorId};
use gpumem_core::{Half, Precision};
use gpumem_cuda::program_calls::OperationCalls;
use gpumem_cuda::{Call, Launch};

pub fn placed(batch: u64, precision: Precision, build: impl Fn(&mut Graph) -> NodeId) -> Placed {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let program = lower(&graph, &[output], &Options { training: Some(gradients().0) }).unwrap();
    place(&plan(&program, batch, precision)).unwrap()
}

/// The chains of a program: how many operations, and the launch.
pub fn chains(placed: &Placed, batch: u64, precision: Precision) -> Vec<(usize, Launch)> {
    let steps = steps_of(placed, batch, precision, gradients().1);
    let chain = |call: &Call| match call {
        Call::Kernel(launch) if launch.kernel.file == "chain.cu" => Some(launch.clone()),
        _ => None,
    };
    let each = steps.iter().flat_map(|step| step.calls.iter().map(move |call| (step.operations().len(), chain(call))));
    each.filter_map(|(count, launch)| Some((count, launch?))).collect()
}

/// How many operations each chain has.
fn counts(placed: &Placed, batch: u64, precision: Precision) -> Vec<usize> {
    chains(placed, batch, precision).into_iter().map(|(count, _)| count).collect()
}

const FORMATS: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16)];

/// Checks how many operations the chains of a network have, and that it trains as on the CPU, in every format.
pub fn chained(what: &str, batch: u64, expected: &[usize], build: impl Fn(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (training, optimizer) = gradients();
    let case = (what, &graph, output, training, batch, optimizer);
    prepare(&FORMATS.map(|precision| (precision, CAPABILITY)), case);
    for precision in FORMATS {
        assert_eq!(counts(&placed(batch, precision, &build), batch, precision), expected, "{what} in {precision:?}");
        let (orders, tolerance) = if precision == Precision::F32 { (0..3, 1e-5) } else { (0..1, 5e-2) };
        compare_in((precision, CAPABILITY), orders, case, 1, 5, tolerance);
    }
}

/// Whole pieces of 16 bytes, and a last one that is shorter.
const FEATURES: [u64; 2] = [24, 19];

#[test]
fn gates() {
    for features in FEATURES {
        // Both gradients of the product, and that of the function.
        chained("Silu(a) * b", 3, &[2, 3], |graph| {
            let [a, b] = [0; 2].map(|_| graph.input(numbers(&[7, features])).unwrap());
            let gate = layer(graph, a, "Silu");
            join(graph, &[gate, b], "Mul")
        });
    }
}

#[test]
fn residuals() {
    for features in FEATURES {
        chained("activation, dropout and residual", 3, &[4, 3], |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            let x = chain(graph, input, "Tanh | Gelu | Dropout(0.3)");
            join(graph, &[x, input], "Add")
        });
        chained("a branch that is left out", 3, &[4, 3], |graph| {
            let input = graph.input(numbers(&[6, 4, 4])).unwrap();
            let x = chain(graph, input, "Tanh | Gelu | DropPath(0.3)");
            join(graph, &[x, input], "Add")
        });
        chained("residual, activation and two dropouts", 3, &[4, 5], |graph| {
            let [a, b] = [0; 2].map(|_| graph.input(numbers(&[7, features])).unwrap());
            let sum = join(graph, &[a, b, a], "Add");
            chain(graph, sum, "Dropout(0.2) | Sigmoid | Dropout(0.5)")
        });
    }
}

#[test]
fn functions_of_two_numbers() {
    for features in FEATURES {
        chained("all of them", 3, &[6, 8], |graph| {
            let [a, b] = [0; 2].map(|_| graph.input(numbers(&[7, features])).unwrap());
            let divisor = chain(graph, b, "Sigmoid | Affine(1.0, 0.5)");
            let x = join(graph, &[a, divisor], "Div");
            let x = join(graph, &[x, b], "Sub");
            let x = join(graph, &[b, x], "Mul");
            layer(graph, x, "Hardswish")
        });
    }
}

/// A gate of each channel, a bias of each column, one for the whole batch, and one number.
#[test]
fn values_that_are_repeated() {
    for (dims, repeated) in
        [([3, 4, 4], [3, 1, 1]), ([3, 5, 16], [1, 1, 16]), ([2, 4, 8], [2, 1, 8]), ([1, 2, 8], [1, 1, 1])]
    {
        // The gradient of what is repeated stands between the other two and that of Silu.
        chained(&format!("{dims:?} and {repeated:?}"), 3, &[3, 3], |graph| {
            let [whole, part] = [dims, repeated].map(|dims| graph.input(numbers(&dims)).unwrap());
            let x = layer(graph, whole, "Silu");
            let x = join(graph, &[x, part], "Mul");
            layer(graph, x, "Tanh")
        });
    }
    for function in ["Add", "Sub"] {
        chained("positions", 3, &[2], |graph| {
            let input = graph.input(numbers(&[7, 16])).unwrap();
            let positions = layer(graph, input, "PositionEmbedding(7)");
            let x = join(graph, &[input, positions], function);
            let x = chain(graph, x, "Gelu | Softmax");
            join(graph, &[x, positions], "Add")
        });
    }
    // Its rows are no whole pieces.
    chained("apart", 3, &[], |graph| {
        let [whole, part] = [[3, 5, 6], [3, 1, 1]].map(|dims| graph.input(numbers(&dims)).unwrap());
        let x = layer(graph, whole, "Silu");
        let x = join(graph, &[x, part], "Mul");
        layer(graph, x, "Softmax")
    });
}

#[test]
fn formulas() {
    chained("formulas of the user's", 3, &[4, 4], |graph| {
        let input = graph.input(numbers(&[2, 4, 3])).unwrap();
        chain(graph, input, "Swish | Sigmoid | Everything | Squash")
    });
}

/// The gradients of several branches, added up.
#[test]
fn branches() {
    chained("a value used four times", 3, &[6, 7], |graph| {
        let input = graph.input(numbers(&[5, 16])).unwrap();
        let x = layer(graph, input, "Tanh");
        let branches = ["Silu", "Gelu", "Dropout(0.25)"].map(|text| layer(graph, x, text));
        let product = join(graph, &[branches[0], branches[1]], "Mul");
        join(graph, &[product, branches[2], x], "Add")
    });
}

/// At most eight operations at a time, and as many tensors as the kernel has pointers for.
#[test]
fn long_chains() {
    let text = ["Tanh | Affine(2.0, 0.1) | Sigmoid"; 4].join(" | ");
    chained("twelve functions", 3, &[8, 4, 8, 4], |graph| {
        let input = graph.input(numbers(&[2, 24])).unwrap();
        chain(graph, input, &text)
    });
    let build = |graph: &mut Graph| {
        let inputs = [0; 7].map(|_| graph.input(numbers(&[2, 16])).unwrap());
        let gate = chain(graph, inputs[0], "Sigmoid");
        inputs.into_iter().fold(gate, |x, other| join(graph, &[x, other], "Mul"))
    };
    for (_, launch) in chains(&placed(3, Precision::F32, build), 3, Precision::F32) {
        assert!(launch.arguments.len() == 15 && launch.arguments.iter().flatten().count() <= 12, "{launch:?}");
    }
}

/// Whether an operation is the forward pass of such a one.
fn position(placed: &Placed, is: impl Fn(&Op) -> bool) -> usize {
    let is = |operation: &Operation| operation.forward().is_some_and(&is);
    placed.program.operations.iter().position(is).unwrap()
}

#[test]
fn overlap_keeps_operations_apart() {
    let build = |graph: &mut Graph| {
        let [a, b] = [0; 2].map(|_| graph.input(numbers(&[5, 64])).unwrap());
        let gate = layer(graph, a, "Silu");
        let product = join(graph, &[gate, b], "Mul");
        layer(graph, product, "Softmax")
    };
    let mut placed = placed(3, Precision::F32, build);
    let product = position(&placed, |op| matches!(op, Op::Binary(_)));
    let operation = &placed.program.operations[product];
    let (factor, output) = (operation.read(Slot::Input(1)).unwrap(), operation.written(Slot::Output).unwrap());
    let forward = |placed: &Placed| {
        let steps = steps_of(placed, 3, Precision::F32, gradients().1);
        steps.iter().find(|step| (step.first..step.first + step.count).contains(&product)).unwrap().count
    };
    assert_eq!(forward(&placed), 2);
    // Exactly where a factor lies each thread overwrites what it alone has read.
    let place = placed.offsets[factor as usize];
    placed.offsets[output as usize] = place;
    assert_eq!(forward(&placed), 2);
    let ends = placed.offsets.iter().zip(&placed.bytes).map(|(offset, bytes)| offset + bytes);
    let arena = ends.max().unwrap().next_multiple_of(256);
    same_bits_in("in place", &placed, arena, (3, (Precision::F32, CAPABILITY), 5, gradients().1));
    // A little behind it, it would overwrite what others read.
    placed.offsets[output as usize] = place + 256;
    assert_eq!(forward(&placed), 1);
}

/// What is repeated is read by many threads, be it where it may.
#[test]
fn nothing_is_stored_where_a_repeated_value_lies() {
    let build = |graph: &mut Graph| {
        let [whole, part] = [[5, 64], [1, 64]].map(|dims| graph.input(numbers(&dims)).unwrap());
        let x = layer(graph, whole, "Silu");
        let product = join(graph, &[x, part], "Mul");
        layer(graph, product, "Softmax")
    };
    let mut placed = placed(1, Precision::F32, build);
    let product = position(&placed, |op| matches!(op, Op::Binary(_)));
    let operation = &placed.program.operations[product];
    let (part, output) = (operation.read(Slot::Input(1)).unwrap(), operation.written(Slot::Output).unwrap());
    let count = counts(&placed, 1, Precision::F32).len();
    placed.offsets[output as usize] = placed.offsets[part as usize];
    assert_eq!(counts(&placed, 1, Precision::F32).len(), count - 1);
}

/// Without training, dropout is gone, and nothing is kept for a backward pass.
#[test]
fn forward_passes() {
    let mut graph = Graph::default();
    let [whole, part] = [[3, 4, 4], [3, 1, 1]].map(|dims| graph.input(numbers(&dims)).unwrap());
    let x = chain(&mut graph, whole, "Silu | Dropout(0.5) | Tanh");
    let x = join(&mut graph, &[x, part], "Mul");
    let output = join(&mut graph, &[x, whole], "Add");
    let options = Options { training: None };
    let placed = place(&plan(&lower(&graph, &[output], &options).unwrap(), 3, Precision::F32)).unwrap();
    let found = chains(&placed, 3, Precision::F32);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1.arguments.iter().flatten().count()), (4, 3));
    forward(&graph, output, &options, 3, |value| value, 1e-5);
}

/// A sum runs with the normalisation behind it, unless a branch would be written for the sum alone.
#[test]
fn sums_with_a_normalisation_behind() {
    for (last, expected) in [("Tanh", (2, 2)), ("Dropout(0.2)", (3, 1))] {
        let build = |graph: &mut Graph| {
            let [a, b] = [0; 2].map(|_| graph.input(numbers(&[7, 16])).unwrap());
            let x = chain(graph, a, &format!("Gelu | {last}"));
            let sum = join(graph, &[x, b], "Add");
            let y = layer(graph, sum, "LayerNorm");
            join(graph, &[y, sum], "Mul")
        };
        let placed = placed(3, Precision::F32, build);
        let steps = steps_of(&placed, 3, Precision::F32, gradients().1);
        let count = |is: fn(&Op) -> bool| {
            let at = position(&placed, is);
            steps.iter().find(|step| (step.first..step.first + step.count).contains(&at)).unwrap().count
        };
        let found = (count(|op| matches!(op, Op::Pointwise(_))), count(|op| matches!(op, Op::Normalize(_))));
        assert_eq!(found, expected, "{last}");
    }
    // Dropout and the sum run with the normalisation too, if rows are whole packs.
    for (features, expected) in [(24, &[2][..]), (23, &[2, 2])] {
        chained("a block with dropout", 2, expected, |graph| {
            let input = graph.input(numbers(&[5, features])).unwrap();
            let x = chain(graph, input, "LayerNorm | Dropout(0.1)");
            let sum = join(graph, &[x, input], "Add");
            let x = layer(graph, sum, "LayerNorm");
            join(graph, &[x, sum], "Mul")
        });
    }
}

/// A gated perceptron, with the product that is not gated before the gate or behind it.
fn gated(graph: &mut Graph, gate_first: bool) -> NodeId {
    let input = graph.input(numbers(&[7, 16])).unwrap();
    let x = layer(graph, input, "RmsNorm");
    let texts = ["Linear(32, bias = false)", "Linear(32, bias = false) | Silu"];
    let branches = if gate_first { [1, 0] } else { [0, 1] }.map(|index| chain(graph, x, texts[index]));
    let product = join(graph, &branches, "Mul");
    let down = chain(graph, product, "Linear(16, bias = false) | Dropout(0.1)");
    join(graph, &[down, input], "Add")
}

/// How many launches a pass has.
fn launches(placed: &Placed, steps: &[OperationCalls], pass: Pass) -> usize {
    let operations = &placed.program.operations;
    let is_one =
        |step: &&OperationCalls| matches!(&operations[step.first].action, Action::Run { pass: it, .. } if *it == pass);
    steps.iter().filter(is_one).map(|step| step.calls.len()).sum()
}

/// A gated perceptron: a figure that grows where chains stop being found.
#[test]
fn launches_of_a_gated_perceptron() {
    for gate_first in [false, true] {
        let placed = placed(3, Precision::Bf16, |graph| gated(graph, gate_first));
        let steps = steps_of(&placed, 3, Precision::Bf16, gradients().1);
        let found = [Pass::Forward, Pass::Backward].map(|pass| launches(&placed, &steps, pass));
        assert_eq!(found, [6, 10], "{gate_first}");
        assert_eq!(counts(&placed, 3, Precision::Bf16), [2, 2, 3]);
    }
}

/// The steps of a gated perceptron whose gate comes first: how many launches the passes have, and how many of their steps have
/// operations from elsewhere.
fn moved(placed: &Placed) -> [(usize, usize); 2] {
    let steps = steps_of(placed, 3, Precision::F32, gradients().1);
    let is_moved = |step: &&OperationCalls| !step.moved.is_empty();
    [(Pass::Forward, Phase::Forward), (Pass::Backward, Phase::Backward)].map(|(pass, phase)| {
        let of_phase = |step: &&OperationCalls| placed.program.operations[step.first].phase() == phase;
        (launches(placed, &steps, pass), steps.iter().filter(of_phase).filter(is_moved).count())
    })
}

/// Silu moves to the product of both branches, past the matrix product of the other, and its gradient to that of the product. Each is
/// a launch less.
#[test]
fn operations_move_past_a_product() {
    chained("a gate before a product", 3, &[2, 2, 3], |graph| gated(graph, true));
    let placed = placed(3, Precision::F32, |graph| gated(graph, true));
    assert_eq!(moved(&placed), [(6, 1), (10, 1)]);
    let operations = &placed.program.operations;
    let silu = position(&placed, |op| matches!(op, Op::Pointwise(_)));
    let steps = steps_of(&placed, 3, Precision::F32, gradients().1);
    let forward = steps.iter().position(|step| step.moved == [silu]).unwrap();
    assert!(matches!(operations[steps[forward].first].forward(), Some(Op::Binary(_))));
    assert_eq!(steps[forward - 1].first, silu + 1, "the product runs before");
}

/// An operation whose input the product in between overwrites stays where it is.
#[test]
fn operations_stay_where_a_product_writes_over_what_they_read() {
    let placed = placed(3, Precision::F32, |graph| gated(graph, true));
    let operations = &placed.program.operations;
    let silu = position(&placed, |op| matches!(op, Op::Pointwise(_)));
    let input = operations[silu].read(Slot::Input(0)).unwrap();
    let with_input_of_silu_at = |tensor: TensorId| {
        let mut placed = placed.clone();
        placed.offsets[tensor as usize] = placed.offsets[input as usize];
        moved(&placed)
    };
    let product = operations[silu + 1].written(Slot::Output).unwrap();
    assert_eq!(with_input_of_silu_at(product), [(7, 0), (10, 1)]);
    // Its gradient reads that input, too.
    let is_backward = |operation: &Operation, is: fn(&Op) -> bool| matches!(&operation.action, Action::Run { op, pass: Pass::Backward } if is(op));
    let silu_backward = operations.iter().position(|it| is_backward(it, |op| matches!(op, Op::Pointwise(_)))).unwrap();
    let mut before = operations[..silu_backward].iter().rev();
    let product_backward = before
        .find(|it| is_backward(it, |op| matches!(op, Op::Product(_))) && it.written(Slot::InputGradient(0)).is_some());
    let gradient = product_backward.unwrap().written(Slot::InputGradient(0)).unwrap();
    assert_eq!(with_input_of_silu_at(gradient), [(6, 1), (11, 0)]);
}

/// A random network's training step.
pub fn random(seed: u64) -> (Graph, NodeId) {
    let mut state = seed + 1;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let choices: Vec<Choice> = (0..16).map(|_| (draw(KINDS), draw(20), draw(20))).collect();
    network(&choices, true)
}

#[test]
fn random_networks() {
    let (training, optimizer) = gradients();
    let mut found = 0;
    // In networks 0 and 4 a norm takes away what a bias or a factor does: its gradient is 0 but for rounding.
    for seed in [1, 5, 6, 7, 8] {
        let (graph, output) = random(seed);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        found += counts(&place(&plan(&program, BATCH, Precision::F32)).unwrap(), BATCH, Precision::F32).len();
        let case = ("random", &graph, output, training, BATCH, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..1, case, 1, 5, 1e-4);
    }
    assert!(found > 3, "{found}");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn further_random_networks_to_the_bit() {
    let (training, optimizer) = gradients();
    for seed in 3..15 {
        let (graph, output) = random(seed);
        prepare(
            &FORMATS.map(|precision| (precision, CAPABILITY)),
            ("random", &graph, output, training, BATCH, optimizer),
        );
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        for precision in FORMATS {
            same_bits(&format!("random {seed}"), &program, BATCH, (precision, CAPABILITY), 5, optimizer);
        }
    }
}
