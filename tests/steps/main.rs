//! Several training steps over parts of one network, beside PyTorch in float64.

#[path = "../golden/mod.rs"]
mod golden;

use golden::{close, lines_of, numbers, spread};
use gpumem::prelude::*;
use gpumem::{Cpu, HostShape, Kind};
use std::collections::BTreeMap;

fn all<S: HostShape>(value: f32) -> Tensor<f32, S> {
    Tensor::from_fn(|_| value)
}

/// What PyTorch computes for a network, by name.
fn expected(network: &str) -> BTreeMap<String, Vec<f32>> {
    let lines = lines_of(include_str!("expected.txt"), network);
    lines.into_iter().map(|(name, values)| (name.to_string(), values)).collect()
}

/// Gives parameters their numbers.
fn begin<N: Network>(net: &mut Net<N, Cpu>) {
    let parameters = net.tensors().filter(|tensor| tensor.kind == Kind::Parameter);
    let parameters: Vec<(String, u64)> =
        parameters.map(|tensor| (tensor.name.into(), tensor.shape.iter().product())).collect();
    for (salt, (name, elements)) in parameters.into_iter().enumerate() {
        net.set(&name, &(0..elements as usize).map(|index| spread(index, salt)).collect::<Vec<_>>()).unwrap();
    }
}

/// Compares losses, parameters and statistics with those of PyTorch.
fn compare<N: Network>(net: &mut Net<N, Cpu>, network: &str, losses: &[(&str, Vec<f32>)], tolerance: f32) {
    let expected = expected(network);
    for (step, losses) in losses {
        close(&format!("{network} {step}"), losses, &expected[*step], tolerance);
    }
    let lasting = net.tensors().filter(|tensor| matches!(tensor.kind, Kind::Parameter | Kind::Statistic));
    let names: Vec<String> = lasting.map(|tensor| tensor.name.into()).collect();
    assert_eq!(names.len() + losses.len(), expected.len());
    for name in names {
        close(&format!("{network} {name}"), &net.get(&name).unwrap(), &expected[&name], tolerance);
    }
}

/// Memory that no tensor of a step lives in has NaN before it: what one step leaves is nothing to the next.
fn cpu() -> Cpu {
    Cpu::new().with_poison(true)
}

/// Adversaries of two sorts of layers, each with two steps of these further fields.
macro_rules! gans {
    ($($name:ident as $golden:literal { $($critic:tt)* } { $($generator:tt)* } [$($norm:tt)*])*) => {
        $(
            network! {
                pub struct $name;

                const CRITIC: Train = Train {
                    batch: 4,
                    trains: "critic*",
                    optimizer: Adam { lr: 2e-3, betas: (0.5, 0.999) },
                    loss: BceWithLogits(from = on_real, target = yes) + BceWithLogits(from = on_fake, target = no),
                    $($critic)*
                };
                const GENERATOR: Train = Train {
                    batch: 4,
                    trains: "generator*",
                    optimizer: Adam { lr: 1e-3, betas: (0.5, 0.999) },
                    loss: BceWithLogits(from = on_fake, target = yes),
                    $($generator)*
                };

                fn forward(noise: Features<5>, real: Image<1, 6, 6>) -> Map<1, 6, 6> {
                    let critic = discriminator();
                    [
                        from(noise), generator(), tap(fake), critic, tap(on_fake),
                        from(real), critic, tap(on_real),
                        from(fake),
                    ]
                }

                fn generator() -> Block {
                    [
                        Linear(36, bias = false, name = "fc"), Reshape(4, 3, 3), $($norm)* Relu,
                        ConvTranspose2d(1, 4, stride = 2, padding = 1, name = "conv"), Tanh,
                    ]
                }

                fn discriminator() -> Block {
                    [
                        Conv2d(3, 3, stride = 2, padding = 1, bias = false, name = "conv"), $($norm)* LeakyRelu(0.2),
                        Flatten, Linear(1, name = "fc"),
                    ]
                }
            }
        )*

        /// Twenty rounds of Adam.
        #[test]
        fn adversaries_are_those_of_pytorch() {
            $({
                let mut net = $name::on(&cpu()).unwrap();
                begin(&mut net);
                let (yes, no) = (all(1.0), all(0.0));
                let (mut critic, mut generator) = (Vec::new(), Vec::new());
                for round in 0..20 {
                    let (noise, real) = (numbers(100 + round), numbers(200 + round));
                    critic.push($name::critic(&mut net).train_step((&noise, &real), (&yes, &no)).unwrap());
                    generator.push($name::generator(&mut net).train_step(&noise, &yes).unwrap());
                }
                compare(&mut net, $golden, &[("CRITIC", critic), ("GENERATOR", generator)], 2e-5);
                assert_eq!($name::critic(&mut net).steps().unwrap(), 20);
            })*
        }
    };
}

