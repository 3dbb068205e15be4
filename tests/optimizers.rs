//! Optimizers in networks: the memory of their states, what these begin with, and groups of parameters.

use gpumem::prelude::*;
use gpumem::{Clip, Cpu, Kind, Line, Schedule, Update};

type Features = Tensor<f32, (D<4>, D<4>)>;

/// Networks of 55 parameters and these optimizers.
macro_rules! networks {
    ($($name:ident: $optimizer:expr,)*) => {
        $(
            network! {
                pub struct $name;

                const TRAIN: Train = Train { batch: 4, optimizer: $optimizer, loss: Mse };

                fn forward(x: Features<4>) -> Features<4> {
                    [Linear(4, name = "body"), Tanh, LayerNorm, Linear(3), Linear(4, bias = false, name = "head")]
                }
            }
        )*
    };
}

networks! {
    Plain: Sgd { lr: 0.1 },
    Rms: RmsProp,
    Largest: AdamW { amsgrad: true },
    RmsOfBoth: RmsProp { momentum: 0.9, centered: true },
    Summed: Adagrad { initial_accumulator_value: 0.25 },
    Far: Adadelta,
    Ahead: NAdam { momentum_decay: 0.1 },
    Most: Adamax,
    Rectified: RAdam { weight_decay: 0.1, decoupled_weight_decay: true },
    Factored: Adafactor { eps: (None, 1e-2), weight_decay: 0.1 },
    FactoredInGroups: Adafactor { groups: [Group { paths: "*.bias", lr: 0.02 }] },
    Orthogonal: Muon { lr: 0.02, adamw_lr: 0.01 },
    OrthogonalInGroups: Muon {
        ns_steps: 4,
        match_rms_adamw: true,
        lr: 0.01,
        groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }, Group { paths: "body.*", lr: 0.02 }],
    },
    Grouped: AdamW {
        lr: 0.01,
        weight_decay: 0.5,
        groups: [
            Group { paths: "*.bias, *norm*", weight_decay: 0.0 },
            Group { paths: "head.*", lr: 0.04 },
        ],
    },
    Ungrouped: AdamW { lr: 0.01, weight_decay: 0.5 },
    Faster: AdamW { lr: 0.04, weight_decay: 0.5 },
    Undecayed: AdamW { lr: 0.01, weight_decay: 0.0 },
}

network! {
    pub struct FactoredInHalves;

    const TRAIN: Train = Train { batch: 4, optimizer: Adafactor, loss: Mse, precision: Mixed(F16) };

    fn forward(x: Features<4>) -> Features<4> {
        [Linear(4, name = "body"), Tanh, LayerNorm, Linear(3), Linear(4, bias = false, name = "head")]
    }
}

network! {
    pub struct PartlyFrozen;

    const TRAIN: Train = Train { batch: 4, optimizer: Adafactor, loss: Mse, update: Separate };

    fn forward(x: Features<4>) -> Features<4> {
        [Linear(4, name = "body", freeze), Tanh, LayerNorm, Linear(3), Linear(4, bias = false, name = "head")]
    }
}

/// Elements of a state of all parameters.
const STATE: u64 = 20 + 8 + 15 + 12;

fn states<N: Network>() -> u64 {
    let compiled = N::TRAINING.unwrap();
    assert_eq!(compiled.budget[Line::Optimizer] % (4 * STATE), 0);
    compiled.budget[Line::Optimizer] / (4 * STATE)
}

#[test]
fn states_are_counted() {
    assert_eq!(states::<Plain>(), 0);
    assert_eq!(states::<Rms>(), 1);
    assert_eq!(states::<Largest>(), 3);
    assert_eq!(states::<RmsOfBoth>(), 3);
    assert_eq!(states::<Summed>(), 1);
    assert_eq!(states::<Far>(), 2);
    assert_eq!(states::<Ahead>(), 2);
    assert_eq!(states::<Most>(), 2);
    assert_eq!(states::<Rectified>(), 2);
    assert_eq!(states::<Grouped>(), 2);
}

/// A row and a column mean for each row and each column of a matrix, and a number for each element of a vector.
#[test]
fn rows_and_columns_are_counted() {
    const BYTES: u64 = 4 * ((4 + 4 + 4) + (4 + 4) + (3 + 4 + 3) + (4 + 3));
    assert_eq!(Factored::TRAINING.unwrap().budget[Line::Optimizer], BYTES);
    assert_eq!(FactoredInGroups::TRAINING.unwrap().budget[Line::Optimizer], BYTES);
    assert_eq!(FactoredInHalves::TRAINING.unwrap().budget[Line::Optimizer], BYTES);
    // What is not trained has no state.
    assert_eq!(PartlyFrozen::TRAINING.unwrap().budget[Line::Optimizer], BYTES - 4 * (4 + 4 + 4));
    let net = Factored::on(&Cpu::new()).unwrap();
    let states = net.tensors().filter(|tensor| tensor.kind == Kind::OptimizerState);
    let found: Vec<(String, Vec<u64>)> = states.map(|it| (it.name.to_string(), it.shape.to_vec())).collect();
    let shape = |name: &str| found.iter().find(|(found, _)| found == name).map(|(_, shape)| shape.clone());
    assert_eq!(shape("linear.weight.row_var"), Some(vec![3, 1]));
    assert_eq!(shape("linear.weight.col_var"), Some(vec![1, 4]));
    assert_eq!((shape("linear.bias.variance"), shape("linear.bias.col_var")), (Some(vec![3]), None));
}

