//! Adafactor on parameters of one, two and four axes, against its definition in double precision.

mod harness;

use gpumem_core::Update;
use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Adafactor, Adam, Group, Optimizer, Sgd};
use harness::graphs::{chain, numbers};
use harness::{Loaded, assert_close};

/// Parameters with the dimensions that their matrices have; a vector has none.
const PARAMETERS: [(&str, Option<[usize; 2]>); 8] = [
    ("conv2d0.weight", Some([3, 2])),
    ("conv2d0.bias", None),
    ("conv2d1.weight", Some([1, 3])),
    ("conv2d1.bias", None),
    ("linear3.weight", Some([70, 24])),
    ("linear3.bias", None),
    ("linear4.weight", Some([2, 70])),
    ("linear4.bias", None),
];

const LAYERS: &str = "Conv2d(4, [3; 2]) | Conv2d(3, [1; 3]) | Flatten | Linear(70) | Linear(2)";

fn load(optimizer: Optimizer, moments: u64, update: Update, skips_overflow: bool) -> Loaded {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 5])).unwrap();
    let output = chain(&mut graph, input, LAYERS);
    let training = Training {
        loss: &[Term::MSE],
        moments,
        update,
        skips_overflow,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let mut loaded = Loaded::new(&graph, output, training, 4, optimizer);
    for (index, (name, length)) in [("input", 240), ("target", 8)].into_iter().enumerate() {
        let words: Vec<u32> = (0..length).map(|i| ((i * 7 + index + 1) as f32 * 0.61).sin().to_bits()).collect();
        loaded.set(name, &words);
    }
    for (index, (name, _)) in PARAMETERS.iter().enumerate() {
        let length = loaded.get(name).unwrap().len();
        let words: Vec<u32> = (0..length).map(|i| (((i * 5 + index) as f32 * 0.83).cos() * 0.3).to_bits()).collect();
        loaded.set(name, &words);
    }
    loaded
}

