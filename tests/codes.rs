//! Optimizer states of 8 bits in networks: their bytes, their names in files, and what training makes of them beside states of 32 bits.
//! The table of `docs/lab/memory-results.md` that compares both is made here: `UPDATE_DOCS=1 cargo test --test codes` writes it anew.

#[path = "../examples/shared/mod.rs"]
mod shared;

use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};
use shared::{Digit, shuffle};
use std::fmt::Write as _;

/// The network of `examples/digits.rs` with these optimizers.
macro_rules! networks {
    ($($name:ident: $optimizer:expr, $precision:expr, $update:expr;)*) => {
        $(
            network! {
                pub struct $name;

                const TRAIN: Train = Train {
                    batch: 32,
                    optimizer: $optimizer,
                    loss: CrossEntropy,
                    precision: $precision,
                    update: $update,
                    seed: 7,
                };

                fn forward(image: Image<1, 8, 8>) -> Logits<10> {
                    [conv(32), conv(32), MaxPool2d(2), conv(64), Flatten, Linear(10)]
                }

                fn conv(channels: usize) -> Block {
                    [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
                }
            }
        )*
    };
}

networks! {
    Exact: AdamW { lr: 2e-3 }, F32, Fused;
    Coded: AdamW8bit { lr: 2e-3 }, F32, Fused;
    CodedInHalves: AdamW8bit { lr: 2e-3 }, Mixed(F16), Separate;
    CodedInBf16: AdamW8bit { lr: 2e-3 }, Bf16, Separate;
    Grouped: AdamW8bit {
        lr: 2e-3,
        groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }, Group { paths: "linear.*", lr: 4e-3 }],
    }, F32, Separate;
}

/// Elements of the parameters that are large enough for codes, and of all others.
const LARGE: [u64; 3] = [32 * 32 * 9, 64 * 32 * 9, 10 * 1024];
const SMALL: u64 = 32 * 9 + 2 * (32 + 32 + 64) + 10;

/// A byte for each element of both means, four for each block of both; a smaller parameter has eight bytes for each element.
#[test]
fn bytes_are_those_that_are_stored() {
    let codes: u64 = LARGE.iter().map(|elements| 2 * elements + 2 * 4 * elements.div_ceil(256)).sum();
    let expected = codes + 8 * SMALL;
    let found = [
        Coded::TRAINING.unwrap().budget[Line::Optimizer],
        CodedInHalves::TRAINING.unwrap().budget[Line::Optimizer],
        CodedInBf16::TRAINING.unwrap().budget[Line::Optimizer],
        Grouped::TRAINING.unwrap().budget[Line::Optimizer],
    ];
    assert_eq!(found, [expected; 4]);
    assert_eq!(Exact::TRAINING.unwrap().budget[Line::Optimizer], 8 * (LARGE.iter().sum::<u64>() + SMALL));
}

#[test]
fn states_have_names_and_shapes() {
    let net = Coded::on(&Cpu::new()).unwrap();
    let states = net.tensors().filter(|tensor| tensor.kind == Kind::OptimizerState);
    let found: Vec<(String, Vec<u64>)> = states.map(|it| (it.name.to_string(), it.shape.to_vec())).collect();
    let of = |name: &str| -> Vec<(&str, &[u64])> {
        let all = found.iter().filter_map(|(found, shape)| Some((found.strip_prefix(name)?, shape.as_slice())));
        all.collect()
    };
    let scales = [(".exp_avg.scale", &[40][..]), (".exp_avg_sq.scale", &[40][..])];
    assert_eq!(
        of("linear.weight"),
        [[(".exp_avg.codes", &[10_240][..]), (".exp_avg_sq.codes", &[10_240][..])], scales].concat()
    );
    assert_eq!(of("linear.bias"), [(".exp_avg", &[10][..]), (".exp_avg_sq", &[10][..])]);
}

type Images = <Coded as Network>::Input;

fn images(batch: &[Digit]) -> Images {
    Tensor::from_fn(|index| batch.get(index / 64).map_or(0.0, |(pixels, _)| pixels[index % 64]))
}