/// One tensor for the matrix of a hidden layer, two for all else: the weight that makes the output among it.
#[test]
fn matrices_are_counted() {
    const BYTES: u64 = 4 * ((16 + 2 * 4) + 2 * (4 + 4) + (12 + 2 * 3) + 2 * 12);
    assert_eq!(Orthogonal::TRAINING.unwrap().budget[Line::Optimizer], BYTES);
    assert_eq!(OrthogonalInGroups::TRAINING.unwrap().budget[Line::Optimizer], BYTES);
}

/// Both rates change in the same proportion, and come back from 0.
#[test]
fn the_rate_of_what_is_no_matrix_follows() {
    let (device, [x, y]) = (Cpu::new(), data());
    let mut nets = [Orthogonal::on(&device).unwrap(), Orthogonal::on(&device).unwrap()];
    let names: Vec<String> = nets[0].names().map(String::from).collect();
    let parameters = nets[0].tensors().filter(|tensor| tensor.kind == Kind::Parameter);
    let parameters: Vec<String> = parameters.map(|tensor| tensor.name.to_string()).collect();
    nets[1].set_lr(0.0).unwrap();
    nets[1].set_lr(0.02).unwrap();
    nets.iter_mut().for_each(|net| _ = net.train_step(&x, &y).unwrap());
    let [one, other] = nets.each_mut().map(|net| names.iter().map(|name| net.get(name).unwrap()).collect::<Vec<_>>());
    assert_eq!(one, other);
    nets[0].set_lr(0.0).unwrap();
    nets[0].train_step(&x, &y).unwrap();
    for (name, before) in names.iter().zip(one).filter(|(name, _)| parameters.contains(*name)) {
        assert_eq!(nets[0].get(name).unwrap(), before, "{name}");
    }
}

fn data() -> [Features; 2] {
    [1, 2].map(|seed| Tensor::from_fn(|index| ((index * 7 + seed) as f32 * 0.61).sin()))
}

network! {
    pub struct ClippedByNorm;

    const TRAIN: Train = Train {
        batch: 4,
        optimizer: Sgd { lr: 0.1, momentum: 0.9 },
        loss: Mse,
        clip: GlobalNorm(0.5),
        schedule: Cosine { warmup: STEPS / 20, total: STEPS, min: 1e-3 },
    };
    const STEPS: usize = 40;

    fn forward(x: Features<4>) -> Features<4> {
        [Linear(4, name = "body"), Tanh, LayerNorm, Linear(3), Linear(4, bias = false, name = "head")]
    }
}

network! {
    pub struct ClippedByValue;

    const TRAIN: Train = Train {
        batch: 4,
        precision: Mixed(F16),
        optimizer: AdamW { groups: [Group { paths: "head.*", lr: 1e-2 }] },
        loss: Mse,
        clip: Value(0.1),
        schedule: Step { every: 3, factor: 0.5 },
    };

    fn forward(x: Features<4>) -> Features<4> {
        [Linear(4, name = "body"), Tanh, LayerNorm, Linear(3), Linear(4, bias = false, name = "head")]
    }
}

/// The norm of gradients needs all of them at once, and updates that wait; their values need nothing.
#[test]
fn clipped_gradients_are_counted() {
    let gradients = |compiled: &gpumem::Compiled| compiled.budget[Line::Gradients];
    assert_eq!(gradients(Plain::TRAINING.unwrap()), 0);
    assert_eq!(gradients(ClippedByNorm::TRAINING.unwrap()), 4 * 55);
    assert_eq!(gradients(ClippedByValue::TRAINING.unwrap()), 0);
    assert_eq!((ClippedByNorm::TRAIN.update, ClippedByValue::TRAIN.update), (Update::Separate, Update::Fused));
    assert_eq!(ClippedByNorm::TRAIN.clip, Some(Clip::GlobalNorm(0.5)));
    assert_eq!(ClippedByNorm::TRAIN.schedule, Schedule::Cosine { warmup: 2, total: 40, min: 1e-3 });
    assert_eq!(Plain::TRAIN.schedule, Schedule::Constant { warmup: 0 });
}

