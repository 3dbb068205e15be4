//! Operations that run as one: that they do, that they give the same, and that they do not where they must not. What is element by
//! element throughout has tests of its own: `chains.rs`.

use crate::host::harness::compile;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::host::{CAPABILITY, Reference, Run, compare_programs, prepare_programs, steps_of};
use crate::norms::forward;
use crate::{check, check_narrow, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Op, Operation, Pass, Slot};
use gpumem_cuda::Call;

fn place(batch: u64, build: impl Fn(&mut Graph) -> NodeId) -> Placed {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    compile(&lower(&graph, &[output], &Options { training: Some(gradients().0) }).unwrap(), batch)
}

/// The steps that are more than one operation, but for updates and chains: how many, and the kernels.
fn fused(placed: &Placed, batch: u64) -> Vec<(usize, Vec<&'static str>)> {
    let steps = steps_of(placed, batch, Precision::F32, gradients().1);
    let entry = |call: &Call| match call {
        Call::Kernel(launch) => launch.kernel.entry,
        Call::Product(_) => "product",
        Call::Convolution(_) => "convolution",
        Call::Attention(_) => "attention",
        Call::Recurrence(_) => "recurrence",
        Call::Passage(_) => "copy",
        Call::Exchange(_) => "exchange",
    };
    let entries = |calls: &[Call]| calls.iter().map(entry).collect();
    let is_update = |first: usize| placed.program.operations[first].action == Action::Update;
    let several = steps.iter().filter(|step| step.count > 1 && !is_update(step.first));
    let several = several.map(|step| (step.count, entries(&step.calls)));
    several.filter(|(_, entries)| *entries != ["chain"]).collect()
}

/// Checks that exactly these operations of a network run as one, and that it trains as on the CPU.
fn fuses(what: &str, batch: u64, expected: &[(usize, &[&str])], build: impl Fn(&mut Graph) -> NodeId) {
    let found = fused(&place(batch, &build), batch);
    let expected: Vec<(usize, Vec<&str>)> =
        expected.iter().map(|(count, entries)| (*count, entries.to_vec())).collect();
    assert_eq!(found, expected, "{what}");
    check(what, batch, build);
}

const FORWARD: &[&str] = &["batch_norm_forward"];
const FORWARD_PARTS: &[&str] = &["batch_norm_statistics", "batch_norm_apply_parts"];
const BACKWARD: &[&str] = &["batch_norm_backward"];
const BACKWARD_PARTS: &[&str] = &["batch_norm_sums", "batch_norm_input"];

#[test]
fn batch_norm_and_rectifier() {
    // The convolutions keep what is rectified; where nobody does, one operation has both gradients.
    const CONVOLUTION: &str = "Conv2d(2, 1, bias = false)";
    fuses("one part", 3, &[(2, FORWARD), (2, FORWARD), (2, BACKWARD), (2, BACKWARD)], |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        let x = chain(graph, input, &format!("BatchNorm2d | Relu | {CONVOLUTION}"));
        chain(graph, x, &format!("BatchNorm2d(affine = false) | Relu6 | {CONVOLUTION}"))
    });
    fuses("one operation", 3, &[(2, FORWARD), (2, FORWARD)], |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        chain(
            graph,
            input,
            "BatchNorm2d | Relu | AvgPool2d(2, 1) | BatchNorm2d(affine = false) | Relu6 | AvgPool2d(2, 1)",
        )
    });
    fuses("several parts", 2, &[(2, FORWARD_PARTS), (2, BACKWARD_PARTS)], |graph| {
        let input = graph.input(numbers(&[2, 64, 66])).unwrap();
        chain(graph, input, &format!("BatchNorm2d | Relu | {CONVOLUTION}"))
    });
    fuses("one operation, several parts", 2, &[(2, FORWARD_PARTS)], |graph| {
        let input = graph.input(numbers(&[2, 64, 66])).unwrap();
        chain(graph, input, "BatchNorm2d | Relu | AvgPool2d(9, 9)")
    });
}