fn labels(batch: &[Digit]) -> <Coded as Network>::Target {
    Tensor::from_fn(|index| batch.get(index).map_or(0, |(_, label)| *label))
}

/// What is in files is all that a training goes on from: codes and scales come back as they were.
macro_rules! resumed {
    ($($network:ident on $device:expr),*) => {
        $({
            let (device, digits) = ($device, shared::digits().unwrap());
            let mut batches = digits.chunks_exact(32);
            let step = |net: &mut gpumem::Net<$network, Cpu>, batch: &[Digit]| {
                net.train_step(&images(batch), &labels(batch)).unwrap()
            };
            let mut net = $network::on(&device).unwrap();
            for batch in batches.by_ref().take(4) {
                step(&mut net, batch);
            }
            let codes = net.get("linear.weight.exp_avg.codes").unwrap();
            assert!(codes.iter().all(|code| code.fract() == 0.0 && (0.0..256.0).contains(code)));
            assert!(codes.iter().any(|&code| code > 200.0), "{codes:?}");
            let mut other = $network::on(&device).unwrap();
            let names: Vec<String> = net.names().map(String::from).collect();
            for name in &names {
                other.set(name, &net.get(name).unwrap()).unwrap();
            }
            other.set_steps(net.steps().unwrap()).unwrap();
            for batch in batches.take(3) {
                assert_eq!(step(&mut net, batch).to_bits(), step(&mut other, batch).to_bits(), "{}", $network::NAME);
            }
            for name in &names {
                assert_eq!(net.get(name).unwrap(), other.get(name).unwrap(), "{} {name}", $network::NAME);
            }
            // A model for others is its parameters and statistics alone.
            let mut served = $network::on(&device).unwrap();
            served.copy_from(&mut net).unwrap();
            assert_eq!(served.get("linear.weight").unwrap(), net.get("linear.weight").unwrap());
            assert!(served.get("linear.weight.exp_avg.scale").unwrap().iter().all(|&scale| scale == 0.0));
            net.reset().unwrap();
            assert!(net.get("linear.weight.exp_avg.codes").unwrap().iter().all(|&code| code == 0.0));
        })*
    };
}

#[test]
fn a_training_goes_on_from_what_is_in_files() {
    resumed!(Coded on Cpu::new(), Grouped on Cpu::new(), CodedInHalves on Cpu::new().emulate());
}

/// What training on the digits came to.
struct Course {
    /// The mean of the last epoch's losses.
    loss: f32,
    /// Digits that are read right, of those that were held back.
    right: usize,
    /// All parameters.
    weights: Vec<f32>,
}

const EPOCHS: u64 = 6;
/// Orders of the samples, with which results differ as they do with anything that is drawn.
const ORDERS: u64 = 5;

/// Trains in some order of the samples.
macro_rules! course {
    ($network:ident, $order:expr) => {{
        let samples = shared::digits().unwrap();
        let (test, train) = samples.split_at(samples.len() / 5);
        let mut train = train.to_vec();
        let mut net = $network::on(&Cpu::with_threads(1).unwrap()).unwrap();
        let mut loss = 0.0;
        for epoch in 0..EPOCHS {
            // Half a cosine from the first learning rate to 0.
            net.set_lr(2e-3 * 0.5 * (1.0 + (std::f64::consts::PI * epoch as f64 / EPOCHS as f64).cos())).unwrap();
            shuffle(&mut train, 100 * $order + epoch);
            let batches = train.chunks_exact(32);
            let count = batches.len() as f32;
            loss = batches.map(|batch| net.train_step(&images(batch), &labels(batch)).unwrap()).sum::<f32>() / count;
        }
        let mut right = 0;
        for batch in test.chunks(32) {
            let logits = net.forward(&images(batch)).unwrap();
            for ((_, label), logits) in batch.iter().zip(logits.samples()) {
                right += usize::from((0..10).max_by(|&a, &b| logits[a].total_cmp(&logits[b])) == Some(*label as usize));
            }
        }
        Course { loss, right, weights: parameters!(net) }
    }};
}

