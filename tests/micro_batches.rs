//! `micro_batches`: a step in parts. It takes the memory of a part, and is the step of the whole batch.
#![deny(warnings)]

use gpumem::__private::memory::budget::budget_at;
use gpumem::cards::GTX_1050_TI;
use gpumem::prelude::*;
use gpumem::report::{json, table};
use gpumem::{Cpu, Line};

/// Maps and vectors, dropout, a tap with a loss of its own, a weight that is used twice.
macro_rules! joined {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                loss: CrossEntropy + 0.3 * Mse(from = middle, target = codes), seed: 11, $($settings)*
            };

            fn forward(image: Image<3, 9, 7>, extra: Features<6>) -> Logits<5> {
                let shared = Linear(32, 32);
                [
                    Add(
                        [Conv2d(8, 3), Relu, Dropout2d(0.2), MaxPool2d(2), Flatten, Linear(32)],
                        [from(extra), Linear(32)],
                    ),
                    Gelu, shared, tap(middle), Dropout(0.3), LayerNorm, shared, Tanh, Linear(5),
                ]
            }
        }
    };
}

joined!(Whole, { batch: 12, optimizer: Adam { lr: 1e-3 } });
joined!(Held, { batch: 12, optimizer: Adam { lr: 1e-3 }, update: Separate });
joined!(Split, { batch: 12, micro_batches: 4, optimizer: Adam { lr: 1e-3 } });
joined!(Single, { batch: 12, micro_batches: 12, optimizer: Adam { lr: 1e-3 }, update: Separate });
joined!(Clipped, {
    batch: 12, clip: GlobalNorm(0.05), schedule: Cosine { warmup: 2, total: 9 }, optimizer: Sgd { lr: 0.1, momentum: 0.9 }
});
joined!(SplitClipped, {
    batch: 12, micro_batches: 3, clip: GlobalNorm(0.05), schedule: Cosine { warmup: 2, total: 9 },
    optimizer: Sgd { lr: 0.1, momentum: 0.9 }
});
joined!(Leaner, { batch: 12, micro_batches: 4, optimizer: Adam { lr: 1e-3 }, checkpoint: Budget(0.95) });
joined!(Cheap, { batch: 12, micro_batches: 4, optimizer: Adam { lr: 1e-3 }, checkpoint: Cheap });
joined!(Narrow, { batch: 12, micro_batches: 4, optimizer: Adam { lr: 1e-3 }, precision: Mixed(Bf16) });
joined!(Short, { batch: 12, micro_batches: 4, optimizer: Adam { lr: 1e-3 }, precision: Bf16 });
joined!(Most, { batch: Largest, micro_batches: 3, optimizer: Adam { lr: 1e-3 }, cards: [GTX_1050_TI], headroom: ROOM });

const ROOM: u64 = GTX_1050_TI.usable() - GTX_1050_TI.reserve() - mib(1.0);

/// Losses of four steps, a validation loss, outputs, and everything that a network keeps after them.
macro_rules! trained {
    ($name:ident) => {{
        let mut net = $name::on(&Cpu::new().emulate()).unwrap();
        let image = |step: usize| Tensor::from_fn(|index| ((index * 7919 + step * 31) % 1009) as f32 / 504.5 - 1.0);
        let extra = |step: usize| Tensor::from_fn(|index| ((index * 613 + step * 17) % 101) as f32 / 50.5 - 1.0);
        let codes = Tensor::from_fn(|index| ((index * 29) % 53) as f32 / 53.0);
        let mut losses = Vec::new();
        for step in 0..4 {
            let label = Tensor::from_fn(|index| ((index + step) % 5) as u32);
            losses.push(net.train_step((&image(step), &extra(step)), (&label, &codes)).unwrap());
        }
        let label = Tensor::from_fn(|index| (index % 5) as u32);
        losses.push(net.eval_loss((&image(9), &extra(9)), (&label, &codes)).unwrap());
        let output = net.forward((&image(9), &extra(9))).unwrap().into_vec();
        let gradient = |name: &str| name.ends_with(".gradient");
        let names: Vec<String> = net.names().filter(|name| !gradient(name)).map(String::from).collect();
        let kept: Vec<Vec<f32>> = names.iter().map(|name| net.get(name).unwrap()).collect();
        [vec![losses, output], kept].concat()
    }};
}