gans! {
    Gan as "Gan" {} {} [BatchNorm2d(name = "norm"),]
    HeldGan as "Gan" { update: Separate } { checkpoint: None } [BatchNorm2d(name = "norm"),]
    PlainGan as "Plain" {} {} []
    SplitGan as "Plain" { micro_batches: 2 } { update: Separate } []
    BothSplitGan as "Plain" { micro_batches: 4 } { micro_batches: 2 } []
    ParkedGan as "Plain" { offload: OptimizerState } { offload: OptimizerState } []
}

/// A policy and an estimate of what it earns, over one body.
macro_rules! actors {
    ($($name:ident { $($policy:tt)* } { $($value:tt)* })*) => {
        $(
            network! {
                pub struct $name;

                const POLICY: Train = Train {
                    batch: 6,
                    trains: "body*, actor*",
                    optimizer: Sgd { lr: 0.3, momentum: 0.9 },
                    loss: Mean(from = surrogate),
                    $($policy)*
                };
                const VALUE: Train = Train {
                    batch: 6,
                    trains: "critic*",
                    optimizer: Adam { lr: 1e-2 },
                    loss: Mse(from = value),
                    $($value)*
                };

                fn forward(x: Features<6>, advantage: Features<3>) -> Logits<3> {
                    [
                        Linear(8, name = "body"), Tanh, tap(hidden), Linear(3, name = "actor"), tap(logits),
                        LogSoftmax, Mul([], from(advantage)), Affine(-1.0), tap(surrogate),
                        from(hidden), Linear(1, name = "critic"), tap(value),
                        from(logits),
                    ]
                }
            }
        )*

        #[test]
        fn actors_and_critics_are_those_of_pytorch() {
            $({
                let mut net = $name::on(&cpu()).unwrap();
                begin(&mut net);
                let (mut policy, mut value) = (Vec::new(), Vec::new());
                for round in 0..8 {
                    let (x, advantage, returns) = (numbers(300 + round), numbers(400 + round), numbers(500 + round));
                    policy.push($name::policy(&mut net).train_step((&x, &advantage), ()).unwrap());
                    for _ in 0..2 {
                        value.push($name::value(&mut net).train_step(&x, &returns).unwrap());
                    }
                }
                compare(&mut net, "Acting", &[("POLICY", policy), ("VALUE", value)], 2e-5);
            })*
        }
    };
}

actors! {
    Acting {} {}
    SplitActing { micro_batches: 3 } { update: Separate }
}

network! {
    /// Two optimizers of one parameter.
    pub struct Tuning;

    const HEAD: Train = Train {
        batch: 4, trains: "head*", optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy,
    };
    const ALL: Train = Train { batch: 4, optimizer: AdamW { lr: 1e-2 }, clip: GlobalNorm(0.05), loss: CrossEntropy };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), Silu, Linear(3, name = "head")]
    }
}

network! {
    /// The same with master copies, which the CPU has in f32.
    pub struct MixedTuning;

    const HEAD: Train = Train {
        batch: 4, trains: "head*", optimizer: Sgd { lr: 0.1, momentum: 0.9 }, precision: Mixed(Bf16), loss: CrossEntropy,
    };
    const ALL: Train = Train {
        batch: 4, optimizer: AdamW { lr: 1e-2 }, clip: GlobalNorm(0.05), precision: Mixed(Bf16), loss: CrossEntropy,
    };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), Silu, Linear(3, name = "head")]
    }
}

#[test]
fn steps_with_master_copies_are_those_of_pytorch() {
    let mut net = MixedTuning::on(&cpu().emulate()).unwrap();
    begin(&mut net);
    let (mut head, mut whole) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let (x, labels) = (numbers(600 + round), Tensor::from_fn(|index| (index + round) as u32 % 3));
        head.push(MixedTuning::head(&mut net).train_step(&x, &labels).unwrap());
        whole.push(MixedTuning::all(&mut net).train_step(&x, &labels).unwrap());
    }
    compare(&mut net, "Tuning", &[("HEAD", head), ("ALL", whole)], 2e-5);
    assert_eq!(MixedTuning::BUDGET[gpumem::Line::Master], 4 * (7 * 5 + 7 + 3 * 7 + 3));
}

