//! Which tensors are stored with their channels innermost.
#![cfg(feature = "lower")]

mod common;

use common::{chain, images, numbers, training};
use gpumem_core::Precision;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::layout::channels_last::channels_last;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{ChannelOrder, Class, Layout, Program, Slot, Tensor};

/// The training step of a chain of layers and its forward pass: each parameter is in one place for both.
fn network(input: &[u64], text: &str, moments: u64) -> [Placed; 2] {
    let mut graph = Graph::default();
    let input = graph.input(numbers(input)).unwrap();
    let output = chain(&mut graph, input, text);
    let train = lower(&graph, &[output], &training(moments)).unwrap();
    let infer = lower(&graph, &[output], &Options::default()).unwrap();
    let parameters: Vec<String> = train.of_class(Class::Parameter).map(|id| train.tensor(id).name.clone()).collect();
    [train, infer].map(|program| {
        let place = |(id, tensor): (usize, &Tensor)| {
            let known = parameters.iter().position(|name| tensor.class == Class::Parameter && *name == tensor.name);
            256 * known.unwrap_or(1000 + id) as u64
        };
        let offsets = program.tensors.iter().enumerate().map(place).collect();
        Placed::new(program, offsets, 2, Precision::Bf16)
    })
}

fn ordered(input: &[u64], text: &str, moments: u64) -> [Placed; 2] {
    let mut programs = network(input, text, moments);
    let [train, infer] = &mut programs;
    channels_last(&mut [train, infer]);
    for placed in &programs {
        let refused = placed.program.operations.iter().find(|operation| !placed.program.takes_layouts(operation));
        assert!(refused.is_none(), "{text}: {refused:?}");
    }
    let order =
        |placed: &Placed, name: &str| placed.program.tensors.iter().find(|it| it.name == name).map(|it| it.layout);
    for id in programs[0].program.of_class(Class::Parameter) {
        let name = &programs[0].program.tensor(id).name;
        assert_eq!(order(&programs[0], name), order(&programs[1], name), "{text}: {name}");
    }
    programs
}

fn is_last(tensor: &Tensor) -> bool {
    tensor.layout.order == ChannelOrder::ChannelsLast
}

/// Names of the parameters that have their channels last.
fn turned(program: &Program) -> Vec<&str> {
    program
        .of_class(Class::Parameter)
        .map(|id| program.tensor(id))
        .filter(|it| is_last(it))
        .map(|it| &*it.name)
        .collect()
}

/// Outputs of operations, in their order: `last` or `first`.
fn outputs(program: &Program) -> Vec<&'static str> {
    let written = program.operations.iter().filter_map(|operation| operation.written(Slot::Output));
    let maps = written.map(|id| program.tensor(id)).filter(|tensor| tensor.shape.as_map().is_some());
    maps.map(|tensor| if is_last(tensor) { "last" } else { "first" }).collect()
}

#[test]
fn maps_between_convolutions_and_their_weights() {
    let text = "Conv2d(8, 3) | BatchNorm2d | Relu | Conv2d(8, 3) | Relu | MaxPool2d(2) | Conv2d(16, 1) | Tanh | Flatten | Linear(4)";
    let [train, infer] = ordered(&[3, 16, 16], text, 1);
    // Linear reads what Tanh writes as a row. Tanh works element by element, so that the last convolution writes it as it is read.
    let expected = ["last", "last", "last", "last", "last", "last", "first", "first"];
    assert_eq!(outputs(&train.program), expected);
    assert_eq!(outputs(&infer.program), expected);
    // The first convolution reads what the host feeds. The weight of the last has one order.
    assert_eq!(turned(&train.program), ["conv2d3.weight"]);
    let input = train.program.of_class(Class::Input).next().unwrap();
    assert!(!is_last(train.program.tensor(input)));
}

/// Gradient and moments of a weight lie as it does: updates work element by element.
#[test]
fn what_belongs_to_a_weight_lies_like_it() {
    let [train, _] = ordered(&[4, 8, 8], "Conv2d(8, 1) | Conv2d(8, 3) | Conv2d(4, 1) | Flatten | Linear(4)", 2);
    let shape = [8, 8, 3, 3];
    let belonging: Vec<&Tensor> = train.program.tensors.iter().filter(|it| it.shape.dims() == shape).collect();
    assert_eq!(belonging.len(), 4, "a weight, its gradient and two moments");
    assert!(belonging.iter().all(|tensor| is_last(tensor)));
}

