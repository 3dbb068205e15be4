//! Recurrent layers, step after step.

use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::host::{CAPABILITY, Products, kernels_in, steps_of};
use crate::{check, check_formats, check_products, gradients};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::{Slot, TensorId};
use gpumem_cuda::Call;
use gpumem_cuda::launch::{place, second_half};
use gpumem_cuda::program_calls::steps_where;

/// A chain of layers on a sequence.
fn along(dims: [u64; 2], layers: &str) -> impl Fn(&mut Graph) -> NodeId + '_ {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        chain(graph, input, layers)
    }
}

const CELLS: [&str; 4] = ["Lstm(7", "Gru(7", "Rnn(7", "Rnn(7, nonlinearity = \"relu\""];

#[test]
fn recurrent_layers() {
    for layer in CELLS {
        check(layer, 3, along([4, 5], &format!("{layer})")));
        check(layer, 2, along([3, 5], &format!("{layer}, bidirectional = true)")));
    }
}

#[test]
fn recurrent_layers_in_16_bits() {
    for layer in CELLS {
        check_products(layer, 2, along([3, 5], &format!("{layer}, bidirectional = true)")));
    }
}

/// The own kernels in the memory that is planned for cuDNN: behind them is another product.
#[test]
fn recurrent_layers_in_the_memory_of_cudnn() {
    for layer in CELLS {
        check(layer, 3, along([4, 5], &format!("{layer}, cudnn = true)")));
        check(layer, 3, along([4, 5], &format!("{layer}, bidirectional = true, cudnn = true)")));
    }
    check("projections", 3, along([4, 5], "Lstm(7, proj_size = 3, cudnn = true)"));
    let both = "Lstm(9, layers = 2, bidirectional = true, bias = false, proj_size = 2, cudnn = true)";
    check("projections of both directions", 2, along([3, 5], both));
    check("two layers without biases", 2, along([3, 5], "Lstm(6, layers = 2, bias = false, cudnn = true)"));
    check_products("in 16 bits", 2, along([3, 5], "Gru(7, cudnn = true)"));
    check_products("both in 16 bits", 2, along([3, 5], "Gru(7, bidirectional = true, cudnn = true)"));
    check_products("a projection", 2, along([3, 5], "Lstm(7, bidirectional = true, proj_size = 3, cudnn = true)"));
    // Gradients of parameters, and of what arrives, are added to others.
    for text in ["Lstm(5, cudnn = true)", "Gru(5, cudnn = true)", "Lstm(7, proj_size = 5, cudnn = true)"] {
        check(text, 2, |graph| {
            let input = graph.input(numbers(&[3, 5])).unwrap();
            let once = layer(graph, input, text);
            let twice = again(graph, once, text, 0);
            join(graph, &[once, twice], "Add")
        });
    }
}

