//! Random networks: lifetimes, in-place operations and accumulation must not change what is computed.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so a lifetime that is too short shows. The
//! same network with fused and with separate updates has two different plans and must end in the same bits.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::Training;
use gpumem_core::optim::{Optimizer, Sgd};
use gpumem_core::program::{Class, Measure};
use harness::Loaded;
use harness::graphs::{chain, join, layer, numbers};
use proptest::prelude::*;

const SHAPE_KEEPING: [&str; 12] = [
    "Conv2d(3, 3, padding = 1)",
    "Conv2d(3, 1)",
    "BatchNorm2d",
    "Relu",
    "Relu6",
    "LeakyRelu(0.1)",
    "Tanh",
    "Sigmoid",
    "Gelu",
    "Silu",
    "Softmax",
    "MaxPool2d(3, 1, padding = 1)",
];

/// Each choice adds a node: a layer on an earlier value, or a join of two of them.
fn network(choices: &[(usize, usize, usize)]) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let g = &mut graph;
    let input = g.input(numbers(&[3, 5, 4])).unwrap();
    let mut values = vec![layer(g, input, "Conv2d(3, 3, padding = 1)")];
    for &(kind, first, second) in choices {
        let (first, second) = (values[first % values.len()], values[second % values.len()]);
        let value = match kind {
            0..12 => layer(g, first, SHAPE_KEEPING[kind]),
            12..15 => join(g, &[first, second], "Add"),
            15 => join(g, &[first, second, first], "Add"),
            16 => join(g, &[first, second], "Mul"),
            17 => {
                let both = join(g, &[first, second], "Concat");
                layer(g, both, "Conv2d(3, 1)")
            }
            _ => chain(g, first, "AvgPool2d(2, 1, padding = 1) | AdaptiveAvgPool2d([5; 4])"),
        };
        values.push(value);
    }
    let last = *values.last().unwrap();
    let output = chain(g, last, "Flatten | Linear(4)");
    (graph, output)
}

fn run(graph: &Graph, output: NodeId, update: Update) -> (Vec<f32>, Vec<Vec<f32>>) {
    let training = Training { loss: Measure::CrossEntropy, moments: 1, update, input_gradient: false };
    let sgd = Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(graph, output, training, 3, sgd);
    let spread = |count: usize, salt: usize| -> Vec<u32> {
        (0..count).map(|index| (((index * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).to_bits()).collect()
    };
    let named: Vec<(String, usize)> = loaded
        .train
        .program
        .tensors
        .iter()
        .filter(|tensor| matches!(tensor.class, Class::Parameter | Class::Input))
        .map(|tensor| (tensor.name.clone(), tensor.elements(3).unwrap() as usize))
        .collect();
    for (salt, (name, count)) in named.iter().enumerate() {
        loaded.set(name, &spread(*count, salt + 1));
    }
    loaded.set("target", &[0, 3, 1]);
    let losses = (0..3).map(|_| loaded.step().unwrap()).collect();
    let parameters = named.iter().map(|(name, _)| loaded.get(name).unwrap()).collect();
    (losses, parameters)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn plans_do_not_change_what_is_computed(
        choices in prop::collection::vec((0usize..19, 0usize..20, 0usize..20), 1..14),
    ) {
        let (graph, output) = network(&choices);
        let fused = run(&graph, output, Update::Fused);
        let separate = run(&graph, output, Update::Separate);
        prop_assert!(fused.0.iter().all(|loss| loss.is_finite()), "{:?}", fused.0);
        prop_assert!(fused.1.iter().flatten().all(|value| !value.is_nan()));
        prop_assert_eq!(fused, separate);
    }
}