/// Each step changes parameters by the rate of its number, from the rate that was set last.
#[test]
fn a_rate_that_is_set_is_where_the_schedule_begins() {
    let (device, [x, y]) = (Cpu::new().emulate(), data());
    let (mut changes, mut rates) = (Vec::new(), Vec::new());
    for (lr, steps) in [(1e-3, 0), (1e-3, 3), (4e-3, 6)] {
        // Adam's first step changes every weight by the rate, whatever the gradient: of a network whose states are 0.
        let mut net = ClippedByValue::on(&device).unwrap();
        net.set_lr(lr).unwrap();
        net.set_steps(steps).unwrap();
        rates.push(net.lr().unwrap());
        let before = net.get("linear.bias").unwrap();
        net.train_step(&x, &y).unwrap();
        let change = net.get("linear.bias").unwrap().iter().zip(before).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let correction = |beta: f64| 1.0 - f64::powf(beta, steps as f64 + 1.0);
        // The moments are those of a first step, and corrected as those of a later one.
        let first = (0.1 / correction(0.9)) / (0.001 / correction(0.999)).sqrt();
        changes.push(f64::from(change) / first);
    }
    for (change, expected) in changes.into_iter().zip([1e-3, 0.5e-3, 1e-3]) {
        assert!((change / expected - 1.0).abs() < 1e-2, "{change} is not {expected}");
    }
    assert_eq!(rates, [1e-3, 0.5e-3, 1e-3]);
}

/// Every optimizer brings the loss down, and the state that lies in files is all that it carries from step to step.
macro_rules! trained {
    ($($network:ident),*) => {
        $({
            let (device, [x, y]) = (Cpu::new(), data());
            let mut net = $network::on(&device).unwrap();
            let before = net.train_step(&x, &y).unwrap();
            for _ in 0..8 {
                net.train_step(&x, &y).unwrap();
            }
            let mut other = $network::on(&device).unwrap();
            let names: Vec<String> = net.names().map(String::from).collect();
            for name in &names {
                other.set(name, &net.get(name).unwrap()).unwrap();
            }
            other.set_steps(net.steps().unwrap()).unwrap();
            for _ in 0..3 {
                let loss = net.train_step(&x, &y).unwrap();
                assert!(loss < before, "{}", $network::NAME);
                assert_eq!(other.train_step(&x, &y).unwrap().to_bits(), loss.to_bits(), "{}", $network::NAME);
            }
            for name in &names {
                assert_eq!(net.get(name).unwrap(), other.get(name).unwrap(), "{} {name}", $network::NAME);
            }
        })*
    };
}

#[test]
fn losses_fall_and_go_on_after_a_resume() {
    trained!(
        Plain,
        Rms,
        RmsOfBoth,
        Summed,
        Far,
        Ahead,
        Most,
        Rectified,
        Grouped,
        Factored,
        FactoredInGroups,
        PartlyFrozen,
        Orthogonal,
        OrthogonalInGroups,
        ClippedByNorm
    );
}

#[test]
fn rows_and_columns_beside_weights_of_16_bits() {
    let (device, [x, y]) = (Cpu::new().emulate(), data());
    let mut net = FactoredInHalves::on(&device).unwrap();
    let before = net.train_step(&x, &y).unwrap();
    let after = (0..8).map(|_| net.train_step(&x, &y).unwrap()).last();
    assert!(after < Some(before), "{after:?}, {before}");
}

#[test]
fn states_begin_with_the_accumulators_value() {
    let mut net = Summed::on(&Cpu::new()).unwrap();
    let states: Vec<String> = net
        .tensors()
        .filter(|tensor| tensor.kind == Kind::OptimizerState)
        .map(|tensor| tensor.name.to_string())
        .collect();
    assert_eq!(states.len(), 7);
    for name in states {
        assert!(net.get(&name).unwrap().iter().all(|&value| value == 0.25), "{name}");
    }
}

/// After a step of networks that begin alike: each parameter is that of a network whose optimizer has the numbers of its group.
#[test]
fn groups_have_rates_and_weight_decay_of_their_own() {
    let (device, [x, y]) = (Cpu::new(), data());
    let mut grouped = Grouped::on(&device).unwrap();
    let (mut plain, mut faster, mut undecayed) =
        (Ungrouped::on(&device).unwrap(), Faster::on(&device).unwrap(), Undecayed::on(&device).unwrap());
    // In proportion: twice the optimizer's rate is twice each group's.
    for scale in [1.0, 2.0] {
        grouped.set_lr(0.01 * scale).unwrap();
        plain.set_lr(0.01 * scale).unwrap();
        faster.set_lr(0.04 * scale).unwrap();
        undecayed.set_lr(0.01 * scale).unwrap();
        let names: Vec<String> = grouped.names().map(String::from).collect();
        for name in &names {
            let values = grouped.get(name).unwrap();
            plain.set(name, &values).unwrap();
            faster.set(name, &values).unwrap();
            undecayed.set(name, &values).unwrap();
        }
        grouped.train_step(&x, &y).unwrap();
        plain.train_step(&x, &y).unwrap();
        faster.train_step(&x, &y).unwrap();
        undecayed.train_step(&x, &y).unwrap();
        for name in ["body.weight", "body.bias", "layer_norm.weight", "linear.weight", "linear.bias", "head.weight"] {
            let expected = match name {
                "head.weight" => faster.get(name),
                "body.weight" | "linear.weight" => plain.get(name),
                _ => undecayed.get(name),
            };
            assert_eq!(grouped.get(name).unwrap(), expected.unwrap(), "{name}");
        }
        assert_ne!(grouped.get("head.weight").unwrap(), plain.get("head.weight").unwrap());
        assert_ne!(grouped.get("layer_norm.weight").unwrap(), plain.get("layer_norm.weight").unwrap());
    }
}
