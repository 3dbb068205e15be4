//! Products that go to cuBLASLt: which operations run as one, and that the numbers stay those of the CPU backend.

use crate::host::harness::graphs::{again, chain, compile, join, layer, numbers, plan};
use crate::host::product::{self, Memory, rounded};
use crate::host::{CAPABILITY, Products, compare_in, narrow};
use crate::{check, check_trained, gradients};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::place;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Op, Slot};
use gpumem_core::train::optim::{Adam, Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::product::{Auxiliary, Element, Epilogue, Factor, Product, Scratch};
use gpumem_cuda::program_calls::{OperationCalls, steps};
use gpumem_cuda::{Argument, Call};
use std::ops::Range;

const TANH: &str = "Gelu(approximate = \"tanh\")";

fn sequence(dims: &[u64], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, text)
    }
}

/// A training step, or without `training` the forward pass, with its tensors placed.
fn placed(training: Option<Training>, build: impl Fn(&mut Graph) -> NodeId) -> Placed {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    compile(&lower(&graph, &[output], &Options { training }).unwrap(), 3)
}

fn library(placed: &Placed) -> Vec<OperationCalls> {
    Products::Library.steps(placed, 3, (Precision::F32, CAPABILITY), gradients().1)
}

/// Operations of each step that has a product, with the products' epilogues and what else the step calls.
fn summary(steps: &[OperationCalls]) -> Vec<String> {
    let text = |call: &Call| match call {
        Call::Product(product) => product.epilogue.name(),
        Call::Kernel(launch) => launch.kernel.entry,
        Call::Convolution(_) => "convolution",
        Call::Attention(_) => "attention",
        Call::Recurrence(_) => "recurrence",
        Call::Passage(_) => "copy",
        Call::Exchange(_) => "exchange",
    };
    let has_product = |step: &&OperationCalls| step.calls.iter().any(|call| matches!(call, Call::Product(_)));
    let line = |step: &OperationCalls| {
        format!("{} {}", step.count, step.calls.iter().map(text).collect::<Vec<&str>>().join(" "))
    };
    steps.iter().filter(has_product).map(line).collect()
}

fn products(steps: &[OperationCalls]) -> Vec<Product> {
    let calls = steps.iter().flat_map(|step| &step.calls);
    let product = |call: &Call| match call {
        Call::Product(product) => Some(*product),
        Call::Kernel(_)
        | Call::Convolution(_)
        | Call::Attention(_)
        | Call::Recurrence(_)
        | Call::Passage(_)
        | Call::Exchange(_) => None,
    };
    calls.filter_map(product).collect()
}

#[test]
fn an_activation_runs_with_the_product_before_it() {
    let text = format!("Linear(24) | Relu | Linear(16) | {TANH} | Linear(5)");
    let found = summary(&library(&placed(Some(gradients().0), sequence(&[7, 9], &text))));
    assert_eq!(
        found,
        // Backward: each bias gradient with its weight's, and the Gelu's gradient with that of the Linear after it.
        [
            "2 RELU_BIAS",
            "2 GELU_AUX_BIAS",
            "1 BIAS",
            "1 BGRADB",
            "2 DGELU",
            "1 BGRADB",
            "1 DEFAULT",
            "1 BGRADB",
            "1 DEFAULT"
        ]
    );
    let found = summary(&library(&placed(None, sequence(&[7, 9], &text))));
    assert_eq!(found, ["2 RELU_BIAS", "2 GELU_BIAS", "1 BIAS"]);
    let text = format!("Linear(24, bias = false) | Relu | Linear(16, bias = false) | {TANH} | Linear(5, bias = false)");
    let found = summary(&library(&placed(Some(gradients().0), sequence(&[7, 9], &text))));
    assert_eq!(found[..3], ["2 RELU", "2 GELU_AUX", "1 DEFAULT"]);
    assert!(!found.iter().any(|line| line.contains("BGRAD")), "{found:?}");
}