/// The largest difference beside the largest number of each.
fn apart(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let of = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        assert_eq!(found.len(), expected.len());
        let largest = expected.iter().fold(1e-6f32, |most, number| most.max(number.abs()));
        found.iter().zip(expected).fold(0.0f32, |most, (one, other)| most.max((one - other).abs())) / largest
    };
    found.iter().zip(expected).map(of).fold(0.0, f32::max)
}

fn bits(all: &[Vec<f32>]) -> Vec<Vec<u32>> {
    all.iter().map(|numbers| numbers.iter().map(|number| number.to_bits()).collect()).collect()
}

/// Adam divides by roots of squares, so that the rounding of small gradients shows in parameters.
#[test]
fn a_step_in_parts_is_the_step_of_the_batch() {
    let whole = trained!(Whole);
    assert!(whole.iter().flatten().all(|number| number.is_finite()));
    assert_eq!(bits(&trained!(Held)), bits(&whole));
    for (name, found) in [("4 parts", trained!(Split)), ("12 parts", trained!(Single)), ("emulated", trained!(Narrow))]
    {
        assert!(
            apart(&found[..2], &whole[..2]) <= 2e-6,
            "{name}: losses and outputs, {}",
            apart(&found[..2], &whole[..2])
        );
        assert!(apart(&found, &whole) <= 1e-4, "{name}: {}", apart(&found, &whole));
    }
    let (found, clipped) = (trained!(SplitClipped), trained!(Clipped));
    assert!(apart(&found, &clipped) <= 3e-6, "{}", apart(&found, &clipped));
    assert!(apart(&clipped[..1], &whole[..1]) > 1e-4);
    // What is computed again is what it was, in each part.
    let split = bits(&trained!(Split));
    assert_eq!(bits(&trained!(Leaner)), split);
    assert_eq!(bits(&trained!(Cheap)), split);
}

#[test]
fn the_budget_is_that_of_a_part() {
    let (whole, held, split) = (Whole::BUDGET, Held::BUDGET, Split::BUDGET);
    assert_eq!(whole[Line::Gradients], 0);
    assert_eq!(split[Line::Gradients], held[Line::Gradients]);
    assert_eq!(split[Line::Gradients], split[Line::Weights]);
    assert_eq!(split[Line::BatchIo] * 4, whole[Line::BatchIo]);
    // But for scratch memory, which does not depend on the batch.
    let inside = |budget: gpumem::Budget| budget[Line::Activations] - budget.workspace;
    assert!(inside(split) * 3 < inside(whole));
    assert!(Single::BUDGET[Line::Activations] < split[Line::Activations]);
    assert!(Leaner::BUDGET[Line::Activations] * 100 <= split[Line::Activations] * 95);
    for line in [Line::Weights, Line::Optimizer, Line::Buffers] {
        assert_eq!(split[line], whole[line], "{}", line.name());
    }
    // Sums of gradients are f32 beside master copies, too.
    assert_eq!(Narrow::BUDGET[Line::Gradients], split[Line::Gradients]);
    assert!(Narrow::BUDGET[Line::Weights] < split[Line::Weights]);
    assert_eq!(Short::BUDGET[Line::Gradients], Short::BUDGET[Line::Weights]);
    assert_eq!((Split::PROGRAM.batch, Split::PROGRAM.samples(), Split::TRAIN.micro_batches), (12, 3, 4));
    // The forward pass beside it takes as many samples at once.
    assert_eq!(Split::EVALUATION.samples(), 3);
    assert!(Split::EVALUATION.budget[Line::Arena] < Whole::EVALUATION.budget[Line::Arena]);
    assert!(json::<Split>().contains("\"batch\":12") && json::<Split>().contains("\"micro_batches\":4"));
    assert!(!json::<Whole>().contains("micro_batches"));
    assert!(table::<Split>().starts_with("Split: training, batch 12 in 4 micro-batches, F32\n"));
}

