//! Moving averages of parameters: `ema` in `TRAIN`.
#![deny(warnings)]

use gpumem::prelude::*;
use gpumem::{Budget, Cpu, Ema, Error, Kind, Line, Trains};

/// A network with everything that has parameters of its own, and one of its settings.
macro_rules! network_of {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, loss: Mse, seed: 3, $($settings)* };
            const INFER: Infer = Infer { batch: 2 };

            fn forward(image: Image<2, 4, 4>) -> Features<3> {
                [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, freeze(Linear(8, name = "frozen")), Linear(3, name = "head")]
            }
        }
    };
}

network_of!(Plain, { optimizer: AdamW { lr: 0.01 } });
network_of!(Averaging, { optimizer: AdamW { lr: 0.01 }, ema: 0.9 });
network_of!(Late, { optimizer: AdamW { lr: 0.01 }, ema: Ema { decay: 0.5, every: 3 } });
network_of!(Guarded, { optimizer: AdamW { lr: 0.01 }, ema: 0.5, skip: NonFinite });

fn load<N: Network>() -> Net<N, Cpu> {
    Net::load(&Cpu::with_threads(1).unwrap().with_poison(true).emulate()).unwrap()
}

fn image<S: gpumem::HostShape>(step: usize) -> Tensor<f32, S> {
    Tensor::from_fn(move |index| ((index * 7 + step * 3) % 11) as f32 / 5.0 - 1.0)
}

fn target<S: gpumem::HostShape>(step: usize) -> Tensor<f32, S> {
    Tensor::from_fn(move |index| ((index * 5 + step) % 7) as f32 / 3.0)
}