/// The library's GELU is the approximation, and its input needs rows of 8 elements.
#[test]
fn what_the_library_cannot_fuse_runs_by_itself() {
    let none = |found: Vec<String>| assert!(!found.iter().any(|line| line.contains("GELU")), "{found:?}");
    none(summary(&library(&placed(Some(gradients().0), sequence(&[7, 9], "Linear(16) | Gelu | Linear(5)")))));
    none(summary(&library(&placed(None, sequence(&[7, 9], "Linear(16) | Gelu")))));
    let odd = format!("Linear(12) | {TANH} | Linear(5)");
    none(summary(&library(&placed(Some(gradients().0), sequence(&[7, 9], &odd)))));
    // In place there is no auxiliary matrix.
    let found = summary(&library(&placed(None, sequence(&[7, 9], &odd))));
    assert_eq!(found, ["2 GELU_BIAS", "1 BIAS"]);
}

/// Updates that come between a Linear's gradient and the Gelu's run after both.
#[test]
fn a_gelu_gradient_skips_over_updates() {
    let training = Training { update: Update::Fused, moments: 2, ..gradients().0 };
    let text = format!("Linear(16) | {TANH} | Linear(5)");
    let placed = placed(Some(training), sequence(&[7, 9], &text));
    let optimizer = Optimizer::Adam(Adam::DEFAULT);
    let found = summary(&Products::Library.steps(&placed, 3, (Precision::F32, CAPABILITY), optimizer));
    let line = found.iter().find(|line| line.contains("DGELU")).unwrap();
    assert!(line.starts_with("4 DGELU "), "{found:?}");
    assert_eq!(line.split(' ').count(), 4, "the two updates: {line}");
}

/// A value that something else reads too must be written, and is not that of the activation.
#[test]
fn a_value_that_is_needed_elsewhere_is_not_fused_away() {
    let branches = |text: &'static str| {
        move |graph: &mut Graph| {
            let input = graph.input(numbers(&[7, 9])).unwrap();
            let hidden = layer(graph, input, "Linear(16)");
            let active = layer(graph, hidden, text);
            join(graph, &[hidden, active], "Add")
        }
    };
    for training in [None, Some(gradients().0)] {
        let found = summary(&library(&placed(training, branches("Relu"))));
        assert_eq!(found[0], "1 BIAS", "{found:?}");
    }
    // The Gelu's input is kept as the auxiliary matrix, whoever reads it.
    let found = summary(&library(&placed(None, branches(TANH))));
    assert_eq!(found[0], "2 GELU_AUX_BIAS", "{found:?}");
    check("Relu of a value that is added", 3, branches("Relu"));
    check("Gelu of a value that is added", 3, branches(TANH));
    // The Linear's gradient is added to the Add's, and the Gelu's is that of both.
    let beside = |graph: &mut Graph| {
        let input = graph.input(numbers(&[7, 16])).unwrap();
        let active = layer(graph, input, TANH);
        let linear = layer(graph, active, "Linear(16)");
        join(graph, &[active, linear], "Add")
    };
    let steps = library(&placed(Some(gradients().0), beside));
    assert!(products(&steps).iter().any(|product| product.c.is_some()), "a gradient that is added to");
    assert!(!summary(&steps).iter().any(|line| line.contains("DGELU")));
    check("Gelu beside an identity", 3, beside);
}

/// `x + f(x)`, and the like.
fn residual(graph: &mut Graph, dims: &[u64], [before, branch, behind]: [&str; 3], is_first: bool) -> NodeId {
    let input = graph.input(numbers(dims)).unwrap();
    let x = chain(graph, input, before);
    let branch = chain(graph, x, branch);
    let sum = join(graph, &if is_first { [branch, x] } else { [x, branch] }, "Add");
    chain(graph, sum, behind)
}

