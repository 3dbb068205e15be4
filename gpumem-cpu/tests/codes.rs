//! Optimizer states of 8 bits: against torchao, against their definition, and against states of 32 bits.

mod harness;

use gpumem_core::Update;
use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::number::dynamic_8bit::DynamicMap;
use gpumem_core::train::optim::{Adam, AdamW, AdamW8bit, Group, Optimizer, Sgd};
use harness::graphs::{chain, numbers};
use harness::{Loaded, Truth, assert_close};

fn load(dims: &[u64], layers: &str, optimizer: Optimizer, moments: u64, update: Update, batch: u64) -> Loaded {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    let training = Training {
        loss: &[Term::MSE],
        moments,
        update,
        skips_overflow: true,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    Loaded::new(&graph, output, training, batch, optimizer)
}

/// How many elements are others.
fn others(found: &[f32], expected: &[f32]) -> usize {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).filter(|(found, expected)| found != expected).count()
}

/// Five steps of torchao, whose codes are those of gradients that were summed up in another order: an element that lies half way between
/// two entries may be the other one.
#[test]
fn steps_are_those_of_torchao() {
    let truth = Truth::read("optim/adamw_8bit.safetensors");
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, weight_decay: 0.1, ..AdamW8bit::DEFAULT });
    let names = [
        ("fc1.weight", "linear0.weight"),
        ("fc1.bias", "linear0.bias"),
        ("fc2.weight", "linear2.weight"),
        ("fc2.bias", "linear2.bias"),
    ];
    for update in [Update::Fused, Update::Separate] {
        let mut loaded = load(&[64], "Linear(64) | Tanh | Linear(2)", optimizer, optimizer.moments(), update, 8);
        names.iter().for_each(|(theirs, ours)| loaded.set(ours, truth.words(&format!("before.{theirs}"))));
        loaded.set("input", truth.words("X"));
        loaded.set("target", truth.words("Y"));
        for (step, expected) in truth.floats("loss").into_iter().enumerate() {
            assert_close(&format!("loss {step}"), &[loaded.step().unwrap()], &[expected], 1e-4);
        }
        for (theirs, ours) in names {
            let (found, expected) = (loaded.get(ours).unwrap(), truth.floats(&format!("after.{theirs}")));
            // A step apart at most are elements that were another entry in a step before. Of a mean of squares 0 is one that is not 0 here, for
            // gradients below 4e-4 of the largest: one in a thousand, in each step.
            let far = |by: f32| found.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > by).count();
            let [apart, far] = [1e-5, 0.01].map(far);
            assert!(100 * apart <= found.len() && far == 0, "{ours}: {apart} are others, {far} of them by a step");
            for (moment, kept) in ["exp_avg", "exp_avg_sq"].into_iter().enumerate() {
                let state = format!("state.{theirs}.{kept}");
                let mut found = loaded.get(&format!("{ours}.moment{moment}")).unwrap();
                if theirs != "fc1.weight" {
                    // The states follow the gradients, and these the weights, of which some are others.
                    assert_close(&state, &found, &truth.floats(&state), 1e-3);
                    continue;
                }
                let expected = truth.floats(&format!("{state}.codes"));
                // A mean of squares above 0 is never 0 here.
                for (found, &expected) in found.iter_mut().zip(&expected).filter(|_| moment == 1) {
                    *found = if (*found, expected) == (1.0, 0.0) { 0.0 } else { *found };
                }
                let other = others(&found, &expected);
                assert!(100 * other <= found.len(), "{state}: {other} of 4096 codes are others");
                let scales = loaded.get(&format!("{ours}.moment{}", moment + 2)).unwrap();
                assert_close(&state, &scales, &truth.floats(&format!("{state}.scale")), 1e-3);
            }
        }
    }
}

/// A state as its definition has it: the nearest of all entries, block by block, but 0 for 0 alone where there is no sign.
struct State {
    is_signed: bool,
    entries: [f64; 256],
    /// The elements as they are read: an entry times its scale.
    values: Vec<f64>,
}

impl State {
    fn new(map: &DynamicMap, count: usize) -> State {
        State { is_signed: map == DynamicMap::SIGNED, entries: map.entries().map(f64::from), values: vec![0.0; count] }
    }

    /// Keeps these elements as codes. Returns the codes and the scales.
    fn keep(&mut self, values: &[f64]) -> [Vec<f32>; 2] {
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for (block, kept) in values.chunks(256).zip(self.values.chunks_mut(256)) {
            let scale = block.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
            scales.push(scale as f32);
            for (x, kept) in block.iter().zip(kept) {
                let far = |code: &usize| (self.entries[*code] * scale - x).abs();
                let first = usize::from(!self.is_signed && *x > 0.0);
                let code = (first..256).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap();
                codes.push(code as f32);
                *kept = self.entries[code] * scale;
            }
        }
        [codes, scales]
    }
}

