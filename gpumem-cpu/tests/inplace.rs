//! Batch normalisation whose backward pass finds its input again from its output, beside the two layers that keep both.

mod harness;

use gpumem_core::Role;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::memory::budget::Line;
use gpumem_core::program::Class;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Update, train::Descent};
use harness::filled::{spread, words};
use harness::graphs::{chain, numbers};
use harness::{Loaded, relative_error};

const BATCH: u64 = 4;

/// A step of a network on maps, whose parameters are the same whatever they are called.
fn step(layers: &str) -> (Vec<Vec<f32>>, u64) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 12, 11])).unwrap();
    let output = chain(&mut graph, input, layers);
    let training = Training {
        loss: &[Term::MSE],
        moments: 0,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent::PLAIN,
    };
    let optimizer = Optimizer::Sgd(Sgd { lr: 1e4, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(&graph, output, training, BATCH, optimizer);
    let tensors = loaded.train.program.tensors.clone();
    let filled = tensors.iter().filter(|it| matches!(it.class, Class::Parameter | Class::Input | Class::Target));
    for (salt, tensor) in filled.enumerate() {
        let around = if tensor.role == Role::Norm { 1.0 } else { 0.0 };
        let count = tensor.elements(BATCH).unwrap() as usize;
        let values: Vec<f32> = spread(count, salt + 1).iter().map(|x| x + around).collect();
        loaded.set(&tensor.name, &words(&values));
    }
    let before: Vec<Vec<f32>> = parameters(&mut loaded);
    let loss = loaded.step().unwrap();
    let after = parameters(&mut loaded);
    let moved = before.iter().zip(&after).map(|(before, after)| before.iter().zip(after).map(|(b, a)| b - a).collect());
    let activations = loaded.budget[Line::Activations];
    ([vec![vec![loss]], moved.collect()].concat(), activations)
}

fn parameters(loaded: &mut Loaded) -> Vec<Vec<f32>> {
    let tensors = loaded.train.program.tensors.clone();
    let all = tensors.iter().filter(|tensor| matches!(tensor.class, Class::Parameter | Class::Buffer));
    all.map(|tensor| loaded.get(&tensor.name).unwrap()).collect()
}

#[test]
fn gradients_are_those_of_two_layers_in_less_memory() {
    for slope in [1.0, 0.25, 0.01] {
        let block = |width: u64, norm: &str| format!("Conv2d({width}, 3, padding = 1, bias = false) | {norm}");
        let network = |norm: &str| {
            let blocks = [8, 16, 12].map(|width| block(width, norm)).join(" | ");
            format!("{blocks} | Conv2d(3, 1)")
        };
        let (expected, plain) = step(&network(&format!("BatchNorm2d | LeakyRelu({slope:?})")));
        let (found, lean) = step(&network(&format!("InplaceAbn(activation_param = {slope:?})")));
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = relative_error(found, expected);
            assert!(error < 1e-4, "{slope}, {index}: {error}");
        }
        assert!(4 * lean < 3 * plain, "{lean} of {plain}");
    }
}
