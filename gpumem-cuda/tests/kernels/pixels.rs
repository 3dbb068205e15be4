//! Convolutions of one pixel that are products of cuBLASLt's: which ones, what they are called with, and that the numbers stay those
//! of the CPU backend.

use crate::host::harness::graphs::{again, chain, compile, join, layer, numbers};
use crate::host::{CAPABILITY, Products};
use crate::{check, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::memory::place::Placed;
use gpumem_core::operation::Operations;
use gpumem_core::program::Slot;
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::product::{Batch, Element, Epilogue, Factor, Product, Scratch};
use gpumem_cuda::program_calls::{OperationCalls, steps, steps_where};
use gpumem_cuda::traffic::launches;
use gpumem_cuda::{Argument, Call};

fn sequence(dims: &[u64], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, text)
    }
}

/// A training step, or without `training` the forward pass, with its tensors placed.
fn placed(training: Option<Training>, batch: u64, build: impl Fn(&mut Graph) -> NodeId) -> Placed {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    compile(&lower(&graph, &[output], &Options { training }).unwrap(), batch)
}

fn without_cudnn(placed: &Placed, batch: u64) -> Vec<OperationCalls> {
    Products::WithoutCudnn.steps(placed, batch, (Precision::F32, CAPABILITY), gradients().1)
}

fn setting(tf32: bool, deterministic: bool) -> LaunchContext {
    LaunchContext {
        rank: 0,
        batch: 3,
        precision: Precision::F32,
        optimizer: gradients().1,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32,
        deterministic,
        library: true,
        cudnn: false,
        operations: &Operations::NONE,
    }
}

