//! A bottleneck whose last convolution and normalisation run as one or apart, and its step in float64.

use super::curves::Trained;
use super::graphs::{chain, join, layer, numbers};
use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower, with_normalized_convolutions};
use gpumem_core::program::{Action, Op, Program};
use gpumem_core::train::Descent;

pub const BATCH: usize = 16;
const SIDE: usize = 8;
const AREA: usize = SIDE * SIDE;
const PIXELS: usize = BATCH * AREA;
const IN: usize = 3;
const INNER: usize = 8;
const OUTER: usize = 32;
const CLASSES: usize = 3;
const EPS: f64 = 1e-5;

/// Numbers between -1 and 1 that look random.
fn random(count: usize, salt: u64) -> Vec<f32> {
    let mut state = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    let _ = (0..16).map(|_| next()).last();
    (0..count).map(|_| next()).collect()
}

/// Input, target and parameters of the network that `build` makes. Maps are `[B, C, H, W]`.
#[derive(Clone)]
pub struct Given {
    pub input: Vec<f32>,
    pub target: Vec<f32>,
    pub stem: Vec<f32>,
    pub inner: Vec<f32>,
    pub last: Vec<f32>,
    pub beside: Vec<f32>,
    pub head: Vec<f32>,
    /// Weight and bias of the normalisation before the last convolution, and of the one after it.
    pub before: [Vec<f32>; 2],
    pub after: [Vec<f32>; 2],
}

impl Given {
    /// The cases that must be as exact as both apart, each with its name.
    pub fn cases() -> Vec<(String, Given)> {
        let pairs = [(1.0, 0.0), (1.0, 3.0), (0.1, 3.0), (0.01, 3.0), (0.001, 3.0), (0.01, 10.0), (0.001, 100.0)];
        let mut all: Vec<(String, Given)> =
            pairs.map(|(g, b)| (format!("weight {g}, bias {b}"), Given::new(g, b))).into();
        // Channels of mean 0 that are nearly the same, of which each output has a difference.
        for by in [1e-2, 1e-3] {
            let mut given = Given::new(1.0, 0.0);
            let noise = random(INNER * INNER, 10);
            given.inner = (0..INNER * INNER).map(|i| given.inner[i % INNER] + by * noise[i]).collect();
            for row in given.last.chunks_mut(INNER) {
                let mean = row.iter().sum::<f32>() / INNER as f32;
                row.iter_mut().for_each(|weight| *weight -= mean);
            }
            all.push((format!("correlated to {by}"), given));
        }
        let mut given = Given::new(1.0, 0.5);
        for (channel, g, b) in [(0, 0.0, 0.0), (1, 0.0, 100.0), (2, 0.0, -1.0), (3, 1e-4, 1.0)] {
            (given.before[0][channel], given.before[1][channel]) = (g, b);
        }
        all.push(("dead and constant channels".into(), given));
        let mut given = Given::new(0.1, 3.0);
        given.after[0].fill(0.0);
        all.push(("a last weight that begins with 0".into(), given));
        let mut given = Given::new(0.1, 3.0);
        given.last[..OUTER / 2 * INNER].fill(0.0);
        all.push(("filters of 0".into(), given));
        all
    }

    /// Rounds all numbers that a step is given.
    pub fn round(&mut self, round: impl Fn(f32) -> f32) {
        let Given { input, target, stem, inner, last, beside, head, before, after } = self;
        let all = [input, target, stem, inner, last, beside, head].into_iter().chain(before).chain(after);
        all.flatten().for_each(|number| *number = round(*number));
    }

    /// With a weight and a bias of the normalisation before the last convolution.
    pub fn new(g: f32, b: f32) -> Given {
        let scaled = |count: usize, salt: u64, by: f32| random(count, salt).iter().map(|x| x * by).collect();
        Given {
            input: random(PIXELS * IN, 1),
            target: random(BATCH * CLASSES, 2),
            stem: scaled(INNER * IN, 3, 0.6),
            inner: scaled(INNER * INNER, 4, 0.4),
            last: scaled(OUTER * INNER, 5, 0.4),
            beside: scaled(OUTER * INNER, 6, 0.4),
            head: scaled(CLASSES * OUTER, 7, 0.2),
            before: [vec![g; INNER], vec![b; INNER]],
            after: [random(OUTER, 8).iter().map(|x| 1.0 + 0.5 * x).collect(), scaled(OUTER, 9, 0.5)],
        }
    }
}

/// The network: the names of its parameters follow from the order of its layers.
fn build(graph: &mut Graph) -> NodeId {
    let side = SIDE as u64;
    let input = graph.input(numbers(&[IN as u64, side, side])).unwrap();
    let stem = chain(graph, input, "Conv2d(8, 1, bias = false) | BatchNorm2d | Relu");
    let made = chain(
        graph,
        stem,
        "Conv2d(8, 1, bias = false) | BatchNorm2d | Relu | Conv2d(32, 1, bias = false) | BatchNorm2d",
    );
    let beside = layer(graph, stem, "Conv2d(32, 1, bias = false)");
    let sum = join(graph, &[made, beside], "Add");
    chain(graph, sum, "Relu | GlobalAvgPool | Linear(3, bias = false)")
}