#[test]
fn a_sum_runs_with_the_product_before_it() {
    for is_first in [true, false] {
        let block = |branch: &'static str| {
            let text = ["Linear(16)", branch, "LayerNorm | Linear(8)"];
            move |graph: &mut Graph| residual(graph, &[7, 9], text, is_first)
        };
        for training in [Some(gradients().0), None] {
            let steps = library(&placed(training, block("LayerNorm | Linear(16)")));
            let found = summary(&steps);
            assert_eq!(found.iter().filter(|&line| line == "2 BIAS").count(), 1, "{found:?}");
            // What the normalisation is given is needed for gradients; without them the sum takes the place of its first branch.
            let sum = products(&steps).into_iter().find(|product| product.c.is_some()).unwrap();
            assert_eq!(sum.c == Some(sum.d), training.is_none() && !is_first);
        }
        check("sum", 3, block("LayerNorm | Linear(16)"));
        check("sum without bias", 3, block("Sigmoid | Linear(16, bias = false)"));
        // Where the product is needed by itself there is a pass for the sum.
        let both = |graph: &mut Graph| {
            let input = graph.input(numbers(&[7, 16])).unwrap();
            let linear = layer(graph, input, "Linear(16)");
            let sum = join(graph, &if is_first { [linear, input] } else { [input, linear] }, "Add");
            join(graph, &[sum, linear], "Mul")
        };
        assert!(!products(&library(&placed(None, both))).iter().any(|product| product.c.is_some()));
        check("a product that is a factor, too", 3, both);
    }
    // In the place of what is multiplied there is no product.
    for (training, freezes) in [(None, false), (Some(Training { input_gradient: false, ..gradients().0 }), true)] {
        let itself = |graph: &mut Graph| {
            let input = graph.input(numbers(&[7, 9])).unwrap();
            let x = layer(graph, input, "Linear(16)");
            let made = layer(graph, x, "Linear(16)");
            if freezes {
                graph.freeze(graph.nodes[made].row);
            }
            join(graph, &[x, made], "Add")
        };
        let placed = placed(training, itself);
        let sum = placed.program.operations.iter().find(|it| matches!(it.forward(), Some(Op::Sum(_)))).unwrap();
        assert_eq!(sum.read(Slot::Input(0)), sum.written(Slot::Output), "in place");
        let is_in_place = |product: &Product| [product.a.tensor, product.b.tensor].contains(&product.d);
        assert!(!products(&library(&placed)).iter().any(is_in_place));
        check_trained("in the place of what is multiplied", 3, &[Precision::F32], itself);
    }
    // Of a batch's sum with what all samples share there is a pass as well.
    let shared = |graph: &mut Graph| {
        let input = graph.input(numbers(&[7, 9])).unwrap();
        chain(graph, input, "Linear(16) | PositionEmbedding(7)")
    };
    assert!(!products(&library(&placed(None, shared))).iter().any(|product| product.c.is_some()));
    // So is one with itself.
    let doubled = |graph: &mut Graph| {
        let input = graph.input(numbers(&[7, 9])).unwrap();
        let linear = layer(graph, input, "Linear(16)");
        join(graph, &[linear, linear], "Add")
    };
    assert!(!products(&library(&placed(None, doubled))).iter().any(|product| product.c.is_some()));
    check("a product beside itself", 3, doubled);
}

#[test]
fn fused_products_give_what_the_operations_give() {
    for (dims, text) in [
        (&[9][..], format!("Linear(24) | Relu | Linear(16) | {TANH} | Linear(5)")),
        (&[7, 9], format!("Linear(24) | Relu | Linear(16) | {TANH} | Linear(5)")),
        (&[7, 9], format!("Linear(12) | {TANH} | Linear(10, bias = false) | Relu | Linear(3)")),
        (&[7, 16], format!("{TANH} | Linear(8, bias = false) | {TANH} | Linear(8)")),
        (&[7, 9], "Linear(16) | Gelu | Linear(5)".into()),
    ] {
        check(&text, 3, sequence(dims, &text));
    }
}

/// Short chains: in longer ones the rounding of every operation adds up. A loss of squares, for one whose terms cancel is as
/// wrong as its largest terms.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn fused_products_of_16_bits() {
    let (training, optimizer) = gradients();
    let training = Training { loss: &[Term::MSE], ..training };
    let sum = "a sum".to_string();
    for text in ["Linear(24) | Relu".to_string(), format!("Linear(16) | {TANH}"), format!("{TANH} | Linear(8)"), sum] {
        for precision in [Precision::Bf16, Precision::F16] {
            let mut graph = Graph::default();
            let output = match &*text {
                "a sum" => residual(&mut graph, &[7, 16], ["Tanh", "Linear(16)", "Linear(8)"], false),
                text => sequence(&[7, 16], text)(&mut graph),
            };
            compare_in((precision, CAPABILITY), 0..1, (&text, &graph, output, training, 3, optimizer), 1, 5, 1e-2);
        }
    }
}