#[test]
fn batch_norm_sum_and_rectifier() {
    for (dims, forward, backward) in [([3, 7, 5], FORWARD, BACKWARD), ([2, 64, 66], FORWARD_PARTS, BACKWARD_PARTS)] {
        let expected = [(2, forward), (3, forward), (2, backward), (2, backward)];
        fuses("a residual block", 2, &expected, |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let x = chain(graph, input, "BatchNorm2d | Relu | BatchNorm2d");
            let sum = join(graph, &[x, input], "Add");
            chain(graph, sum, "Relu | Silu | AvgPool2d(3, 3)")
        });
        // The other branch has the gradient that comes through the rectifier, too.
        for rectifier in ["Relu(inplace = true)", "Relu6"] {
            let expected = [(2, forward), (3, forward), (2, backward), (2, backward)];
            fuses("a residual block whose input is computed", 2, &expected, |graph| {
                let input = graph.input(numbers(&dims)).unwrap();
                let whole = chain(graph, input, "BatchNorm2d | AvgPool2d(1, 1)");
                let x = chain(graph, whole, "BatchNorm2d | Relu | BatchNorm2d");
                let sum = join(graph, &[x, whole], "Add");
                chain(graph, sum, &format!("{rectifier} | Silu | AvgPool2d(3, 3)"))
            });
        }
    }
}

/// A thread takes one, two or four elements; what dropout reads is needed afterwards, by the rectifier or another branch, or is not.
#[test]
fn batch_norm_and_dropout() {
    const DROP: &[&str] = &["batch_norm_forward_drop"];
    const DROP_BACK: &[&str] = &["batch_norm_backward_drop"];
    for dims in [[3, 5, 5], [3, 2, 7], [3, 4, 6]] {
        fuses("a rectifier and dropout", 3, &[(3, DROP), (2, DROP_BACK)], |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            chain(graph, input, "BatchNorm2d | Relu | Dropout(0.3) | Flatten | Linear(5)")
        });
        fuses("dropout alone", 3, &[(2, DROP)], |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            chain(graph, input, "BatchNorm2d | Dropout(0.5) | Flatten | Linear(5)")
        });
        fuses("a residual block", 3, &[(4, DROP)], |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let whole = chain(graph, input, "BatchNorm2d | AvgPool2d(1, 1)");
            let x = layer(graph, whole, "BatchNorm2d");
            let sum = join(graph, &[x, whole], "Add");
            let rectified = layer(graph, sum, "Relu");
            let dropped = layer(graph, rectified, "Dropout(0.2)");
            let product = join(graph, &[dropped, rectified], "Mul");
            layer(graph, product, "AvgPool2d(2, 1)")
        });
    }
    // Several blocks for a channel leave dropout to a launch of its own.
    fuses("several parts", 2, &[(2, FORWARD_PARTS)], |graph| {
        let input = graph.input(numbers(&[2, 64, 66])).unwrap();
        chain(graph, input, "BatchNorm2d | Relu | Dropout(0.3) | AvgPool2d(9, 9)")
    });
    // Elements that rounding keeps or cuts off in its own way have no part in it.
    for dims in [[3, 5, 5], [2, 4, 6]] {
        check_narrow("dropout in 16 bits", 3, |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            chain(graph, input, "BatchNorm2d | Dropout(0.3) | Tanh")
        });
    }
}

#[test]
fn sum_and_rectifier() {
    let expected: &[(usize, &[&str])] = &[(2, &["sum"])];
    for features in [13, 300] {
        fuses("two branches", 3, expected, |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            let x = layer(graph, input, "Softmax");
            let sum = join(graph, &[x, input], "Add");
            chain(graph, sum, "Relu | Linear(3)")
        });
    }
    // Partial sums must not be rectified.
    fuses("more branches than a launch adds up", 3, &[(2, &["sum", "sum"])], |graph| {
        let input = graph.input(numbers(&[5, 6])).unwrap();
        let negative = layer(graph, input, "LeakyRelu(5.0)");
        let mut branches = vec![negative; 9];
        branches.push(input);
        let sum = join(graph, &branches, "Add");
        chain(graph, sum, "Relu6 | Linear(3)")
    });
}

#[test]
fn sum_and_layer_norm() {
    let expected: &[(usize, &[&str])] = &[(2, &["normalize"]), (2, &["normalize"])];
    for (rows, features) in [(7, 13), (5, 36), (2, 1033)] {
        fuses("a transformer's block", 2, expected, |graph| {
            let input = graph.input(numbers(&[rows, features])).unwrap();
            let x = layer(graph, input, "Tanh");
            let sum = join(graph, &[input, x], "Add");
            let x = chain(graph, sum, "LayerNorm | Tanh");
            let sum = join(graph, &[sum, x], "Add");
            let y = chain(graph, sum, "LayerNorm(bias = false) | Tanh");
            join(graph, &[y, sum], "Mul")
        });
    }
}