/// So does a weight that is made of it, which has no place of its own in the forward pass.
#[test]
fn a_weight_lies_like_the_parameter_that_it_is_made_of() {
    let made = "Conv2d(8, 3, standardized = true, gamma = 1.5)";
    let text = format!("Conv2d(8, 1) | {made} | Conv2d(4, 1) | Flatten | Linear(4)");
    let [train, infer] = ordered(&[4, 8, 8], &text, 2);
    assert_eq!((turned(&train.program), turned(&infer.program)), (vec!["conv2d1.weight"], vec!["conv2d1.weight"]));
    // The parameter, its gradient and two moments; the weight and its gradient.
    for (program, count) in [(&train.program, 6), (&infer.program, 2)] {
        let all: Vec<&Tensor> = program.tensors.iter().filter(|it| it.shape.dims() == [8, 8, 3, 3]).collect();
        assert_eq!(all.len(), count, "{program}");
        assert!(all.iter().all(|tensor| is_last(tensor)), "{program}");
    }
    // Lengths of places of a kernel: parts are no filters, and all stays.
    let text = "Conv2d(8, 1) | Conv2d(8, 3, weight_norm = 2) | Conv2d(4, 1) | Flatten | Linear(4)";
    let [train, infer] = ordered(&[4, 8, 8], text, 2);
    for program in [&train.program, &infer.program] {
        assert!(
            program.tensors.iter().filter(|it| it.shape.dims() == [8, 8, 3, 3]).all(|it| !is_last(it)),
            "{program}"
        );
    }
}

/// What the host feeds keeps its order, and `Normalize` writes any: the first convolution then reads what it reads best.
#[test]
fn a_network_of_bytes_has_all_of_its_maps_last() {
    let mut graph = Graph::default();
    let input = graph.input(images(&[3, 16, 16])).unwrap();
    let output = chain(
        &mut graph,
        input,
        "Normalize(0.5, 0.25) | Conv2d(8, 3) | Relu | Conv2d(8, 3) | Tanh | Flatten | Linear(4)",
    );
    let program = lower(&graph, &[output], &training(1)).unwrap();
    let offsets = (0..program.tensors.len() as u64).map(|id| 256 * id).collect();
    let mut placed = Placed::new(program, offsets, 2, Precision::Bf16);
    channels_last(&mut [&mut placed]);
    assert_eq!(outputs(&placed.program)[..4], ["last", "last", "last", "first"]);
    assert_eq!(turned(&placed.program), ["conv2d1.weight"]);
    assert!(!is_last(placed.program.tensor(placed.program.of_class(Class::Input).next().unwrap())));
}

/// Where an element is decides what is drawn for it.
#[test]
fn maps_with_dropout_stay() {
    let [train, _] = ordered(
        &[4, 8, 8],
        "Conv2d(8, 3) | Relu | Conv2d(8, 3) | Dropout(0.5) | Conv2d(8, 3) | Flatten | Linear(4)",
        0,
    );
    // The maps on both sides of the mask stay, and with them the convolutions beside it.
    assert_eq!(outputs(&train.program)[..4], ["last", "last", "first", "first"]);
    assert_eq!(turned(&train.program), [""; 0]);
}

/// A pitch is of the order that it was chosen with. What was ordered once stays as well.
#[test]
fn layouts_that_were_chosen_stay() {
    let text = "Conv2d(8, 3) | Relu | Conv2d(8, 3) | Relu | Conv2d(8, 3) | Flatten | Linear(4)";
    let layouts = |programs: &[Placed; 2]| {
        programs.each_ref().map(|it| it.program.tensors.iter().map(|it| it.layout).collect::<Vec<_>>())
    };
    let again = |mut programs: [Placed; 2]| {
        let before = layouts(&programs);
        let [train, infer] = &mut programs;
        channels_last(&mut [train, infer]);
        assert_eq!(layouts(&programs), before);
    };
    let mut chosen = network(&[4, 8, 8], text, 1);
    let convolution =
        chosen[0].program.operations.iter().find_map(|operation| operation.written(Slot::Output)).unwrap();
    chosen[0].program.tensors[convolution as usize].layout = Layout { order: ChannelOrder::ChannelsLast, pitch: 11 };
    again(chosen);
    again(ordered(&[4, 8, 8], text, 1));
}

#[test]
fn networks_that_gain_nothing_stay() {
    // Without a convolution all of whose maps may be turned, nothing is.
    for text in ["BatchNorm2d | Relu | MaxPool2d(2) | Flatten | Linear(4)", "Conv2d(8, 3) | Relu | Flatten | Linear(4)"]
    {
        let [train, infer] = ordered(&[3, 8, 8], text, 1);
        assert!(train.program.tensors.iter().chain(&infer.program.tensors).all(|tensor| !is_last(tensor)), "{text}");
    }
}

/// What one of the programs cannot do with, none of them has.
#[test]
fn a_weight_has_one_order_in_all_programs() {
    let text = "Conv2d(8, 3) | Relu | Conv2d(8, 3) | Relu | Conv2d(8, 3) | Flatten | Linear(4)";
    let [mut train, mut infer] = network(&[3, 12, 12], text, 1);
    // As if the caller read the map before the second convolution.
    let weight = infer.program.of_class(Class::Parameter).find(|&id| infer.program.tensor(id).name == "conv2d2.weight");
    let reads = |operation: &&gpumem_core::program::Operation| operation.read(Slot::Input(1)) == weight;
    let map = infer.program.operations.iter().find(reads).and_then(|operation| operation.read(Slot::Input(0))).unwrap();
    infer.program.results.push(map);
    channels_last(&mut [&mut train, &mut infer]);
    assert_eq!((turned(&train.program), turned(&infer.program)), (vec![], vec![]));
    // The map after it is turned all the same, and that before the third is its output.
    assert!(train.program.tensors.iter().any(is_last));
}