/// The parameters of [`LAYERS`]: their names, and whether they are large enough for codes.
const PARAMETERS: [(&str, bool); 6] = [
    ("conv2d0.weight", true),
    ("conv2d0.bias", false),
    ("linear3.weight", true),
    ("linear3.bias", false),
    ("linear5.weight", false),
    ("linear5.bias", false),
];

/// 23 * 20 * 9 = 4140 elements are 16 blocks and 44 elements, 89 * 92 = 8188 one element less than 32 blocks and a few; both are no
/// multiples of the pieces that tasks work on.
const LAYERS: &str = "Conv2d(23, 3) | Tanh | Flatten | Linear(89) | Tanh | Linear(3)";

fn beginning(optimizer: Optimizer, moments: u64, update: Update) -> Loaded {
    let mut loaded = load(&[20, 4, 4], LAYERS, optimizer, moments, update, 4);
    for (index, (name, length)) in [("input", 4 * 320), ("target", 12)].into_iter().enumerate() {
        let words: Vec<u32> = (0..length).map(|i| ((i * 7 + index + 1) as f32 * 0.61).sin().to_bits()).collect();
        loaded.set(name, &words);
    }
    for (index, (name, _)) in PARAMETERS.iter().enumerate() {
        let length = loaded.get(name).unwrap().len();
        let words: Vec<u32> = (0..length).map(|i| (((i * 5 + index) as f32 * 0.83).cos() * 0.2).to_bits()).collect();
        loaded.set(name, &words);
    }
    loaded
}

/// Steps in double precision, on the gradients and from the states that there are before each, so that an element that is another
/// entry's is one only there.
fn check(adam: AdamW8bit, update: Update) {
    let optimizer = Optimizer::AdamW8bit(adam);
    let mut loaded = beginning(optimizer, optimizer.moments(), update);
    // Gradients that stay are those of a step without an update.
    let mut plain = beginning(Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), 0, Update::Separate);
    for step in 1..=4 {
        let words = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let before: Vec<Vec<f32>> = PARAMETERS.iter().map(|(name, _)| loaded.get(name).unwrap()).collect();
        PARAMETERS.iter().zip(&before).for_each(|((name, _), values)| plain.set(name, &words(values)));
        let states = PARAMETERS.map(|(name, _)| {
            [0, 1, 2, 3].map(|moment| loaded.get(&format!("{name}.moment{moment}")).unwrap_or_default())
        });
        loaded.step().unwrap();
        plain.step().unwrap();
        for (((name, has_codes), before), kept) in PARAMETERS.iter().zip(&before).zip(states) {
            let what = format!("{adam:?}, {update:?}, {name} after step {step}");
            assert_eq!(kept.each_ref().map(|kept| !kept.is_empty()), [true, true, *has_codes, *has_codes], "{what}");
            let Optimizer::AdamW8bit(own) = optimizer.of(optimizer.own(name)) else { unreachable!() };
            let gradient = plain.get(&format!("{name}.gradient")).unwrap();
            let mut states = AdamW8bit::MAPS.map(|map| State::new(map, before.len()));
            for (state, (codes, scales)) in states.iter_mut().zip([(&kept[0], &kept[2]), (&kept[1], &kept[3])]) {
                for (index, (value, &code)) in state.values.iter_mut().zip(codes).enumerate() {
                    let read = |scales: &[f32]| state.entries[code as usize] * f64::from(scales[index / 256]);
                    *value = if *has_codes { read(scales) } else { f64::from(code) };
                }
            }
            let means = |state: &State, beta: f64, power: i32| -> Vec<f64> {
                let new = |(old, &g): (&f64, &f32)| beta * old + (1.0 - beta) * f64::from(g).powi(power);
                state.values.iter().zip(&gradient).map(new).collect()
            };
            let [m, v] = [means(&states[0], own.betas.0, 1), means(&states[1], own.betas.1, 2)];
            let [of_m, of_v] = [own.betas.0, own.betas.1].map(|beta| 1.0 - beta.powi(step));
            let expected = before.iter().zip(m.iter().zip(&v)).map(|(&w, (m, v))| {
                let shrunk = f64::from(w) * (1.0 - own.lr * own.weight_decay);
                (shrunk - own.lr / of_m * m / ((v / of_v).sqrt() + own.eps)) as f32
            });
            let expected: Vec<f32> = expected.collect();
            assert_close(&what, &loaded.get(name).unwrap(), &expected, 1e-5);
            for (moment, (state, values)) in states.iter_mut().zip([m, v]).enumerate() {
                let found = [moment, moment + 2].map(|moment| loaded.get(&format!("{name}.moment{moment}")));
                if !has_codes {
                    let expected: Vec<f32> = values.iter().map(|&x| x as f32).collect();
                    assert_close(&what, found[0].as_ref().unwrap(), &expected, 1e-5);
                    continue;
                }
                let [codes, scales] = state.keep(&values);
                let other = others(found[0].as_ref().unwrap(), &codes);
                // Half way between two entries, to the digits of f32.
                assert!(1000 * other <= codes.len(), "{what}: {other} of {} codes are others", codes.len());
                assert_close(&what, found[1].as_ref().unwrap(), &scales, 1e-6);
            }
        }
    }
}