/// With gradients that are added up: the second use of a layer adds to what the first gave.
#[test]
fn fused_products_of_a_layer_that_is_used_twice() {
    check("twice", 3, |graph| {
        let input = graph.input(numbers(&[7, 16])).unwrap();
        let first = layer(graph, input, "Linear(16)");
        let active = layer(graph, first, TANH);
        let second = again(graph, active, "Linear(16)", 0);
        let relu = layer(graph, second, "Relu");
        join(graph, &[relu, active], "Add")
    });
}

/// Steps with updates in between, with every gradient at the end, and with scratch memory to fuse around.
#[test]
fn training_steps_through_the_library() {
    let mut graph = Graph::default();
    let output = sequence(&[5, 24], &format!("Linear(512) | {TANH} | Linear(512) | Relu | Linear(6)"))(&mut graph);
    for update in [Update::Fused, Update::Separate] {
        let training = Training {
            loss: &[Term::CROSS_ENTROPY],
            moments: 1,
            update,
            skips_overflow: false,
            input_gradient: false,
            descent: gpumem_core::train::Descent::PLAIN,
        };
        // Adam divides by the gradient's size and would make much of its last bits.
        let optimizer = Optimizer::Sgd(Sgd { lr: 1e-2, momentum: 0.9, ..Sgd::DEFAULT });
        let case = ("training", &graph, output, training, 3, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..1, case, 3, 6, 2e-5);
    }
}

/// What an operation fused with the next writes may lie in its workspace: it runs without one then.
#[test]
fn a_workspace_gives_way_to_a_fused_result() {
    let mut placed = placed(None, sequence(&[7, 512], &format!("Linear(16) | {TANH}")));
    let with = products(&library(&placed))[0];
    let operation = &placed.program.operations[0];
    let workspace = operation.written(Slot::Workspace).unwrap();
    let bytes = placed.bytes[workspace as usize];
    assert_eq!((with.workspace, with.epilogue.name()), (Some(Scratch { tensor: workspace, bytes }), "GELU_BIAS"));
    // A result of its own, where the workspace is.
    let (old, new) = (with.d, placed.program.tensors.len() as Argument);
    let tensor = placed.program.tensor(old).clone();
    placed.program.tensors.push(tensor);
    placed.offsets.push(placed.offsets[workspace as usize]);
    placed.bytes.push(placed.bytes[old as usize]);
    placed.masters.push(None);
    placed.program.operations[1].writes[0].tensor = new;
    placed.program.results = vec![new];
    let without = products(&library(&placed))[0];
    assert_eq!((without.workspace, without.d, without.epilogue.name()), (None, new, "GELU_BIAS"));
    // Where the input is, it cannot lie.
    placed.offsets[new as usize] = placed.offsets[placed.program.operations[0].read(Slot::Input(0)).unwrap() as usize];
    assert_eq!(summary(&library(&placed))[0], "1 BIAS");
}

/// The workspace is the plan's, whatever it was capped to; one of no bytes is none.
#[test]
fn products_get_the_workspace_of_the_plan() {
    let mut placed = placed(None, sequence(&[7, 512], "Linear(16)"));
    let workspace = placed.program.operations[0].written(Slot::Workspace).unwrap();
    for bytes in [1024, 0] {
        placed.bytes[workspace as usize] = bytes;
        let expected = (bytes > 0).then_some(Scratch { tensor: workspace, bytes });
        assert_eq!(products(&library(&placed))[0].workspace, expected);
    }
}

#[test]
fn settings_reach_the_products() {
    let placed = placed(None, sequence(&[7, 9], "Linear(16)"));
    let optimizer = gradients().1;
    let of = |precision, tf32, deterministic| {
        let setting = LaunchContext {
            rank: 0,
            batch: 3,
            precision,
            optimizer,
            capability: CAPABILITY,
            multiprocessors: 132,
            tf32,
            deterministic,
            library: true,
            cudnn: false,
            operations: &Operations::NONE,
        };
        let product = products(&steps(&placed, setting).unwrap())[0];
        (product.element, product.tf32, product.deterministic)
    };
    assert_eq!(of(Precision::F32, false, true), (Element::F32, false, true));
    assert_eq!(of(Precision::F32, true, false), (Element::F32, true, false));
    // TensorFloat-32 is of no use to 16-bit factors.
    assert_eq!(of(Precision::Bf16, true, false), (Element::Bf16, false, false));
    assert_eq!(of(Precision::F16, false, false), (Element::F16, false, false));
}