/// All samples share a branch, such as an embedding of positions, whichever of the two it is.
#[test]
fn sum_of_a_shared_branch_and_row_norm() {
    let expected: &[(usize, &[&str])] = &[(2, &["normalize"])];
    for (norm, dims) in [("LayerNorm", [7, 13]), ("RmsNorm", [6, 24]), ("LayerNorm(bias = false)", [3, 1032])] {
        let build = |is_first: bool| {
            move |graph: &mut Graph| {
                let input = graph.input(numbers(&dims)).unwrap();
                let positions = layer(graph, input, &format!("PositionEmbedding({})", dims[0]));
                let branches = if is_first { [positions, input] } else { [input, positions] };
                let sum = join(graph, &branches, "Add");
                let y = chain(graph, sum, &format!("{norm} | Tanh"));
                let product = join(graph, &[y, sum], "Mul");
                // Otherwise the statistics may take the place of the branch.
                join(graph, &[product, positions], "Add")
            }
        };
        fuses(norm, 3, expected, build(false));
        fuses(norm, 3, expected, build(true));
        check_narrow(norm, 3, |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let positions = layer(graph, input, &format!("PositionEmbedding({})", dims[0]));
            let sum = join(graph, &[input, positions], "Add");
            let y = layer(graph, sum, norm);
            join(graph, &[y, positions], "Add")
        });
    }
}

/// Dropout of one branch before the sum: of whole packs, in rows of a warp and of a block.
#[test]
fn dropout_sum_and_row_norm() {
    const DROP: &[&str] = &["normalize_drop"];
    for (norm, dims) in [("LayerNorm", [5, 36]), ("RmsNorm", [3, 24]), ("LayerNorm(bias = false)", [2, 1032])] {
        let build = |graph: &mut Graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let x = chain(graph, input, "Softmax | Dropout(0.3)");
            let sum = join(graph, &[input, x], "Add");
            let y = layer(graph, sum, norm);
            let x = chain(graph, y, "Softmax | Dropout(0.1)");
            let sum = join(graph, &[x, sum], "Add");
            chain(graph, sum, &format!("{norm} | Tanh"))
        };
        fuses(norm, 2, &[(3, DROP), (3, DROP)], build);
        // Of two of them the rounding adds up.
        check_narrow(norm, 2, |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let x = chain(graph, input, "Softmax | Dropout(0.3)");
            let sum = join(graph, &[input, x], "Add");
            layer(graph, sum, norm)
        });
    }
    // A draw decides about elements of two rows.
    fuses("single elements", 2, &[], |graph| {
        let input = graph.input(numbers(&[5, 13])).unwrap();
        let x = chain(graph, input, "Softmax | Dropout(0.3)");
        let sum = join(graph, &[input, x], "Add");
        chain(graph, sum, "LayerNorm | Tanh")
    });
    // A function before dropout would have to be written.
    fuses("a chain", 2, &[], |graph| {
        let input = graph.input(numbers(&[5, 36])).unwrap();
        let x = chain(graph, input, "Softmax | Silu | Dropout(0.3)");
        let sum = join(graph, &[input, x], "Add");
        chain(graph, sum, "LayerNorm | Tanh")
    });
    fuses("what is left of dropout is read again", 2, &[(2, &["normalize"])], |graph| {
        let input = graph.input(numbers(&[5, 36])).unwrap();
        let x = chain(graph, input, "Softmax | Dropout(0.3)");
        let sum = join(graph, &[input, x], "Add");
        let y = layer(graph, sum, "LayerNorm");
        join(graph, &[y, x], "Mul")
    });
}

#[test]
fn sum_and_rms_norm() {
    for features in [13, 24, 1033] {
        let build = |graph: &mut Graph| {
            let input = graph.input(numbers(&[3, features])).unwrap();
            let x = layer(graph, input, "Tanh");
            let sum = join(graph, &[input, x], "Add");
            let y = chain(graph, sum, "RmsNorm | Tanh");
            join(graph, &[y, sum], "Mul")
        };
        fuses("RmsNorm", 2, &[(2, &["normalize"])], build);
        check_narrow("RmsNorm", 2, build);
    }
}

