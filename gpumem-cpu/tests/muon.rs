//! Muon on matrices that are tall, wide and of four axes, against its definition in double precision; which parameters are matrices.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::{Action, Class, Slot};
use gpumem_core::train::optim::{Adam, AdamW, Group, Muon, Optimizer};
use harness::graphs::{chain, numbers};
use harness::rules::{Parameter, Trained};

/// Parameters with the rows and columns of those that are matrices of hidden layers.
const PARAMETERS: [Parameter; 7] = [
    ("conv2d0.weight", Some([4, 12])),
    ("conv2d0.bias", None),
    ("linear3.weight", Some([90, 64])),
    ("linear3.bias", None),
    ("linear5.weight", Some([9, 90])),
    ("linear5.bias", None),
    ("linear7.weight", None),
];

const TRAINED: Trained<'static> = Trained {
    layers: "Conv2d(4, [3; 2]) | Tanh | Flatten | Linear(90) | Tanh | Linear(9) | Tanh | Linear(2, bias = false)",
    parameters: &PARAMETERS,
};

/// Rows of columns.
type Rows = Vec<Vec<f64>>;

fn transposed(a: &Rows) -> Rows {
    (0..a[0].len()).map(|column| a.iter().map(|row| row[column]).collect()).collect()
}

fn product(a: &Rows, b: &Rows) -> Rows {
    let b = transposed(b);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    a.iter().map(|row| b.iter().map(|column| dot(row, column)).collect()).collect()
}

/// `p a + q b`.
fn sum(p: f64, a: &Rows, q: f64, b: &Rows) -> Rows {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| p * a + q * b).collect();
    a.iter().zip(b).map(row).collect()
}

/// The iteration as it is defined.
fn orthogonal(rule: &Muon, u: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let norm = u.iter().map(|x| x * x).sum::<f64>().sqrt().max(rule.eps);
    let mut x: Rows = u.chunks(columns).map(|row| row.iter().map(|x| x / norm).collect()).collect();
    if rows > columns {
        x = transposed(&x);
    }
    let (a, b, c) = rule.ns_coefficients;
    for _ in 0..rule.ns_steps {
        let gram = product(&x, &transposed(&x));
        let polynomial = sum(b, &gram, c, &product(&gram, &gram));
        x = sum(a, &x, 1.0, &product(&polynomial, &x));
    }
    if rows > columns { transposed(&x).concat() } else { x.concat() }
}

/// Step `t` as PyTorch documents it: the next weights.
fn stepped(
    (rule, own): (&Muon, (f64, f64)),
    t: f64,
    (w, g): (&[f32], &[f64]),
    matrix: Option<[usize; 2]>,
    [m, v]: &mut [Vec<f64>; 2],
) -> Vec<f32> {
    let (factor, decay) = own;
    let w = w.iter().copied().map(f64::from);
    if let Some([rows, columns]) = matrix {
        m.iter_mut().zip(g).for_each(|(m, g)| *m = rule.momentum * *m + (1.0 - rule.momentum) * g);
        let ahead =
            |(m, g): (&f64, &f64)| if rule.nesterov { (1.0 - rule.momentum) * g + rule.momentum * m } else { *m };
        let step = orthogonal(rule, &m.iter().zip(g).map(ahead).collect::<Vec<f64>>(), [rows, columns]);
        let ratio = match rule.match_rms_adamw {
            true => 0.2 * (rows.max(columns) as f64).sqrt(),
            false => (rows as f64 / columns as f64).max(1.0).sqrt(),
        };
        let lr = rule.lr * factor;
        return w.zip(step).map(|(w, x)| (w * (1.0 - lr * decay) - lr * ratio * x) as f32).collect();
    }
    let (lr, (beta1, beta2)) = (rule.lr * factor, rule.adamw_betas);
    m.iter_mut().zip(g).for_each(|(m, g)| *m = beta1 * *m + (1.0 - beta1) * g);
    v.iter_mut().zip(g).for_each(|(v, g)| *v = beta2 * *v + (1.0 - beta2) * g * g);
    let step = m
        .iter()
        .zip(&*v)
        .map(|(m, v)| m / (1.0 - beta1.powf(t)) / ((v / (1.0 - beta2.powf(t))).sqrt() + rule.adamw_eps));
    w.zip(step).map(|(w, x)| (w * (1.0 - lr * decay) - lr * x) as f32).collect()
}