/// A step whose gradients stay.
pub const TRAINING: Training<'static> = Training {
    loss: &[Term::MSE],
    moments: 0,
    update: Update::Separate,
    skips_overflow: false,
    input_gradient: false,
    descent: Descent::PLAIN,
};

/// The step with both apart, and as one.
pub fn programs() -> [Program; 2] {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let joined = with_normalized_convolutions(&graph, &[output]);
    let programs =
        [graph, joined].map(|graph| lower(&graph, &[output], &Options { training: Some(TRAINING) }).unwrap());
    let count = |program: &Program| {
        let is_one = |action: &Action| matches!(action, Action::Run { op: Op::NormalizedConvolution(_), .. });
        program.operations.iter().filter(|operation| is_one(&operation.action)).count()
    };
    assert_eq!(programs.each_ref().map(count), [0, 2]);
    programs
}

/// The loss, the gradient of the stem's weight and that of the last normalisation's.
pub type Found = (f64, Vec<f64>, Vec<f64>);

fn run(trained: &mut impl Trained, program: &Program, given: &Given) -> Found {
    let names: Vec<String> = program.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    let words = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
    let [convolutions, weights, biases] = parameter_names(&names);
    let (ones, zeros) = (vec![1.0; INNER], vec![0.0; INNER]);
    let of_convolutions = [&given.stem, &given.inner, &given.last, &given.beside, &given.head];
    let all = (convolutions.iter().zip(of_convolutions))
        .chain(weights.iter().zip([&ones, &given.before[0], &given.after[0]]))
        .chain(biases.iter().zip([&zeros, &given.before[1], &given.after[1]]));
    all.for_each(|(name, values)| trained.set(name, &words(values)));
    trained.set("input", &words(&given.input));
    trained.set("target", &words(&given.target));
    let loss = f64::from(trained.step());
    let mut gradient = |name: &str| -> Vec<f64> {
        trained.get(&format!("{name}.gradient")).unwrap().into_iter().map(f64::from).collect()
    };
    (loss, gradient(&convolutions[0]), gradient(&weights[2]))
}

/// The names of weights of convolutions, of weights of normalisations and of their biases, in order.
fn parameter_names(names: &[String]) -> [Vec<String>; 3] {
    let of = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).cloned().collect::<Vec<String>>();
    let biases = of(".bias");
    let norms: Vec<String> = biases.iter().map(|name| name.replace(".bias", ".weight")).collect();
    let convolutions = of(".weight").into_iter().filter(|name| !norms.contains(name)).collect();
    [convolutions, norms, biases]
}

/// A step in float64, on rows of a pixel each.
mod double {
    use super::*;

    /// `x w^T`, of rows of so many numbers, and the weight's.
    pub fn linear(x: &[f64], w: &[f32], ins: usize) -> Vec<f64> {
        let product = |row: &[f64], w: &[f32]| row.iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum::<f64>();
        x.chunks(ins).flat_map(|row| w.chunks(ins).map(move |w| product(row, w))).collect()
    }

    /// The gradients of x and w.
    pub fn linear_back(dy: &[f64], x: &[f64], w: &[f32], ins: usize) -> [Vec<f64>; 2] {
        let outs = w.len() / ins;
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        for ((dy, x), dx) in dy.chunks(outs).zip(x.chunks(ins)).zip(dx.chunks_mut(ins)) {
            for (o, &dy) in dy.iter().enumerate() {
                for i in 0..ins {
                    dx[i] += dy * f64::from(w[o * ins + i]);
                    dw[o * ins + i] += dy * x[i];
                }
            }
        }
        [dx, dw]
    }

    /// Returns normalised rows, before factor and summand, and `1 / sqrt(variance + eps)` of each channel.
    pub fn normalise(x: &[f64], channels: usize) -> (Vec<f64>, Vec<f64>) {
        let count = (x.len() / channels) as f64;
        let each = |c: usize| x.iter().skip(c).step_by(channels);
        let means: Vec<f64> = (0..channels).map(|c| each(c).sum::<f64>() / count).collect();
        let variance = |c: usize| each(c).map(|x| (x - means[c]).powi(2)).sum::<f64>() / count;
        let roots: Vec<f64> = (0..channels).map(|c| 1.0 / (variance(c) + EPS).sqrt()).collect();
        (x.iter().enumerate().map(|(i, x)| (x - means[i % channels]) * roots[i % channels]).collect(), roots)
    }

    pub fn affine(normal: &[f64], [weight, bias]: &[Vec<f32>; 2]) -> Vec<f64> {
        let c = |i: usize| i % weight.len();
        normal.iter().enumerate().map(|(i, x)| x * f64::from(weight[c(i)]) + f64::from(bias[c(i)])).collect()
    }