fn root_mean(values: &[f64]) -> f64 {
    (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt()
}

/// Step `t` as PyTorch documents it: the next weights. The states are the means of rows and of columns, or all of a vector.
fn stepped(
    rule: &Adafactor,
    t: f64,
    w: &[f32],
    g: &[f64],
    matrix: Option<[usize; 2]>,
    states: &mut [Vec<f64>; 2],
) -> Vec<f32> {
    let w: Vec<f64> = w.iter().copied().map(f64::from).collect();
    let (least, share) = (rule.eps.0.unwrap_or(2f64.powi(-23)), t.powf(rule.beta2_decay));
    let rate = rule.eps.1.max(root_mean(&w)) * rule.lr.min(1.0 / t.sqrt());
    let [rows, columns] = states;
    let variances: Vec<f64> = match matrix {
        None => {
            rows.iter_mut().zip(g).for_each(|(v, g)| *v += share * (g * g - *v));
            rows.clone()
        }
        Some([height, width]) => {
            let at = |m: usize, r: usize, c: usize| g[(m * height + r) * width + c].powi(2);
            for m in 0..g.len() / (height * width) {
                for r in 0..height {
                    let mean = (0..width).map(|c| at(m, r, c)).sum::<f64>() / width as f64;
                    rows[m * height + r] += share * (mean - rows[m * height + r]);
                }
                for c in 0..width {
                    let mean = (0..height).map(|r| at(m, r, c)).sum::<f64>() / height as f64;
                    columns[m * width + c] += share * (mean - columns[m * width + c]);
                }
            }
            let variance = |index: usize| {
                let (m, r, c) = (index / (height * width), index / width % height, index % width);
                let mean = rows[m * height..(m + 1) * height].iter().sum::<f64>() / height as f64;
                rows[m * height + r] * columns[m * width + c] / mean.max(least)
            };
            (0..g.len()).map(variance).collect()
        }
    };
    let updates: Vec<f64> = g.iter().zip(variances).map(|(g, v)| g / v.max(least * least).sqrt()).collect();
    let by = rate / (root_mean(&updates) / rule.d).max(1.0);
    w.iter().zip(updates).map(|(w, update)| (w * (1.0 - rule.lr * rule.weight_decay) - by * update) as f32).collect()
}

fn check(rule: Adafactor, update: Update) {
    let optimizer = Optimizer::Adafactor(rule);
    // Gradients that stay are those of a step without an update.
    let mut loaded = load(optimizer, optimizer.moments(), update, false);
    let mut plain = load(Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), 0, Update::Separate, false);
    let mut states = PARAMETERS.map(|(name, matrix)| {
        let length = plain.get(name).unwrap().len();
        let [rows, columns] = matrix.map_or([length, 0], |[height, width]| [length / width, length / height]);
        [vec![0.0; rows], vec![0.0; columns]]
    });
    for step in 1..=6 {
        let before = PARAMETERS.map(|(name, _)| loaded.get(name).unwrap());
        for ((name, _), values) in PARAMETERS.iter().zip(&before) {
            plain.set(name, &values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
        }
        loaded.step().unwrap();
        plain.step().unwrap();
        for (((name, matrix), before), states) in PARAMETERS.iter().zip(&before).zip(&mut states) {
            let gradient = plain.get(&format!("{name}.gradient")).unwrap();
            let gradient: Vec<f64> = gradient.into_iter().map(f64::from).collect();
            let Optimizer::Adafactor(own) = optimizer.of(optimizer.own(name)) else { unreachable!() };
            let expected = stepped(&own, f64::from(step), before, &gradient, *matrix, states);
            let what = format!("{rule:?}, {update:?}, {name} after step {step}");
            assert_close(&what, &loaded.get(name).unwrap(), &expected, 1e-5);
            for (index, state) in states.iter().enumerate().filter(|(_, state)| !state.is_empty()) {
                let expected: Vec<f32> = state.iter().map(|&x| x as f32).collect();
                assert_close(&what, &loaded.get(&format!("{name}.moment{index}")).unwrap(), &expected, 1e-5);
            }
            assert_eq!(loaded.get(&format!("{name}.moment1")).is_some(), matrix.is_some(), "{name}");
        }
    }
}

#[test]
fn parameters_of_all_ranks() {
    const GROUPS: &[Group] = &[
        Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear3.*", lr_factor: Some(3.0), ..Group::DEFAULT },
    ];
    for update in [Update::Fused, Update::Separate] {
        check(Adafactor::DEFAULT, update);
        check(Adafactor { lr: 0.05, weight_decay: 0.3, groups: GROUPS, ..Adafactor::DEFAULT }, update);
        // Every number has a say: gradients below the least, parameters below theirs, no limit.
        let rule = Adafactor { lr: 0.7, beta2_decay: -0.5, eps: (Some(1e-2), 0.5), d: 40.0, ..Adafactor::DEFAULT };
        check(rule, update);
    }
}

#[test]
fn a_skipped_step_changes_nothing() {
    let optimizer = Optimizer::Adafactor(Adafactor::DEFAULT);
    let mut loaded = load(optimizer, optimizer.moments(), Update::Separate, true);
    let all = |loaded: &mut Loaded| {
        let names =
            PARAMETERS.map(|(name, _)| [name.to_string(), format!("{name}.moment0"), format!("{name}.moment1")]);
        names.concat().iter().filter_map(|name| loaded.get(name)).collect::<Vec<_>>()
    };
    loaded.step().unwrap();
    let before = all(&mut loaded);
    assert_eq!(before.len(), 20);
    loaded.set("input", &[f32::INFINITY.to_bits(); 240]);
    loaded.step().unwrap();
    assert_eq!(all(&mut loaded), before);
}

/// States of another optimizer are not taken for rows and columns, nor these for them.
#[test]
fn states_of_another_optimizer_are_refused() {
    let (adam, adafactor) = (Optimizer::Adam(Adam::DEFAULT), Optimizer::Adafactor(Adafactor::DEFAULT));
    for (one, other) in [(adam, adafactor), (adafactor, adam)] {
        match load(one, other.moments(), Update::Fused, false).step() {
            Err(Error::Unsupported { what, .. }) => assert!(what.contains("name the optimizer in `TRAIN`"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
}