#[test]
fn steps_are_those_of_the_definition() {
    const GROUPS: &[Group] = &[
        Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear3.*", lr_factor: Some(3.0), ..Group::DEFAULT },
    ];
    for update in [Update::Fused, Update::Separate] {
        check(AdamW8bit::DEFAULT, update);
        let betas = (0.8, 0.99);
        check(AdamW8bit { lr: 0.01, betas, eps: 1e-3, weight_decay: 0.3, groups: GROUPS }, update);
    }
}

#[test]
fn a_skipped_step_changes_nothing() {
    let optimizer = Optimizer::AdamW8bit(AdamW8bit::DEFAULT);
    let mut loaded = beginning(optimizer, optimizer.moments(), Update::Separate);
    loaded.step().unwrap();
    let before = loaded.carried();
    assert_eq!(before.len(), 6 + 2 * 4 + 4 * 2);
    loaded.set("input", &[f32::INFINITY.to_bits(); 4 * 320]);
    loaded.step().unwrap();
    assert_eq!(loaded.carried(), before);
}

/// States of another optimizer are not taken for codes, nor these for them. An optimizer without states leaves them alone.
#[test]
fn states_of_another_optimizer_are_refused() {
    let (ours, theirs) = (Optimizer::AdamW8bit(AdamW8bit::DEFAULT), Optimizer::Adam(Adam::DEFAULT));
    for (one, other) in [(ours, theirs), (theirs, ours)] {
        match beginning(one, other.moments(), Update::Fused).step() {
            Err(Error::Unsupported { what, .. }) => assert!(what.contains("name the optimizer in `TRAIN`"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
    let sgd = Optimizer::Sgd(Sgd { lr: 0.1, ..Sgd::DEFAULT });
    let (mut with, mut without) = (beginning(sgd, ours.moments(), Update::Fused), beginning(sgd, 0, Update::Fused));
    with.step().unwrap();
    without.step().unwrap();
    assert!(with.get("linear3.weight.moment0").unwrap().iter().all(|&code| code == 0.0));
    for (name, _) in PARAMETERS {
        assert_eq!(with.get(name), without.get(name), "{name}");
    }
}

/// A row of zeros, whose share of its scale is no number, and gradients far apart in one block.
#[test]
fn blocks_of_zeros_and_of_all_magnitudes() {
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, ..AdamW8bit::DEFAULT });
    let mut loaded = load(&[256], "Linear(16)", optimizer, optimizer.moments(), Update::Separate, 1);
    let input: Vec<u32> = (0..256).map(|i| f32::powi(0.9, i).to_bits()).collect();
    loaded.set("input", &input);
    let target: Vec<u32> = (0..16).map(|i| if i % 2 == 0 { 0.0f32 } else { 1.0 }.to_bits()).collect();
    loaded.set("target", &target);
    for name in ["linear0.weight", "linear0.bias"] {
        let length = loaded.get(name).unwrap().len();
        loaded.set(name, &vec![0; length]);
    }
    for _ in 0..20 {
        loaded.step().unwrap();
    }
    for (block, weights) in loaded.get("linear0.weight").unwrap().chunks(256).enumerate() {
        let expected = block % 2 != 0;
        // A step is as large for small gradients as for large ones, down to those that are no entry's.
        assert!(weights.iter().all(|w| w.is_finite()) && (weights[0] != 0.0) == expected, "{block}: {weights:?}");
    }
}

/// Both optimizers from the same parameters on: losses and parameters after 40 steps.
#[test]
fn training_goes_as_with_states_of_32_bits() {
    let coded = Optimizer::AdamW8bit(AdamW8bit { lr: 2e-3, ..AdamW8bit::DEFAULT });
    let exact = Optimizer::AdamW(AdamW { lr: 2e-3, ..AdamW::DEFAULT });
    let [mut coded, mut exact] =
        [coded, exact].map(|optimizer| beginning(optimizer, optimizer.moments(), Update::Fused));
    let begun: Vec<Vec<f32>> = PARAMETERS.iter().map(|(name, _)| exact.get(name).unwrap()).collect();
    let losses: Vec<[f32; 2]> = (0..40).map(|_| [coded.step().unwrap(), exact.step().unwrap()]).collect();
    let first = losses[0][1];
    for (step, [coded, exact]) in losses.iter().enumerate() {
        assert!((coded - exact).abs() <= 0.02 * first, "step {step}: {coded} beside {exact}");
    }
    assert!(losses[39].iter().all(|&loss| loss < 0.05 * first));
    for ((name, _), begun) in PARAMETERS.iter().zip(begun) {
        let [coded, exact] = [coded.get(name).unwrap(), exact.get(name).unwrap()];
        let size = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let apart = size(&mut coded.iter().zip(&exact).map(|(a, b)| a - b));
        let moved = size(&mut exact.iter().zip(&begun).map(|(a, b)| a - b));
        assert!(apart <= 0.1 * moved, "{name}: {apart} apart, where {moved} were moved");
    }
}