#[test]
fn convolution_and_rectifier() {
    // In tiles, element by element, with pixels in fours and singly.
    for (dims, layers) in [
        ([3, 7, 5], "Conv2d(5, 3) | Relu | Conv2d(2, 1)"),
        ([3, 8, 8], "Conv2d(6, 3, padding = 1, bias = false) | Relu6 | Conv2d(2, 1)"),
        ([1, 7, 5], "Conv2d(5, 3) | Relu | Conv2d(2, 1)"),
    ] {
        fuses(layers, 2, &[(2, &["convolution_forward"])], |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            chain(graph, input, layers)
        });
    }
    // In four phases, and element by element.
    for (channels, groups, phases) in [(4, 1, 4), (3, 3, 1)] {
        let entries = vec!["convolution_transposed_forward"; phases];
        fuses("ConvTranspose2d", 2, &[(2, &entries)], |graph| {
            let input = graph.input(numbers(&[3, 5, 4])).unwrap();
            let x = layer(graph, input, &format!("ConvTranspose2d({channels}, 3, stride = 2, groups = {groups})"));
            chain(graph, x, "Relu | Conv2d(2, 1)")
        });
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits() {
    check_narrow("convolution", 2, |graph| {
        let input = graph.input(numbers(&[3, 8, 6])).unwrap();
        chain(graph, input, "Conv2d(5, 3, padding = 1) | Relu")
    });
    for dims in [[3, 7, 6], [2, 64, 66]] {
        check_narrow("batch normalisation", 2, |graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            chain(graph, input, "BatchNorm2d | Relu")
        });
    }
    check_narrow("with a sum", 2, |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        let x = layer(graph, input, "BatchNorm2d");
        let sum = join(graph, &[x, input], "Add");
        layer(graph, sum, "Relu6")
    });
    for (features, after) in [(13, "Relu"), (13, "LayerNorm"), (24, "LayerNorm")] {
        check_narrow(after, 2, |graph| {
            let input = graph.input(numbers(&[3, features])).unwrap();
            let x = layer(graph, input, "Tanh");
            let sum = join(graph, &[x, input], "Add");
            layer(graph, sum, after)
        });
    }
}

#[test]
fn other_readers_keep_operations_apart() {
    fuses("the normalised map is read again", 2, &[], |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        let x = layer(graph, input, "BatchNorm2d");
        let branches = [layer(graph, x, "Relu"), layer(graph, x, "Sigmoid")];
        join(graph, &branches, "Concat")
    });
    fuses("a sum of three, and of a value with itself", 2, &[], |graph| {
        let input = graph.input(numbers(&[5, 13])).unwrap();
        let x = layer(graph, input, "Tanh");
        let sum = join(graph, &[input, x, input], "Add");
        let x = layer(graph, sum, "LayerNorm");
        let sum = join(graph, &[x, x], "Add");
        layer(graph, sum, "LayerNorm")
    });
    // The rectifier cuts off the sum, not the normalised map; its gradient goes to both branches, so it is written.
    fuses("a rectifier of something else in the same place", 2, &[(3, FORWARD), (2, BACKWARD)], |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        let shift = chain(graph, input, "Tanh");
        let x = layer(graph, shift, "BatchNorm2d");
        let sum = join(graph, &[x, input], "Add");
        chain(graph, sum, "Relu | Conv2d(2, 1)")
    });
}

#[test]
fn overlap_keeps_operations_apart() {
    let mut placed = place(3, |graph| {
        let input = graph.input(numbers(&[5, 13])).unwrap();
        let x = layer(graph, input, "Tanh");
        let sum = join(graph, &[input, x], "Add");
        let y = layer(graph, sum, "LayerNorm");
        join(graph, &[y, sum], "Mul")
    });
    assert_eq!(fused(&placed, 3).len(), 1);
    let is_sum = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::Sum(_), .. });
    let sum = placed.program.operations.iter().position(is_sum).unwrap();
    let normalised = placed.program.operations[sum + 1].written(Slot::Output).unwrap();
    let branch = placed.program.operations[sum].read(Slot::Input(0)).unwrap();
    placed.offsets[normalised as usize] = placed.offsets[branch as usize] + 256;
    assert_eq!(fused(&placed, 3), []);
}

#[test]
fn overlap_keeps_gradients_apart() {
    let mut placed = place(3, |graph| {
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        chain(graph, input, "BatchNorm2d | Relu | Conv2d(2, 1, bias = false)")
    });
    assert_eq!(fused(&placed, 3).len(), 2);
    let operations = &placed.program.operations;
    let is_norm = |it: &Operation| matches!(it.action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Backward });
    let last = operations.iter().position(is_norm).unwrap();
    let gradient = operations[last - 1].read(Slot::Gradient).unwrap();
    let weight = operations[last].written(Slot::InputGradient(1)).unwrap();
    placed.offsets[weight as usize] = placed.offsets[gradient as usize];
    assert_eq!(fused(&placed, 3).len(), 1);
}

