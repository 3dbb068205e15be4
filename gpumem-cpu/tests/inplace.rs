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

/// Loss, then how far each parameter and statistic moved, in a step of a network on maps, and its bytes of activations. Parameters are the
/// same whatever they are called; `adjust` takes the weights of normalisations.
fn step(layers: &str, adjust: fn(&mut [f32])) -> (Vec<Vec<f32>>, u64) {
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
        let mut values: Vec<f32> = spread(count, salt + 1).iter().map(|x| x + around).collect();
        if tensor.role == Role::Norm && tensor.name.ends_with("weight") {
            adjust(&mut values);
        }
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

/// The same network with two layers and with one.
fn both(slope: f64, adjust: fn(&mut [f32])) -> [(Vec<Vec<f32>>, u64); 2] {
    let norms = [format!("BatchNorm2d | LeakyRelu({slope:?})"), format!("InplaceAbn(activation_param = {slope:?})")];
    norms.map(|norm| {
        let block = |width: u64| format!("Conv2d({width}, 3, padding = 1, bias = false) | {norm}");
        step(&format!("{} | Conv2d(3, 1)", [8, 16, 12].map(block).join(" | ")), adjust)
    })
}

fn equal(slope: f64, adjust: fn(&mut [f32])) -> [u64; 2] {
    let [(expected, plain), (found, lean)] = both(slope, adjust);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = relative_error(found, expected);
        assert!(error < 1e-4, "{slope}, {index}: {error}");
    }
    [plain, lean]
}

#[test]
fn gradients_are_those_of_two_layers_in_less_memory() {
    for slope in [1.0, 0.25, 0.01] {
        let [plain, lean] = equal(slope, |_| ());
        assert!(4 * lean < 3 * plain, "{lean} of {plain}");
    }
}

/// The limits on the layer's page.
#[test]
fn small_weights_and_a_small_slope_lose_few_digits() {
    equal(0.001, |weights| weights.iter_mut().for_each(|weight| *weight *= 0.05));
}

#[test]
fn a_weight_of_zero_has_no_gradient() {
    let [(expected, _), (found, _)] = both(0.01, |weights| weights[0] = 0.0);
    // The loss, a convolution, then the weights of the first normalisation.
    assert_eq!(found[2].len(), 8);
    assert_eq!(found[2][0], 0.0);
    assert_ne!(expected[2][0], 0.0);
    assert!(found.iter().flatten().all(|moved| moved.is_finite()));
}