/// What `lr` is multiplied with and the weight decay, where a group says the one for names that begin alike and the other for biases.
fn own(rule: &Muon, name: &str, is_matrix: bool) -> (f64, f64) {
    let (factor, decay) =
        if is_matrix { (1.0, rule.weight_decay) } else { (rule.adamw_lr_factor, rule.adamw_weight_decay) };
    match rule.groups {
        [] => (factor, decay),
        _ => (if name.starts_with("linear3") { 3.0 } else { factor }, if name.ends_with("bias") { 0.0 } else { decay }),
    }
}

fn check(rule: Muon, update: Update) {
    // A matrix has the first state only.
    let lengths = |length: usize, matrix: Option<[usize; 2]>| [length, if matrix.is_some() { 0 } else { length }];
    TRAINED.check((Optimizer::Muon(rule), update, 4, 2e-5), lengths, |at, before, gradient, states| {
        let own = own(&rule, at.name, at.matrix.is_some());
        stepped((&rule, own), f64::from(at.step), (before, gradient), at.matrix, states)
    });
}

#[test]
fn matrices_and_others() {
    const GROUPS: &[Group] = &[
        Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear3.*", lr_factor: Some(3.0), ..Group::DEFAULT },
    ];
    let rule = Muon { lr: 0.02, adamw_lr_factor: 0.5, adamw_eps: 1e-5, ..Muon::DEFAULT };
    for update in [Update::Fused, Update::Separate] {
        check(rule, update);
        check(Muon { groups: GROUPS, match_rms_adamw: true, weight_decay: 0.3, ..rule }, update);
        let others = Muon { nesterov: false, momentum: 0.5, ns_steps: 3, adamw_betas: (0.7, 0.9), ..rule };
        check(others, update);
        // A norm below the least, and no step at all.
        check(Muon { eps: 1e3, ns_coefficients: (1.5, -0.5, 0.0), ns_steps: 1, ..rule }, update);
        check(Muon { ns_steps: 0, adamw_weight_decay: 0.5, ..rule }, update);
    }
}

#[test]
fn a_skipped_step_changes_nothing() {
    TRAINED.check_skipped(Optimizer::Muon(Muon::DEFAULT), 7 + 3 + 2 * 4);
}

#[test]
fn states_of_another_optimizer_are_refused() {
    let (adam, muon) = (Optimizer::AdamW(AdamW::DEFAULT), Optimizer::Muon(Muon::DEFAULT));
    TRAINED.check_refused(&[(adam, muon), (muon, adam), (muon, Optimizer::Adam(Adam::DEFAULT))]);
}

/// The names of parameters that are trained as matrices.
fn matrices(dims: &[u64], is_indices: bool, layers: &str) -> Vec<String> {
    let mut graph = Graph::default();
    let value = match is_indices {
        true => gpumem_core::graph::Type::indices(gpumem_core::shape::Shape::new(dims)),
        false => numbers(dims),
    };
    let input = graph.input(value).unwrap();
    let output = chain(&mut graph, input, layers);
    let moments = Optimizer::Muon(Muon::DEFAULT).moments();
    let (loss, update) = (&[Term::of(gpumem_core::program::Measure::Mean)], Update::Separate);
    let training = Training {
        loss,
        moments,
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let updates = program.operations.iter().filter(|operation| operation.action == Action::Update);
    let matrices = updates.filter(|update| update.written(Slot::Moment(1)).is_none());
    let tensors = matrices.map(|update| program.tensor(update.written(Slot::Parameter).unwrap()));
    tensors.inspect(|tensor| assert_eq!(tensor.class, Class::Parameter)).map(|tensor| tensor.name.clone()).collect()
}

#[test]
fn hidden_layers_have_matrices() {
    // The weight before the output is none, whatever functions come behind it; where that is a normalisation, it is a hidden one.
    let layers = "Linear(4) | Relu | Linear(3) | Sigmoid | Flatten";
    assert_eq!(matrices(&[5], false, layers), ["linear0.weight"]);
    assert_eq!(matrices(&[5], false, "Linear(4) | Relu | Linear(3) | LayerNorm"), ["linear0.weight", "linear2.weight"]);
    // Nor is a table.
    let layers = "Embedding(10, 6) | PositionEmbedding(7) | Linear(4) | Linear(2)";
    assert_eq!(matrices(&[7], true, layers), ["linear2.weight"]);
    let layers = "Conv2d(3, 2) | BatchNorm2d | ConvTranspose2d(2, 2) | Conv2d(2, 1)";
    assert_eq!(matrices(&[2, 5, 5], false, layers), ["conv2d0.weight", "convtranspose2d2.weight"]);
}