/// Operations of each step, and what it calls.
fn summary(steps: &[OperationCalls]) -> Vec<String> {
    let text = |call: &Call| match call {
        Call::Product(product) => {
            let added = if product.c.is_some() { "+added" } else { "" };
            let times = product.batch.map_or(1, |batch| batch.count);
            format!("{times}x{}{added}", product.epilogue.name())
        }
        Call::Kernel(launch) => launch.kernel.entry.to_string(),
        Call::Convolution(_) => "convolution".into(),
        Call::Attention(_) => "attention".into(),
        Call::Recurrence(_) => "recurrence".into(),
        Call::Passage(_) => "copy".into(),
        Call::Exchange(_) => "exchange".into(),
    };
    let line =
        |step: &OperationCalls| format!("{} {}", step.count, step.calls.iter().map(text).collect::<Vec<_>>().join(" "));
    steps.iter().map(line).collect()
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

const FILTER: &str = "convolution_backward_filter";

#[test]
fn convolutions_of_one_pixel_are_products() {
    let text = "Conv2d(6, 1, bias = false) | Relu | Conv2d(4, 1, bias = false)";
    let build = sequence(&[5, 3, 7], text);
    let training = summary(&without_cudnn(&placed(Some(gradients().0), 3, &build), 3));
    assert_eq!(training[..2], ["2 3xRELU", "1 3xDEFAULT"]);
    assert_eq!(training.iter().filter(|line| line.contains("3xDEFAULT")).count(), 3, "{training:?}");
    assert_eq!(training.iter().filter(|line| line.contains(FILTER)).count(), 2, "{training:?}");
    assert_eq!(summary(&without_cudnn(&placed(None, 3, &build), 3)), ["2 3xRELU", "1 3xDEFAULT"]);
    // Of one sample, the gradient of the weight is a product, too.
    let one = summary(&without_cudnn(&placed(Some(gradients().0), 1, &build), 1));
    assert_eq!(one.iter().filter(|line| line.contains("1xDEFAULT")).count(), 5, "{one:?}");
    assert!(!one.iter().any(|line| line.contains("convolution")), "{one:?}");
    // Never more launches than by the own kernels.
    for batch in [1, 3] {
        let placed = placed(Some(gradients().0), batch, &build);
        let own = Products::Own.steps(&placed, batch, (Precision::F32, CAPABILITY), gradients().1);
        let count = |steps: &[OperationCalls]| steps.iter().map(|step| step.calls.len()).sum::<usize>();
        assert!(count(&without_cudnn(&placed, batch)) <= count(&own));
    }
}

/// The library adds a bias along the pixels, has no distances inside a channel, and its products have one weight.
#[test]
fn other_convolutions_are_none() {
    for text in [
        "Conv2d(6, 1)",
        "Conv2d(6, 1, stride = 2, bias = false)",
        "Conv2d(6, 1, padding = 1, bias = false)",
        "Conv2d(6, 1, groups = 2, bias = false)",
        "Conv2d(6, 3, bias = false)",
        "ConvTranspose2d(6, 1, bias = false)",
    ] {
        let placed = placed(None, 3, sequence(&[4, 5, 5], text));
        assert_eq!(products(&without_cudnn(&placed, 3)), [], "{text}");
    }
    // The gradient of the input has no bias.
    let biased = placed(Some(gradients().0), 3, sequence(&[4, 5, 5], "Conv2d(6, 1)"));
    assert_eq!(products(&without_cudnn(&biased, 3)).len(), 1);
    // cuDNN keeps what it has.
    let plain = placed(Some(gradients().0), 3, sequence(&[4, 5, 5], "Conv2d(6, 1, bias = false)"));
    let library = Products::Library.steps(&plain, 3, (Precision::F32, CAPABILITY), gradients().1);
    assert_eq!(products(&library), []);
}

/// Without an algorithm for several products, or for a Relu with them, another way is taken.
#[test]
fn a_library_without_an_algorithm_leaves_them_to_others() {
    let placed = placed(Some(gradients().0), 3, sequence(&[5, 3, 7], "Conv2d(6, 1, bias = false) | Relu"));
    let refusing = |refused: fn(&Product) -> bool| {
        let can = |call: &Call| Ok(!matches!(call, Call::Product(product) if refused(product)));
        summary(&steps_where(&placed, setting(false, false), &mut { can }).unwrap())
    };
    assert_eq!(refusing(|product| product.epilogue != Epilogue::None)[..2], ["1 3xDEFAULT", "1 pointwise"]);
    let none = refusing(|product| product.batch.is_some());
    assert_eq!(none[0], "2 convolution_forward");
    assert!(!none.iter().any(|line| line.contains("3x")), "{none:?}");
}

/// Sizes, distances, workspace and settings are those of the layer.
#[test]
fn a_call_says_what_the_layer_says() {
    let placed = placed(Some(gradients().0), 3, sequence(&[5, 3, 7], "Conv2d(6, 1, bias = false)"));
    let found = products(&steps(&placed, setting(true, true)).unwrap());
    let [forward, data] = found[..] else { panic!("{found:?}") };
    let operation = |slot| placed.program.operations.iter().find(|it| it.written(slot).is_some()).unwrap();
    let scratch = |slot| {
        let tensor: Argument = operation(slot).written(Slot::Workspace).unwrap();
        Some(Scratch { tensor, bytes: placed.bytes[tensor as usize] })
    };
    let (x, w) = (operation(Slot::Output).read(Slot::Input(0)).unwrap(), operation(Slot::Output).read(Slot::Input(1)));
    let (y, w) = (operation(Slot::Output).written(Slot::Output).unwrap(), w.unwrap());
    // y [6, 21] = W [6, 5] x [5, 21].
    let expected = Product {
        tf32: true,
        deterministic: true,
        workspace: scratch(Slot::Output),
        batch: Some(Batch { count: 3, a: 5 * 21, b: 0, d: 6 * 21 }),
        ..Product::row_major([6, 21, 5], Factor::plain(w), Factor::plain(x), y, Element::F32)
    };
    assert_eq!(forward, expected);
    assert_eq!((data.m, data.n, data.k, data.a.ld, data.b.ld, data.ldd), (21, 5, 6, 21, 5, 21));
    assert_eq!((data.a.transposed, data.b.transposed), (false, true));
    assert_eq!(data.batch, Some(Batch { count: 3, a: 6 * 21, b: 0, d: 5 * 21 }));
    let found = products(&steps(&placed, setting(false, false)).unwrap());
    assert!(found.iter().all(|product| !product.tf32 && !product.deterministic));
    // What it counts as is that of all samples.
    let all = launches(&placed, setting(false, false)).unwrap();
    let of_products = all.iter().filter(|launch| launch.kind() == "product").map(|launch| launch.flops);
    assert_eq!(of_products.collect::<Vec<_>>(), [2 * 3 * 6 * 21 * 5; 2]);
}

/// The gradients of an input that two convolutions read, of a weight that is used twice, and Relus in and out of place.
#[test]
fn numbers_are_those_of_the_cpu() {
    for batch in [1, 3] {
        for dims in [[5, 3, 7], [8, 4, 4], [1, 1, 1], [16, 1, 9]] {
            let text = "Conv2d(6, 1, bias = false) | Relu(inplace = true) | Conv2d(4, 1) | Relu | Conv2d(3, 1, bias = false) | Tanh";
            check(&format!("{batch} of {dims:?}"), batch, sequence(&dims, text));
        }
        let branches = |graph: &mut Graph| {
            let input = graph.input(numbers(&[5, 3, 7])).unwrap();
            let x = layer(graph, input, "Tanh");
            let left = layer(graph, x, "Conv2d(6, 1, bias = false)");
            let right = chain(graph, x, "Conv2d(6, 1, bias = false) | Relu");
            join(graph, &[left, right], "Add")
        };
        let steps = without_cudnn(&placed(Some(gradients().0), batch, branches), batch);
        assert!(summary(&steps).iter().any(|line| line.contains("+added")), "{:?}", summary(&steps));
        check("two convolutions of one value", batch, branches);
        check("a weight that is used twice", batch, |graph| {
            let input = graph.input(numbers(&[6, 3, 7])).unwrap();
            let x = layer(graph, input, "Conv2d(6, 1, bias = false)");
            let x = layer(graph, x, "Tanh");
            again(graph, x, "Conv2d(6, 1, bias = false)", 0)
        });
    }
}

/// What a Relu writes may lie in the workspace of the convolution: it runs without one then.
#[test]
fn a_workspace_gives_way_to_a_fused_result() {
    let mut placed = placed(None, 3, sequence(&[5, 3, 7], "Conv2d(6, 1, bias = false) | Relu"));
    let found = products(&without_cudnn(&placed, 3))[0];
    let workspace = found.workspace.unwrap().tensor;
    assert_eq!(found.epilogue, Epilogue::Relu { bias: None });
    // A result of its own, where the workspace is.
    let (old, new) = (found.d, placed.program.tensors.len() as Argument);
    let tensor = placed.program.tensor(old).clone();
    placed.program.tensors.push(tensor);
    placed.offsets.push(placed.offsets[workspace as usize]);
    placed.bytes.push(placed.bytes[old as usize]);
    placed.masters.push(None);
    placed.program.operations[1].writes[0].tensor = new;
    placed.program.results = vec![new];
    let without = products(&without_cudnn(&placed, 3))[0];
    assert_eq!((without.workspace, without.d, without.epilogue), (None, new, found.epilogue));
    // Where the input is, it cannot lie.
    placed.offsets[new as usize] = placed.offsets[placed.program.operations[0].read(Slot::Input(0)).unwrap() as usize];
    assert_eq!(summary(&without_cudnn(&placed, 3)), ["1 3xDEFAULT", "1 pointwise"]);
}