    /// The gradients of what was normalised and of the factors.
    pub fn normalise_back(dy: &[f64], normal: &[f64], roots: &[f64], weight: &[f32]) -> [Vec<f64>; 2] {
        let channels = roots.len();
        let count = (dy.len() / channels) as f64;
        let sum = |c: usize, f: &dyn Fn(usize) -> f64| (0..dy.len()).skip(c).step_by(channels).map(f).sum::<f64>();
        let sums: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i])).collect();
        let products: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i] * normal[i])).collect();
        let dx = |i: usize| {
            let c = i % channels;
            f64::from(weight[c]) * roots[c] * (dy[i] - sums[c] / count - normal[i] * products[c] / count)
        };
        [(0..dy.len()).map(dx).collect(), products]
    }

    pub fn relu(x: &[f64]) -> Vec<f64> {
        x.iter().map(|x| x.max(0.0)).collect()
    }

    pub fn relu_back(dy: &[f64], y: &[f64]) -> Vec<f64> {
        dy.iter().zip(y).map(|(dy, &y)| if y > 0.0 { *dy } else { 0.0 }).collect()
    }

    /// `[B, C, H, W]` as rows of a pixel.
    pub fn rows(map: &[f32], channels: usize) -> Vec<f64> {
        let at = |row: usize, c: usize| map[(row / AREA * channels + c) * AREA + row % AREA];
        (0..map.len()).map(|i| f64::from(at(i / channels, i % channels))).collect()
    }

    pub fn step(given: &Given) -> Found {
        let ones = [vec![1.0; INNER], vec![0.0; INNER]];
        let input = rows(&given.input, IN);
        let (first, first_roots) = normalise(&linear(&input, &given.stem, IN), INNER);
        let stem = relu(&affine(&first, &ones));
        let (second, second_roots) = normalise(&linear(&stem, &given.inner, INNER), INNER);
        let inner = relu(&affine(&second, &given.before));
        let (third, third_roots) = normalise(&linear(&inner, &given.last, INNER), OUTER);
        let beside = linear(&stem, &given.beside, INNER);
        let sum: Vec<f64> = affine(&third, &given.after).iter().zip(&beside).map(|(a, b)| a + b).collect();
        let outer = relu(&sum);
        let pooled: Vec<f64> = (0..BATCH * OUTER)
            .map(|i| (0..AREA).map(|p| outer[(i / OUTER * AREA + p) * OUTER + i % OUTER]).sum::<f64>() / AREA as f64)
            .collect();
        let y = linear(&pooled, &given.head, OUTER);
        let distance: Vec<f64> = y.iter().zip(&given.target).map(|(y, &t)| y - f64::from(t)).collect();
        let loss = distance.iter().map(|d| d * d).sum::<f64>() / y.len() as f64;
        let dy: Vec<f64> = distance.iter().map(|d| 2.0 * d / y.len() as f64).collect();
        let [dpooled, _] = linear_back(&dy, &pooled, &given.head, OUTER);
        let douter: Vec<f64> =
            (0..outer.len()).map(|i| dpooled[i / OUTER / AREA * OUTER + i % OUTER] / AREA as f64).collect();
        let dsum = relu_back(&douter, &outer);
        let [dthird, of_factors] = normalise_back(&dsum, &third, &third_roots, &given.after[0]);
        let [dinner, _] = linear_back(&dthird, &inner, &given.last, INNER);
        let [dsecond, _] = normalise_back(&relu_back(&dinner, &inner), &second, &second_roots, &given.before[0]);
        let [through, _] = linear_back(&dsecond, &stem, &given.inner, INNER);
        let [around, _] = linear_back(&dsum, &stem, &given.beside, INNER);
        let dstem: Vec<f64> = through.iter().zip(&around).map(|(a, b)| a + b).collect();
        let [dfirst, _] = normalise_back(&relu_back(&dstem, &stem), &first, &first_roots, &ones[0]);
        let [_, of_stem] = linear_back(&dfirst, &input, &given.stem, IN);
        (loss, of_stem, of_factors)
    }
}

fn distance(found: &[f64], expected: &[f64]) -> f64 {
    let squares = |f: &dyn Fn(usize) -> f64| (0..expected.len()).map(|i| f(i).powi(2)).sum::<f64>();
    (squares(&|i| found[i] - expected[i]) / squares(&|i| expected[i])).sqrt()
}

/// The relative errors of loss, gradient of the stem's weight, and of the last normalisation's: apart, and as one.
pub fn errors<T: Trained>(programs: &[Program; 2], given: &Given, load: impl Fn(&Program) -> T) -> [[f64; 3]; 2] {
    let expected = double::step(given);
    programs.each_ref().map(|program| {
        let found = run(&mut load(program), program, given);
        [(found.0 - expected.0).abs() / expected.0, distance(&found.1, &expected.1), distance(&found.2, &expected.2)]
    })
}
