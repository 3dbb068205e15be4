//! Adafactor on parameters of one, two and four axes, against its definition in double precision.

mod harness;

use gpumem_core::Update;
use gpumem_core::train::optim::{Adafactor, Adam, Group, Optimizer};
use harness::rules::{Parameter, Trained};

/// Parameters with the dimensions that their matrices have; a vector has none.
const PARAMETERS: [Parameter; 8] = [
    ("conv2d0.weight", Some([3, 2])),
    ("conv2d0.bias", None),
    ("conv2d1.weight", Some([1, 3])),
    ("conv2d1.bias", None),
    ("linear3.weight", Some([70, 24])),
    ("linear3.bias", None),
    ("linear4.weight", Some([2, 70])),
    ("linear4.bias", None),
];

const TRAINED: Trained<'static> = Trained {
    layers: "Conv2d(4, [3; 2]) | Conv2d(3, [1; 3]) | Flatten | Linear(70) | Linear(2)",
    parameters: &PARAMETERS,
};

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
    let lengths = |length: usize, matrix: Option<[usize; 2]>| {
        matrix.map_or([length, 0], |[height, width]| [length / width, length / height])
    };
    TRAINED.check((optimizer, update, 6, 1e-5), lengths, |at, before, gradient, states| {
        let Optimizer::Adafactor(own) = optimizer.of(optimizer.own(at.name)) else { unreachable!() };
        stepped(&own, f64::from(at.step), before, gradient, at.matrix, states)
    });
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
    TRAINED.check_skipped(Optimizer::Adafactor(Adafactor::DEFAULT), 20);
}

/// States of another optimizer are not taken for rows and columns, nor these for them.
#[test]
fn states_of_another_optimizer_are_refused() {
    let (adam, adafactor) = (Optimizer::Adam(Adam::DEFAULT), Optimizer::Adafactor(Adafactor::DEFAULT));
    TRAINED.check_refused(&[(adam, adafactor), (adafactor, adam)]);
}