#[test]
fn alternating_fine_tuning_is_that_of_pytorch() {
    let mut net = Tuning::on(&cpu()).unwrap();
    begin(&mut net);
    let (mut head, mut whole) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let (x, labels) = (numbers(600 + round), Tensor::from_fn(|index| (index + round) as u32 % 3));
        let before = net.get("body.weight").unwrap();
        head.push(Tuning::head(&mut net).train_step(&x, &labels).unwrap());
        assert_eq!(net.get("body.weight").unwrap(), before);
        whole.push(Tuning::all(&mut net).train_step(&x, &labels).unwrap());
        assert_ne!(net.get("body.weight").unwrap(), before);
    }
    compare(&mut net, "Tuning", &[("HEAD", head), ("ALL", whole)], 2e-5);
    let states: Vec<&str> = net.names().filter(|name| name.starts_with("head.bias.")).collect();
    assert_eq!(states, ["head.bias.HEAD.momentum_buffer", "head.bias.ALL.exp_avg", "head.bias.ALL.exp_avg_sq"]);
    assert!(net.names().all(|name| !name.ends_with(".gradient")));
}

/// Each step has its own count, rate and loss, and takes up its own states after the other.
#[test]
fn steps_count_by_themselves() {
    let mut net = Tuning::on(&cpu()).unwrap();
    let (x, labels) = (numbers(1), all_labels());
    Tuning::head(&mut net).train_step(&x, &labels).unwrap();
    let loss = Tuning::all(&mut net).train_step(&x, &labels).unwrap();
    Tuning::all(&mut net).enqueue_step(&x, &labels).unwrap();
    let later = Tuning::all(&mut net).loss().unwrap();
    assert_ne!(loss, later);
    let counts = [Tuning::head(&mut net).steps().unwrap(), Tuning::all(&mut net).steps().unwrap()];
    assert_eq!(counts, [1, 2]);
    Tuning::head(&mut net).set_steps(7).unwrap();
    Tuning::head(&mut net).set_lr(0.5).unwrap();
    assert_eq!([Tuning::head(&mut net).lr().unwrap(), Tuning::all(&mut net).lr().unwrap()], [0.5, 1e-2]);
    assert_eq!(Tuning::all(&mut net).steps().unwrap(), 2);
    let error = Tuning::head(&mut net).set_steps(1 << 53).unwrap_err().to_string();
    assert!(error.contains("cannot have been made"), "{error}");
    assert!(Tuning::all(&mut net).set_lr(-1.0).is_err());

    // Validation changes nothing.
    let before = net.snapshot().unwrap();
    let losses = [Tuning::head(&mut net).eval_loss(&x, &labels), Tuning::all(&mut net).eval_loss(&x, &labels)];
    let [head, whole] = losses.map(Result::unwrap);
    assert_eq!(head, whole);
    assert_eq!(net.snapshot().unwrap(), before);
    let message = "the network has no `const TRAIN`; its steps have names of their own, as `Gan::critic(&mut net)`";
    for error in [net.steps().unwrap_err(), net.set_lr(1.0).unwrap_err(), net.loss().unwrap_err()] {
        assert!(error.to_string().contains(message), "{error}");
    }
    net.reset().unwrap();
    assert_eq!(Tuning::head(&mut net).steps().unwrap(), 0);
    let error = Tuning::all(&mut net).loss().unwrap_err().to_string();
    assert!(error.contains("there has been no training step"), "{error}");
}

fn all_labels<S: HostShape>() -> Tensor<u32, S> {
    Tensor::from_fn(|index| index as u32 % 3)
}