#[test]
fn the_largest_batch_is_a_multiple() {
    let program = Most::TRAINING.unwrap();
    let arena = |batch| budget_at(program.tables, batch, program.precision).unwrap()[Line::Arena];
    let batch = Most::TRAIN.batch as u64;
    assert!(batch > 3 && batch.is_multiple_of(3), "{batch}");
    assert!(arena(batch) <= 1 << 20 && arena(batch + 1) > 1 << 20, "{batch}");
    assert_eq!(max_batch!(Generic<2>, GTX_1050_TI) % 2, 0);
}

network! {
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, micro_batches: 2, optimizer: Sgd { lr: 0.1 } };

    fn forward(x: Features<64>) -> Logits<10> { [Linear(256), Relu, Linear(10)] }
}

/// Terms that divide by what targets come to: classes that weigh more than others, positions that do not count, two terms of one target and
/// one of another.
macro_rules! counted {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                loss: CrossEntropy { weight: [1.0, 0.5, 2.0, 0.0, 3.0], ignore_index: -100, label_smoothing: 0.1 }
                    + 0.3 * Mse(from = middle, target = codes) + 0.5 * CrossEntropy { ignore_index: -100 }
                    + 0.7 * Nll { weight: [0.25, 4.0, 1.5], ignore_index: 1 }(from = other, target = kinds),
                seed: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, $($settings)*
            };

            fn forward(tokens: Tokens<6>) -> TokenLogits<6, 5> {
                [
                    Embedding(7, 8), Linear(8), Tanh, tap(middle), Linear(3), LogSoftmax, tap(other),
                    from(middle), Linear(5),
                ]
            }
        }
    };
}

counted!(WholeCounted, { batch: 12 });
counted!(SplitCounted, { batch: 12, micro_batches: 4 });
counted!(SingleCounted, { batch: 12, micro_batches: 12 });
counted!(NarrowCounted, { batch: 12, micro_batches: 3, precision: Mixed(F16) });

/// Losses of four steps and parameters after each, and a validation loss. In the last step no position counts.
macro_rules! counted_steps {
    ($name:ident) => {{
        let mut net = $name::on(&Cpu::new().emulate()).unwrap();
        let mut all = Vec::new();
        for step in 0..4 {
            let tokens = Tensor::from_fn(|index| ((index * 5 + step) % 7) as u32);
            let codes = Tensor::from_fn(|index| ((index * 29 + step) % 53) as f32 / 53.0);
            // Samples 3 to 5, which are a part of four, do not count, nor do some others.
            let is_out = |index: usize| step == 3 || (3..6).contains(&(index / 6)) || index % (7 + step) == 0;
            let label = Tensor::from_fn(|index| if is_out(index) { -100i32 as u32 } else { (index % 5) as u32 });
            let kinds = Tensor::from_fn(|index| if is_out(index) { 1 } else { (2 * (index % 2)) as u32 });
            if step == 2 {
                all.push(vec![net.eval_loss(&tokens, (&label, &codes, &kinds)).unwrap()]);
            }
            all.push(vec![net.train_step(&tokens, (&label, &codes, &kinds)).unwrap()]);
            let names: Vec<String> =
                net.names().filter(|name| !name.ends_with(".gradient")).map(String::from).collect();
            all.extend(names.iter().map(|name| net.get(name).unwrap()));
        }
        all
    }};
}