/// Where the second direction's gates are: in the other half of what would be cuDNN's reserve, at a multiple of 256 bytes.
#[test]
fn gates_of_both_directions_share_a_tensor() {
    let mut graph = Graph::default();
    let output = along([4, 5], "Rnn(7, bidirectional = true, cudnn = true)")(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let mut placed = crate::host::harness::compile(&program, 2);
    let reserve = placed.program.operations.iter().find_map(|it| it.written(Slot::Saved(0))).unwrap();
    let [half, other] = [reserve, placed.program.tensors.len() as TensorId].map(|id| second_half(&placed, id));
    let (whole, bytes) = (placed.offsets[reserve as usize], placed.bytes[reserve as usize]);
    let (offset, rest) = place(&placed, half).unwrap();
    assert!((offset - whole).is_multiple_of(256) && offset - whole >= bytes / 2, "{offset} {whole} {bytes}");
    assert_eq!(offset + rest, whole + bytes);
    assert_eq!(place(&placed, other).unwrap_err(), Error::Damaged("an argument is no tensor"));
    // Each half is given to as many launches.
    let steps = steps_of(&placed, 2, Precision::F32, optimizer);
    let given = |argument| {
        let of_half = |call: &&Call| matches!(call, Call::Kernel(it) if it.arguments.contains(&Some(argument)));
        steps.iter().flat_map(|step| &step.calls).filter(of_half).count()
    };
    assert!(given(reserve) > 4);
    assert_eq!(given(half), given(reserve));
    // A tensor that ends before the gates do.
    let gates = 2 * 4 * 7 * 4;
    placed.bytes[reserve as usize] = 256 + gates - 1;
    let setting = Products::Own.setting(2, (Precision::F32, CAPABILITY), optimizer);
    let error = steps_where(&placed, setting, &mut |_: &Call| Ok(true)).unwrap_err();
    assert_eq!(error, Error::Damaged("a recurrence has no room for its gates"));
    placed.bytes[reserve as usize] = 1;
    assert_eq!(place(&placed, half).unwrap_err(), Error::Damaged("a tensor is too small for a second half"));
}

#[test]
fn several_layers_and_tiles() {
    // More terms than are worked on at once, more samples than a block has, and parts of all.
    check("a wide LSTM", 17, along([3, 5], "Lstm(70, layers = 2)"));
    check("a wide GRU", 35, along([2, 5], "Gru(66)"));
}

/// Outputs that are a part of a block's, and more of them than terms are worked on at once.
#[test]
fn projections() {
    check("a projection", 3, along([4, 5], "Lstm(7, proj_size = 3)"));
    check(
        "both directions",
        2,
        along([3, 5], "Lstm(9, layers = 2, bidirectional = true, bias = false, proj_size = 2)"),
    );
    check("wide", 17, along([2, 5], "Lstm(75, proj_size = 67)"));
    check_products("in 16 bits", 2, along([3, 5], "Lstm(7, bidirectional = true, proj_size = 3)"));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn recurrent_layers_of_further_shapes() {
    for layer in CELLS {
        let options = ["bias = false", "bias = false, bidirectional = true", "layers = 3, bidirectional = true"];
        for option in options {
            check(layer, 2, along([4, 3], &format!("{layer}, {option})")));
        }
        check(layer, 3, along([1, 4], &format!("{layer}, bidirectional = true)")));
        // What bf16 keeps of a gate near 1 is too little for 1e-2 where there are more steps.
        let ways = [((Precision::F16, CAPABILITY), 0..3), ((Precision::F16, (7, 5)), 0..1)];
        check_formats(layer, &ways, 3, along([4, 5], &format!("{layer})")));
        check_formats(layer, &ways, 2, along([4, 5], &format!("{layer}, layers = 2, bias = false)")));
    }
    // Two layers of it are where bf16 is too coarse, too.
    let ways = [((Precision::F16, CAPABILITY), 0..3), ((Precision::F16, (7, 5)), 0..1)];
    check_formats("projections", &ways, 2, along([3, 5], "Lstm(7, layers = 2, bidirectional = true, proj_size = 3)"));
    check("one unit", 1, along([5, 1], "Lstm(1)"));
    check("one output of many units", 33, along([1, 4], "Lstm(66, proj_size = 1, bidirectional = true)"));
    check("more samples", 33, along([3, 4], "Rnn(65, bidirectional = true)"));
}

/// Masks of one layer are draws of their own.
#[test]
fn dropout_between_layers() {
    check("masks", 2, along([3, 5], "Lstm(6, layers = 3, dropout = 0.4)"));
    check("masks of a GRU", 2, along([3, 5], "Gru(6, layers = 3, dropout = 0.4) | Tanh"));
}

/// The same parameters twice: gradients are added to gradients.
#[test]
fn recurrent_layers_add_gradients() {
    for text in ["Lstm(5)", "Lstm(6, proj_size = 5)", "Gru(5)", "Rnn(5)"] {
        check(text, 2, |graph| {
            let input = graph.input(numbers(&[3, 5])).unwrap();
            let once = layer(graph, input, text);
            again(graph, once, text, 0)
        });
    }
}

/// Launches of a step of the sequence are of one kernel, which is compiled once.
#[test]
fn a_launch_for_each_step() {
    let mut graph = Graph::default();
    let output = along([6, 4], "Gru(5, bidirectional = true)")(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let kernels = kernels_in(&crate::host::harness::compile(&program, 2), 2, Precision::F32, optimizer);
    for entry in ["recurrence_forward", "recurrence_backward"] {
        let of_steps: Vec<_> = kernels.iter().filter(|kernel| kernel.entry == entry).collect();
        assert_eq!(of_steps.len(), 6, "{entry}");
        assert!(of_steps.iter().all(|kernel| *kernel == of_steps[0]), "{entry}");
    }
}