/// The batch of another step lies where this one's did.
#[test]
fn a_batch_is_there_until_another_step_has_one() {
    let mut net = Tuning::on(&cpu()).unwrap();
    let (x, labels) = (numbers(1), all_labels());
    Tuning::head(&mut net).train_step(&x, &labels).unwrap();
    Tuning::head(&mut net).train_again().unwrap();
    assert_eq!(Tuning::head(&mut net).steps().unwrap(), 2);
    Tuning::all(&mut net).train_step(&x, &labels).unwrap();
    let error = Tuning::head(&mut net).train_again().unwrap_err().to_string();
    let message = "what ran last has taken the place of this step's batch; hand it in again, with `enqueue_step`";
    assert!(error.contains(message), "{error}");
    Tuning::all(&mut net).train_again().unwrap();
    net.forward(&x).unwrap();
    let error = Tuning::all(&mut net).train_again().unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

/// A snapshot has every step's numbers and states: what follows it is the same to the bit.
#[test]
fn a_snapshot_has_all_steps() {
    let mut net = Tuning::on(&cpu()).unwrap();
    let rounds = |net: &mut Net<Tuning, Cpu>| -> Vec<u32> {
        let (x, labels) = (numbers(1), all_labels());
        let losses = (0..3).flat_map(|_| {
            let first = Tuning::head(net).train_step(&x, &labels).unwrap();
            [first, Tuning::all(net).train_step(&x, &labels).unwrap()]
        });
        losses.map(f32::to_bits).collect()
    };
    rounds(&mut net);
    Tuning::head(&mut net).set_lr(0.25).unwrap();
    let snapshot = net.snapshot().unwrap();
    assert_eq!(snapshot.numbers_of_steps().len(), 2);
    assert_eq!([snapshot.numbers_of_steps()[0].lr, snapshot.numbers_of_steps()[1].lr], [0.25, 1e-2]);
    let expected = rounds(&mut net);
    let mut other = Tuning::on(&cpu()).unwrap();
    other.restore(&snapshot).unwrap();
    assert_eq!(rounds(&mut other), expected);
    assert_eq!(Tuning::head(&mut other).lr().unwrap(), 0.25);
    let error = other.set_state_numbers_of_steps(&snapshot.numbers_of_steps()[..1]).unwrap_err().to_string();
    assert!(error.contains("the state has the numbers of 1 training steps, and the network makes 2"), "{error}");
}

/// The largest step is the network's budget, and is named.
#[test]
fn the_largest_step_is_the_budget() {
    let arenas: Vec<u64> = Gan::STEPS.iter().map(|step| step.compiled.budget[gpumem::Line::Arena]).collect();
    assert_eq!(Gan::STEPS.iter().map(|step| step.name).collect::<Vec<_>>(), ["CRITIC", "GENERATOR"]);
    assert!(arenas[0] > arenas[1], "{arenas:?}");
    assert_eq!(Gan::BUDGET[gpumem::Line::Arena], arenas[0]);
    assert_eq!(Gan::PROGRAM.tables.step, "CRITIC");
    let report = gpumem::report::json::<Gan>();
    assert!(report.contains("\"step\":\"CRITIC\"") && report.contains("\"step\":\"GENERATOR\""), "{report}");
    assert!(gpumem::report::table::<Gan>().starts_with("Gan: training, step `CRITIC`, batch 4, F32"));
    assert!(max_batch!(Gan, RTX_3060) > 1000);
    let alone = Gan::STEPS.iter().map(|step| step.compiled.budget[gpumem::Line::Optimizer]).collect::<Vec<_>>();
    assert_eq!(alone[0], alone[1]);
}

network! {
    /// A step beside `TRAIN`, over any batch.
    pub struct Wide<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, trains: "body*", optimizer: Sgd { lr: 0.5 }, loss: Mse };
    const LAST: Train = Train { batch: BATCH, trains: "last*", optimizer: Adam { lr: 0.01 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3, name = "body"), Tanh, Linear(2, name = "last")]
    }
}

fits!(Wide<3>);

#[test]
fn train_beside_others_is_made_by_the_network() {
    let mut net = Wide::<3>::on(&cpu()).unwrap();
    let (x, t) = (numbers(1), numbers(2));
    let [body, last] = ["body.weight", "last.weight"].map(|name| net.get(name).unwrap());
    let first = net.train_step(&x, &t).unwrap();
    assert_eq!(net.get("last.weight").unwrap(), last);
    assert_ne!(net.get("body.weight").unwrap(), body);
    let second = Wide::last(&mut net).train_step(&x, &t).unwrap();
    assert_ne!(net.get("last.weight").unwrap(), last);
    assert!(second < first);
    assert_eq!((net.steps().unwrap(), net.loss().unwrap()), (1, first));
    assert_eq!(Wide::last(&mut net).loss().unwrap(), second);
    assert_eq!(net.forward(&x).unwrap().as_slice().len(), 6);
    assert!(net.train_again().is_err());
    assert_eq!(Wide::<3>::TRAIN.batch, 3);
}