/// A mean over what counts is over the whole batch, however that is spread over its parts.
#[test]
fn what_targets_come_to_is_that_of_the_batch() {
    let whole = counted_steps!(WholeCounted);
    for (name, found) in [
        ("4 parts", counted_steps!(SplitCounted)),
        ("12 parts", counted_steps!(SingleCounted)),
        ("emulated", counted_steps!(NarrowCounted)),
    ] {
        let is_nan =
            |all: &[Vec<f32>]| all.iter().map(|one| one.iter().any(|number| number.is_nan())).collect::<Vec<_>>();
        assert_eq!(is_nan(&found), is_nan(&whole), "{name}");
        assert!(apart(&found, &whole) <= 1e-6, "{name}: {}", apart(&found, &whole));
    }
    // Nothing over nothing is no number, as in PyTorch, and no gradient either.
    let nan = whole.iter().filter(|one| one.iter().any(|number| number.is_nan())).count();
    assert_eq!(nan, 1);
    // A sum for each sample of a part and each of the three terms.
    let [whole, split] = [WholeCounted::BUDGET, SplitCounted::BUDGET].map(|budget| budget[Line::BatchIo]);
    assert_eq!(4 * split, whole + 2 * 12 * 3 * 4);
}

/// Only the last part of a batch is on the device.
#[test]
fn a_batch_is_handed_in_again() {
    let mut net = Generic::<4>::on(&Cpu::new()).unwrap();
    let (x, y) = (Tensor::from_fn(|index| index as f32 / 256.0), Tensor::from([0, 1, 2, 3]));
    net.train_step(&x, &y).unwrap();
    let said = net.train_again().unwrap_err().to_string();
    assert!(said.contains("hand the batch in again, with `enqueue_step`"), "{said}");
    assert_eq!(net.steps().unwrap(), 1);
    // A label that is no class, in the second part: no step was made, and the next begins anew.
    let before = net.get("linear[0].weight").unwrap();
    assert!(net.train_step(&x, &Tensor::from([0, 1, 10, 3])).is_err());
    assert_eq!((net.steps().unwrap(), net.get("linear[0].weight").unwrap()), (1, before));
    let mut other = Generic::<4>::on(&Cpu::new()).unwrap();
    other.train_step(&x, &y).unwrap();
    assert_eq!(net.train_step(&x, &y).unwrap(), other.train_step(&x, &y).unwrap());
    assert_eq!(net.get("linear[0].weight").unwrap(), other.get("linear[0].weight").unwrap());
}

network! {
    pub struct Normalised;

    const TRAIN: Train = Train { batch: 6, micro_batches: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } };

    fn forward(image: Image<2, 5, 4>) -> Logits<4> {
        [Conv2d(3, 3, bias = false), BatchNorm2d, Relu, Flatten, Linear(4)]
    }
}