fn names<N: Trains>(net: &Net<N, Cpu>, kind: Kind) -> Vec<String> {
    net.tensors().filter(|tensor| tensor.kind == kind).map(|tensor| tensor.name.to_string()).collect()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// Everything that lasts, as bits.
fn state<N: Trains>(net: &mut Net<N, Cpu>) -> Vec<(String, Vec<u32>)> {
    let names: Vec<String> = net.names().map(String::from).collect();
    names.into_iter().map(|name| (name.clone(), bits(net.get(&name).unwrap()))).collect()
}

/// Trains, and makes the averages again of the parameters after each step.
macro_rules! averages_are {
    ($name:ident, $ema:expr) => {{
        let ema: Ema = $ema;
        let mut net = load::<$name>();
        let averages = names(&net, Kind::Average);
        let trained: Vec<String> =
            averages.iter().map(|name| name.strip_suffix(".average").unwrap().to_string()).collect();
        assert!(!trained.is_empty());
        assert!(!trained.iter().any(|name| name.starts_with("frozen.") && !name.contains("lora")), "{trained:?}");
        let mut expected: Vec<Vec<f32>> = trained.iter().map(|name| net.get(name).unwrap()).collect();
        for (name, expected) in averages.iter().zip(&expected) {
            assert_eq!(&net.get(name).unwrap(), expected, "{name} begins at its parameter");
        }
        let mut count = 0;
        for step in 0..7u64 {
            net.train_step(&image(step as usize), &target(step as usize)).unwrap();
            if ema.is_due(step) {
                for (name, average) in trained.iter().zip(&mut expected) {
                    let share = ema.share(count) as f32;
                    average.iter_mut().zip(net.get(name).unwrap()).for_each(|(a, w)| *a = Ema::averaged(*a, w, share));
                }
                count += 1;
            }
            for (name, expected) in averages.iter().zip(&expected) {
                assert_eq!(
                    bits(net.get(name).unwrap()),
                    bits(expected.clone()),
                    "{}: {name}, step {step}",
                    stringify!($name)
                );
            }
        }
        assert_eq!(u64::from(net.state_numbers().unwrap().averaged), count);
        // A bias before a normalisation has no gradient.
        for (name, average) in trained.iter().zip(&averages).filter(|(name, _)| name.ends_with("weight")) {
            assert_ne!(net.get(name).unwrap(), net.get(average).unwrap(), "{name}");
        }
    }};
}

#[test]
fn averages_follow_every_optimizer() {
    macro_rules! every {
        ($($name:ident: $optimizer:ident { $($numbers:tt)* };)*) => {
            $(
                network_of!($name, { optimizer: $optimizer { $($numbers)* }, ema: 0.8 });
                averages_are!($name, Ema { decay: 0.8, ..Ema::DEFAULT });
            )*
        };
    }
    every! {
        WithSgd: Sgd { lr: 0.01, momentum: 0.9 };
        WithAdam: Adam { lr: 0.01 };
        WithAdamW: AdamW { lr: 0.01, groups: [Group { paths: "*.bias", weight_decay: 0.0, lr: 0.02 }] };
        WithLion: Lion { lr: 0.001 };
        WithRmsProp: RmsProp { lr: 0.01 };
        WithAdagrad: Adagrad { lr: 0.01 };
        WithAdadelta: Adadelta { lr: 1.0 };
        WithNAdam: NAdam { lr: 0.01 };
        WithAdamax: Adamax { lr: 0.01 };
        WithRAdam: RAdam { lr: 0.01 };
        WithAdafactor: Adafactor { lr: 0.01 };
        WithAdamW8bit: AdamW8bit { lr: 0.01 };
        WithMuon: Muon { lr: 0.01 };
    }
}

#[test]
fn averages_go_with_every_setting() {
    macro_rules! every {
        ($($name:ident: { $($settings:tt)* };)*) => {
            $(
                network_of!($name, { $($settings)* optimizer: AdamW { lr: 0.01 }, ema: 0.8 });
                averages_are!($name, Ema { decay: 0.8, ..Ema::DEFAULT });
            )*
        };
    }
    every! {
        Clipped: { clip: GlobalNorm(0.1), };
        ByValue: { clip: Value(0.01), measure: GradientNorm, };
        Apart: { update: Separate, schedule: Cosine { warmup: 2, total: 6 }, };
        InParts: { micro_batches: 2, skip: NonFinite, };
        There: { offload: OptimizerState, };
        All: { offload: All, clip: GlobalNorm(0.1), };
        Mixed16: { precision: Mixed(Bf16), };
        MixedThere: { precision: Mixed(Bf16), offload: OptimizerState, };
        Narrow: { precision: Bf16, };
        Scaled: { precision: Mixed(F16), };
        Recomputed: { checkpoint: Budget(0.8), };
    }
}

#[test]
fn averages_of_adapters() {
    network! {
        pub struct Adapted;

        const TRAIN: Train = Train { batch: 4, loss: Mse, optimizer: AdamW { lr: 0.01 }, ema: 0.8 };

        fn forward(image: Image<2, 4, 4>) -> Features<3> {
            [Flatten, lora(2, 4.0, [Linear(8, name = "frozen"), Relu, Linear(3, name = "frozen_head")])]
        }
    }
    averages_are!(Adapted, Ema { decay: 0.8, ..Ema::DEFAULT });
}

#[test]
fn averages_of_some_steps_and_of_a_warmup() {
    averages_are!(Late, Ema { decay: 0.5, every: 3, ..Ema::DEFAULT });
    network_of!(Warm, { optimizer: Sgd { lr: 0.1 }, ema: Ema { decay: 0.9999, warmup: true } });
    averages_are!(Warm, Ema { decay: 0.9999, warmup: true, ..Ema::DEFAULT });
}

#[test]
fn averages_change_no_step() {
    let (mut plain, mut averaging) = (load::<Plain>(), load::<Averaging>());
    for step in 0..4 {
        let [one, other] = [
            plain.train_step(&image(step), &target(step)).unwrap(),
            averaging.train_step(&image(step), &target(step)).unwrap(),
        ];
        assert_eq!(one.to_bits(), other.to_bits());
    }
    for name in names(&plain, Kind::Parameter) {
        assert_eq!(plain.get(&name).unwrap(), averaging.get(&name).unwrap());
    }
}

#[test]
fn an_evaluation_has_the_averages_and_leaves_the_parameters() {
    let mut net = load::<Averaging>();
    let loss = net.eval_loss(&image(9), &target(9)).unwrap();
    // Before the first average they are the parameters, also those that were set since.
    net.set("head.bias", &[1.0, 2.0, 3.0]).unwrap();
    let moved = net.eval_loss(&image(9), &target(9)).unwrap();
    assert!(moved != loss && net.averaged(|net| net.eval_loss(&image(9), &target(9))).unwrap() == moved);
    for step in 0..5 {
        net.train_step(&image(step), &target(step)).unwrap();
    }
    let before = state(&mut net);
    let (found, outputs) = net
        .averaged(|net| {
            let weight = net.get("head.weight")?;
            assert_eq!(bits(weight), before.iter().find(|(name, _)| name == "head.weight.average").unwrap().1);
            Ok((net.eval_loss(&image(9), &target(9))?, net.forward(&image(9))?))
        })
        .unwrap();
    assert_eq!(state(&mut net), before);
    let mut other = load::<Plain>();
    other.copy_average_from(&mut net).unwrap();
    assert_eq!(other.eval_loss(&image(9), &target(9)).unwrap(), found);
    assert_eq!(other.forward(&image(9)).unwrap().as_slice(), outputs.as_slice());
    assert_ne!(net.eval_loss(&image(9), &target(9)).unwrap(), found);
    // A network that serves takes them too.
    let mut serving = Averaging::infer_on(&Cpu::new()).unwrap();
    serving.copy_average_from(&mut net).unwrap();
    assert_eq!(serving.get("head.weight").unwrap(), net.get("head.weight.average").unwrap());
    assert_eq!(serving.get("frozen.weight").unwrap(), net.get("frozen.weight").unwrap());
    assert_eq!(serving.get("batch_norm2d.running_var").unwrap(), net.get("batch_norm2d.running_var").unwrap());
}

#[test]
fn parameters_are_put_back_after_an_error_and_a_panic() {
    let mut net = load::<Averaging>();
    net.train_step(&image(0), &target(0)).unwrap();
    net.train_step(&image(1), &target(1)).unwrap();
    let before = state(&mut net);
    let error = net.averaged(|_| Err::<(), _>(Error::Damaged("as it was asked for"))).unwrap_err();
    assert_eq!(error, Error::Damaged("as it was asked for"));
    assert_eq!(state(&mut net), before);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = net.averaged(|_| -> Result<(), Error> { panic!("as it was asked for") });
    }));
    assert!(panicked.is_err());
    assert_eq!(state(&mut net), before);
}