macro_rules! parameters {
    ($net:expr) => {{
        let names = $net.tensors().filter(|it| it.kind == Kind::Parameter).map(|it| it.name.to_string());
        let names: Vec<String> = names.collect();
        names.iter().flat_map(|name| $net.get(name).unwrap()).collect::<Vec<f32>>()
    }};
}

fn apart(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn digits_are_learned_as_with_states_of_32_bits() {
    let mut net = Exact::on(&Cpu::new()).unwrap();
    let begun = parameters!(net);
    // Beside each other, each on one core: so small a network leaves cores idle otherwise.
    let courses: Vec<[Course; 2]> = std::thread::scope(|scope| {
        let course = |order| scope.spawn(move || [course!(Exact, order + 1), course!(Coded, order + 1)]);
        let all: Vec<_> = (0..ORDERS).map(course).collect();
        all.into_iter().map(|course| course.join().unwrap()).collect()
    });
    let mean = |of: &dyn Fn(usize) -> f64| (0..courses.len()).map(of).sum::<f64>() / courses.len() as f64;
    let losses = [0, 1].map(|which| mean(&|order| f64::from(courses[order][which].loss)));
    let right = [0, 1].map(|which| mean(&|order| courses[order][which].right as f64));
    let moved = [0, 1].map(|which| mean(&|order| apart(&courses[order][which].weights, &begun)));
    let from_exact = mean(&|order| apart(&courses[order][1].weights, &courses[order][0].weights));
    let next = |order: usize| &courses[(order + 1) % courses.len()][0].weights;
    let between_orders = mean(&|order| apart(&courses[order][0].weights, next(order)));

    // Codes change less than another order of the samples does.
    assert!(from_exact <= 0.5 * between_orders, "{from_exact} beside {between_orders}");
    assert!((losses[1] - losses[0]).abs() <= 0.25 * losses[0], "{losses:?}");
    assert!(right.iter().all(|&right| right >= 350.0), "{right:?}");
    let mut text = String::from(
        "| digits, 6 epochs, in 5 orders | bytes of the optimizer | loss of the last epoch | right of 359 held back | moved by | apart from \
         `AdamW`'s |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let bytes = [Exact::TRAINING, Coded::TRAINING].map(|it| it.unwrap().budget[Line::Optimizer]);
    for (which, (name, apart)) in [("AdamW", 0.0), ("AdamW8bit", from_exact)].into_iter().enumerate() {
        let (bytes, loss, right, moved) = (bytes[which], losses[which], right[which], moved[which]);
        writeln!(text, "| `{name}` | {bytes} | {loss:.4} | {right:.1} | {moved:.2} | {apart:.2} |").unwrap();
    }
    writeln!(text, "| `AdamW`, in the next order | | | | | {between_orders:.2} |").unwrap();
    check(&text);
}

/// Compares the part of `docs/lab/memory-results.md` with `text`, numbers to a tenth: two machines do not round alike, and the difference grows
/// from step to step.
fn check(text: &str) {
    let path = format!("{}/docs/lab/memory-results.md", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- codes -->\n", "<!-- end of codes -->");
    let (from, to) = (doc.find(start).unwrap() + start.len(), doc.find(end).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{text}{}", &doc[..from], &doc[to..])).unwrap();
        return;
    }
    let (found, expected): (Vec<&str>, Vec<&str>) = (text.split('|').collect(), doc[from..to].split('|').collect());
    assert_eq!(found.len(), expected.len(), "run `UPDATE_DOCS=1 cargo test --test codes`");
    for (found, expected) in found.iter().zip(expected) {
        let close = match (found.trim().parse::<f64>(), expected.trim().parse::<f64>()) {
            (Ok(found), Ok(expected)) => (found - expected).abs() <= 0.1 * expected.abs() + 1e-3,
            _ => *found == expected,
        };
        assert!(close, "{found} is not {expected}: run `UPDATE_DOCS=1 cargo test --test codes`");
    }
}