/// BatchNorm has the statistics of each part and moves the running ones with each. The numbers are those of PyTorch 2, for three steps
/// of `(cross_entropy(net(x), y) / 3).backward()` for each two of six samples and one `optimizer.step()`.
#[test]
fn batch_norm_looks_at_each_part() {
    let fill = |count: usize, salt: usize| -> Vec<f32> {
        (0..count).map(|index| ((index * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
    };
    let mut net = Normalised::on(&Cpu::new()).unwrap();
    let scales: Vec<f32> = fill(3, 2).iter().map(|x| x + 1.0).collect();
    let beginning = [
        ("conv2d.weight", fill(54, 1)),
        ("batch_norm2d.weight", scales),
        ("batch_norm2d.bias", fill(3, 3)),
        ("linear.weight", fill(72, 4)),
        ("linear.bias", fill(4, 5)),
    ];
    for (name, values) in &beginning {
        net.set(name, values).unwrap();
    }
    let close = |name: &str, found: &[f32], expected: &[f32]| {
        let largest = expected.iter().fold(0.0f32, |most, number| most.max(number.abs()));
        let all = found.iter().zip(expected).all(|(one, other)| (one - other).abs() <= 3e-6 * largest);
        assert!(all, "{name}: {found:?}, not {expected:?}");
    };
    for (step, expected) in [1.732_871_9, 1.489_975_4, 1.365_272].into_iter().enumerate() {
        let image = Tensor::from_vec(fill(6 * 2 * 5 * 4, 10 + step)).unwrap();
        let label = Tensor::from_fn(|index| ((index + step) % 4) as u32);
        close("loss", &[net.train_step(&image, &label).unwrap()], &[expected]);
    }
    let expected: [(&str, &[f32]); 7] = [
        ("batch_norm2d.running_mean", &[0.000_585_2, -0.017_509_3, 0.015_092_7]),
        ("batch_norm2d.running_var", &[0.404_841_6, 0.437_176_2, 0.456_496_4]),
        ("batch_norm2d.weight", &[0.996_002_9, 0.816_646_6, 0.770_698]),
        ("batch_norm2d.bias", &[-0.139_648_2, -0.375_888_6, -0.437_546_8]),
        ("linear.bias", &[0.418_809_8, 0.361_467_1, 0.213_469, -0.006_629_9]),
        (
            "conv2d.weight",
            &[
                0.147_746_4,
                0.168_763,
                -0.117_076_4,
                -0.017_022_1,
                -0.250_706_4,
                -0.482_496,
                0.347_113_8,
                0.228_936_7,
                0.121_013_2,
            ],
        ),
        (
            "linear.weight",
            &[
                -0.306_865_2,
                -0.516_156_9,
                0.388_081_7,
                0.229_991_9,
                0.018_531_9,
                -0.029_904,
                -0.267_409_9,
                -0.331_662_4,
            ],
        ),
    ];
    for (name, expected) in expected {
        close(name, &net.get(name).unwrap()[..expected.len()], expected);
    }
}

network! {
    /// Statistics that every part moves, and indices on either side.
    pub struct Counted;

    const TRAIN: Train = Train { batch: 8, micro_batches: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(tokens: Tokens<3>) -> Logits<4> {
        [Embedding(7, 4), Permute(0, 2, 1), BatchNorm1d, Flatten, Linear(4)]
    }
}

/// An index is known by its place in the whole batch, and is found before a part runs.
#[test]
fn a_bad_index_of_a_later_part_changes_nothing() {
    let mut net = Counted::on(&Cpu::new()).unwrap();
    let tokens = Tensor::from_fn(|index| index as u32 % 7);
    let labels = Tensor::from_fn(|index| index as u32 % 4);
    let mean = net.get("batch_norm1d.running_mean").unwrap();
    let (mut wrong_labels, mut wrong_tokens) = (labels.clone(), tokens.clone());
    wrong_labels.as_mut_slice()[5] = 9;
    wrong_tokens.as_mut_slice()[20] = 7;
    let label = "label 9 at position 5 is too large: it must be below 4";
    let token = "token 7 at position 20 is too large: it must be below 7";
    assert_eq!(net.train_step(&tokens, &wrong_labels).unwrap_err().to_string(), label);
    assert_eq!(net.eval_loss(&tokens, &wrong_labels).unwrap_err().to_string(), label);
    assert_eq!(net.train_step(&wrong_tokens, &labels).unwrap_err().to_string(), token);
    assert_eq!(net.forward(&wrong_tokens).unwrap_err().to_string(), token);
    assert_eq!(net.get("batch_norm1d.running_mean").unwrap(), mean);
    assert!(net.train_step(&tokens, &labels).unwrap() > 0.0);
    assert_ne!(net.get("batch_norm1d.running_mean").unwrap(), mean);
}

network! {
    /// One value of each channel in a part.
    pub struct Alone<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, micro_batches: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3), BatchNorm1d, Linear(2)]
    }
}

#[test]
fn a_part_of_a_single_value_is_refused() {
    let error = Alone::<2>::on(&Cpu::new()).unwrap_err().to_string();
    let expected = "Alone: `batch_norm1d` normalises over a micro-batch of 1 sample with a single value of each channel, of which \
                    nothing is left; use a batch of at least 4 or fewer `micro_batches`";
    assert_eq!(error, expected);
    assert!(Alone::<4>::on(&Cpu::new()).is_ok());
}