#[test]
fn averages_begin_anew() {
    let mut net = load::<Averaging>();
    for step in 0..3 {
        net.train_step(&image(step), &target(step)).unwrap();
    }
    net.reset_averages().unwrap();
    assert_eq!(net.state_numbers().unwrap().averaged, 0);
    assert_eq!(net.get("head.weight.average").unwrap(), net.get("head.weight").unwrap());
    net.train_step(&image(3), &target(3)).unwrap();
    assert_eq!(net.get("head.weight.average").unwrap(), net.get("head.weight").unwrap());
    net.reset().unwrap();
    assert_eq!(net.get("head.weight.average").unwrap(), load::<Averaging>().get("head.weight").unwrap());
}

#[test]
fn a_step_that_is_skipped_averages_nothing() {
    let mut net = load::<Guarded>();
    for step in 0..3 {
        net.train_step(&image(step), &target(step)).unwrap();
        let before = (state(&mut net), net.state_numbers().unwrap().averaged);
        net.train_step(&image(step), &Tensor::from_fn(|_| f32::NAN)).unwrap();
        assert_eq!((state(&mut net), net.state_numbers().unwrap().averaged), before);
    }
}

#[test]
fn averages_are_part_of_a_state() {
    let mut net = load::<Late>();
    for step in 0..5 {
        net.train_step(&image(step), &target(step)).unwrap();
    }
    let snapshot = net.snapshot().unwrap();
    let mut other = load::<Late>();
    other.restore(&snapshot).unwrap();
    for step in 5..9 {
        net.train_step(&image(step), &target(step)).unwrap();
        other.train_step(&image(step), &target(step)).unwrap();
    }
    assert_eq!(state(&mut other), state(&mut net));
    assert_eq!(other.state_numbers().unwrap(), net.state_numbers().unwrap());
}

#[test]
fn what_has_no_averages_says_so() {
    let mut plain = load::<Plain>();
    let message = "it keeps no moving averages; write `ema: 0.999` in `TRAIN`";
    let mut other = load::<Plain>();
    for error in [
        plain.averaged(|net| net.eval_loss(&image(0), &target(0))).map(drop),
        plain.reset_averages(),
        other.copy_average_from(&mut plain),
    ] {
        let text = error.unwrap_err().to_string();
        assert!(text.contains(message), "{text}");
    }
    assert!(!plain.has_averages() && load::<Averaging>().has_averages());
}

/// Bytes as they are computed by hand.
#[test]
fn averages_are_a_line_of_the_budget() {
    network! {
        pub struct Without;
        const TRAIN: Train = Train { batch: 4, loss: Mse, optimizer: AdamW { lr: 0.01 } };
        fn forward(x: Features<4>) -> Features<3> { [Linear(4), Tanh, freeze(Linear(5)), Linear(3)] }
    }
    network! {
        pub struct With;
        const TRAIN: Train = Train { batch: 4, loss: Mse, optimizer: AdamW { lr: 0.01 }, ema: 0.999 };
        fn forward(x: Features<4>) -> Features<3> { [Linear(4), Tanh, freeze(Linear(5)), Linear(3)] }
    }
    network! {
        pub struct Mixed16;
        const TRAIN: Train =
            Train { batch: 4, loss: Mse, optimizer: AdamW { lr: 0.01 }, ema: 0.999, precision: Mixed(Bf16), offload: OptimizerState };
        fn forward(x: Features<4>) -> Features<3> { [Linear(4), Tanh, freeze(Linear(5)), Linear(3)] }
    }
    let (without, with): (Budget, Budget) = (Without::BUDGET, With::BUDGET);
    // 4 * 4 + 4 parameters, and 5 * 3 + 3.
    assert_eq!((without[Line::Ema], with[Line::Ema]), (0, 4 * (20 + 18)));
    assert_eq!(with[Line::Arena] - without[Line::Arena], 4 * 256);
    for line in [Line::Weights, Line::Gradients, Line::Optimizer, Line::Buffers, Line::BatchIo, Line::Activations] {
        assert_eq!(with[line], without[line], "{}", line.name());
    }
    assert_eq!(Mixed16::BUDGET[Line::Ema], 4 * (20 + 18), "in f32, and on the card");
    assert_eq!(Mixed16::BUDGET[Line::Optimizer], 0);
}