/// What is behind maxima runs with them, in both passes, where nobody else reads them.
#[test]
fn maxima_and_rectifier() {
    const POOL: &[&str] = &["max_pool_forward"];
    const BACK: &[&str] = &["max_pool_backward"];
    let network = |dims: &'static [u64], layers: &'static str| {
        move |graph: &mut Graph| {
            let input = graph.input(numbers(dims)).unwrap();
            chain(graph, input, layers)
        }
    };
    for pool in ["MaxPool2d(2) | Relu", "MaxPool2d(3, 2, padding = 1) | Relu6"] {
        let text: &str = format!(
            "Conv2d(4, 1, bias = false) | BatchNorm2d | {pool} | Conv2d(9, 3, padding = 1, bias = false) | BatchNorm2d"
        )
        .leak();
        let build = network(&[3, 8, 9], text);
        let found = fused(&place(2, build), 2);
        assert_eq!(found, [(2, POOL.to_vec()), (2, BACK.to_vec())], "{pool}");
        check(pool, 2, build);
    }
    // The gradient of the maxima lies where what the rectifier gave was.
    fuses("in its place", 2, &[(2, POOL)], network(&[3, 7, 9], "Tanh | MaxPool2d(2) | Relu | Silu"));
    fuses("a slope below 0", 2, &[], network(&[3, 7, 9], "Tanh | MaxPool2d(2) | LeakyRelu(0.5) | Silu"));
    fuses("another reader", 2, &[], |graph| {
        let input = graph.input(numbers(&[3, 7, 9])).unwrap();
        let maxima = chain(graph, input, "Tanh | MaxPool2d(2)");
        let rectified = chain(graph, maxima, "Relu | Silu");
        join(graph, &[rectified, maxima], "Mul")
    });
}

#[test]
fn forward_passes_are_fused() {
    for layers in ["BatchNorm2d | Relu", "Tanh | BatchNorm2d(affine = false) | Relu6"] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[3, 7, 5])).unwrap();
        let x = chain(&mut graph, input, layers);
        let x = layer(&mut graph, x, "BatchNorm2d");
        let output = join(&mut graph, &[x, input], "Add");
        let options = Options { training: None };
        let placed = compile(&lower(&graph, &[output], &options).unwrap(), 3);
        let expected: &[(usize, Vec<&str>)] = &[(2, vec!["batch_norm_apply"]), (2, vec!["batch_norm_apply"])];
        assert_eq!(fused(&placed, 3), expected, "{layers}");
        forward(&graph, output, &options, 3, |value| value, 1e-5);
    }
}

/// What makes two outputs of an input.
type Outputs = dyn Fn(&mut Graph, NodeId) -> [NodeId; 2];

/// Outputs that the last operation reads: they are there when it has run, though nothing else does.
#[test]
fn outputs_of_networks_are_written() {
    let batch_norm_and = |graph: &mut Graph, input: NodeId| {
        let first = layer(graph, input, "BatchNorm2d");
        [first, join(graph, &[first, input], "Add")]
    };
    let sum_and = |graph: &mut Graph, input: NodeId| {
        let branch = layer(graph, input, "Conv2d(3, 1)");
        let first = join(graph, &[branch, input], "Add");
        [first, layer(graph, first, "Relu")]
    };
    let behind = |text: &'static str, rectifier: &'static str| {
        move |graph: &mut Graph, input: NodeId| {
            let first = layer(graph, input, text);
            [first, layer(graph, first, rectifier)]
        }
    };
    let networks: [(&str, &Outputs); 6] = [
        ("a normalisation", &behind("BatchNorm2d", "Relu")),
        ("a convolution", &behind("Conv2d(4, 3)", "Relu6")),
        ("a convolution of points", &behind("Conv2d(8, 1)", "Relu")),
        ("maxima", &behind("MaxPool2d(2)", "Relu")),
        ("a normalisation and a sum", &batch_norm_and),
        ("a sum", &sum_and),
    ];
    for (what, build) in networks {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[3, 6, 8])).unwrap();
        let outputs = build(&mut graph, input);
        let program = lower(&graph, &outputs, &Options::default()).unwrap();
        let (batch, optimizer, format) = (2, gradients().1, (Precision::F32, CAPABILITY));
        prepare_programs(&[format], std::slice::from_ref(&program), batch, optimizer);
        let run = Run { batch, optimizer, steps: 1, classes: 5, tolerance: 1e-5, reference: Reference::Cpu };
        compare_programs(format, 0..1, what, [&program, &program], run);
    }
}