/// Tensors apart from each other.
struct Tensors(Vec<Vec<u8>>);

impl Tensors {
    fn new(tensors: &[&[f32]]) -> Tensors {
        Tensors(tensors.iter().map(|values| values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect())
    }

    fn floats(&self, tensor: usize) -> Vec<f32> {
        self.0[tensor].chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

impl Memory for Tensors {
    fn bytes(&mut self, tensor: Argument) -> &mut [u8] {
        &mut self.0[tensor as usize]
    }

    fn range(&self, tensor: Argument) -> Range<u64> {
        let start = u64::from(tensor) << 32;
        start..start + self.0[tensor as usize].len() as u64
    }
}

/// The reference itself, on numbers that were worked out by hand: A = [1 2; 3 4; 5 6] of three rows, B = [1 0; 1 2].
#[test]
fn the_reference_follows_the_documentation() {
    // Column after column: A as it is, then B, then D with a gap of one element below each column.
    let a = [1.0, 3.0, 5.0, 2.0, 4.0, 6.0];
    let b = [1.0, 1.0, 0.0, 2.0];
    let nan = f32::NAN;
    let product = Product {
        m: 3,
        n: 2,
        ldd: 4,
        ..Product::row_major([2, 3, 2], Factor::plain(1), Factor::plain(0), 2, Element::F32)
    };
    let run = |epilogue, vector: &[f32]| {
        let mut memory = Tensors::new(&[&a, &b, &[nan; 8], vector, &[0.0; 16]]);
        product::run(&Product { epilogue, ..product }, &mut memory);
        let d = memory.floats(2);
        assert!(d[3].is_nan() && d[7].is_nan(), "the gaps stay");
        ([d[0], d[1], d[2], d[4], d[5], d[6]], memory.floats(3), memory.floats(4))
    };
    // A B = [3 4; 7 8; 11 12].
    assert_eq!(run(Epilogue::None, &[0.0]).0, [3.0, 7.0, 11.0, 4.0, 8.0, 12.0]);
    assert_eq!(run(Epilogue::Bias(3), &[10.0, 20.0, 30.0]).0, [13.0, 27.0, 41.0, 14.0, 28.0, 42.0]);
    assert_eq!(run(Epilogue::Relu { bias: Some(3) }, &[-4.0, 0.0, 0.0]).0, [0.0, 7.0, 11.0, 0.0, 8.0, 12.0]);
    assert_eq!(run(Epilogue::BiasGradientA(3), &[nan; 3]).1, [3.0, 7.0, 11.0], "rows of A");
    assert_eq!(run(Epilogue::BiasGradientB(3), &[nan; 2]).1, [2.0, 2.0], "columns of B");
    let matrix = Auxiliary { tensor: 4, ld: 8 };
    let (d, _, input) = run(Epilogue::Gelu { bias: Some(3), kept: Some(matrix) }, &[-3.0, -8.0, 0.0]);
    assert_eq!((&input[..3], &input[8..11]), (&[0.0, -1.0, 11.0][..], &[1.0, 0.0, 12.0][..]));
    // gelu(1) = 0.841192, gelu(-1) = -0.158808: PyTorch's, with approximate = "tanh".
    assert!((d[3] - 0.841_192).abs() < 1e-6 && (d[1] + 0.158_808).abs() < 1e-6 && d[0] == 0.0, "{d:?}");
    // The derivative of GELU at 0 is 0.5.
    let gradient = Epilogue::GeluGradient { input: matrix, bias_gradient: Some(3) };
    let (d, sums, _) = run(gradient, &[nan; 3]);
    assert_eq!((d, &sums[..]), ([1.5, 3.5, 5.5, 2.0, 4.0, 6.0], &[3.5, 7.5, 11.5][..]));
}

/// Two products that share B = [1 0; 1 2] and add to what is there: A = [1 2; 3 4], and five elements behind it [5 6; 7 8].
#[test]
fn the_reference_counts_in_distances() {
    let a = [1.0, 3.0, 2.0, 4.0, f32::NAN, 5.0, 7.0, 6.0, 8.0];
    let mut memory = Tensors::new(&[&a, &[1.0, 1.0, 0.0, 2.0], &[100.0; 9]]);
    let product = Product::row_major([2, 2, 2], Factor::plain(1), Factor::plain(0), 2, Element::F32);
    let product = Product { c: Some(2), ..product }.times(2, [0, 5, 5]);
    product::run(&product, &mut memory);
    assert_eq!(memory.floats(2), [103.0, 107.0, 104.0, 108.0, 100.0, 111.0, 115.0, 112.0, 116.0]);
    assert_eq!(memory.floats(0)[5..], a[5..]);
}

#[test]
#[should_panic(expected = "results overlap")]
fn results_of_several_products_that_overlap_are_caught() {
    let product =
        Product::row_major([2, 2, 1], Factor::plain(0), Factor::plain(1), 2, Element::F32).times(2, [2, 0, 3]);
    product::run(&product, &mut Tensors::new(&[&[1.0; 4], &[1.0; 2], &[0.0; 8]]));
}

#[test]
#[should_panic(expected = "overlap")]
fn a_result_that_overwrites_a_factor_is_caught() {
    let product = Product::row_major([1, 1, 1], Factor::plain(0), Factor::plain(1), 1, Element::F32);
    product::run(&product, &mut Tensors::new(&[&[1.0], &[1.0]]));
}

#[test]
#[should_panic(expected = "auxiliary matrix")]
fn an_auxiliary_matrix_with_odd_columns_is_caught() {
    let mut product = Product::row_major([1, 1, 1], Factor::plain(0), Factor::plain(1), 2, Element::F32);
    product.epilogue = Epilogue::Gelu { bias: None, kept: Some(Auxiliary { tensor: 3, ld: 1 }) };
    product::run(&product, &mut Tensors::new(&[&[1.0], &[1.0], &[0.0], &[0.0]]));
}

/// The reference's rounding against the test harness's, which looks for the nearest number.
#[test]
fn sixteen_bits_are_rounded_to_nearest() {
    let numbers =
        [1.0, 0.1, 1.000_976_6, 1.000_488_3, 2.001_464_8, 65504.0, 3.1e-5, 6.1e-5, 5.96e-8, 8e-8, 1e-9, 0.333, 1023.7];
    for x in numbers.into_iter().flat_map(|x: f32| [x, -x]) {
        for (element, precision) in [(Element::F16, Precision::F16), (Element::Bf16, Precision::Bf16)] {
            assert_eq!(rounded(element, x), narrow(precision, x.to_bits()), "{x} as {element:?}");
        }
    }
    assert_eq!([rounded(Element::F16, 0.0), rounded(Element::F16, -0.0)], [0, 0x8000]);
    assert_eq!(rounded(Element::F16, 1e6), 0x7c00);
    assert_eq!(rounded(Element::F16, f32::NAN), 0x7e00);
}

/// Products of 16-bit tensors that a plan for 16 bits placed: half the bytes.
#[test]
fn sixteen_bit_products_read_no_more_than_there_is() {
    let mut graph = Graph::default();
    let output = sequence(&[7, 9], "Linear(16) | Relu")(&mut graph);
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let placed = place(&plan(&program, 3, Precision::Bf16)).unwrap();
    for product in products(&Products::Library.steps(&placed, 3, (Precision::Bf16, CAPABILITY), gradients().1)) {
        let bytes = |tensor: Argument| placed.bytes[tensor as usize];
        assert_eq!(bytes(product.d), product.m * product.n * product.element.bytes(), "{product}");
        assert_eq!(bytes(product.a.tensor), product.m * product.k * product.element.bytes(), "{product}");
        assert_eq!(bytes(product.b.tensor), product.n * product.k * product.element.bytes(), "{product}");
    }
}
