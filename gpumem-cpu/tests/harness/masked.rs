//! Attention with masks that hide keys, computed in f64 from its definition.

use super::graphs::{inputs, join};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Program;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};

/// Attention of queries `[T, heads * S]`, keys `[M, heads * S]` and values `[M, heads * V]`, to whose scores a mask is added.
pub struct Masked {
    pub what: String,
    pub batch: usize,
    pub heads: usize,
    pub steps: usize,
    pub keys: usize,
    /// Elements of a head of queries and keys, and of one of values.
    pub width: usize,
    pub values: usize,
    pub causal: bool,
    /// 0 where there is none.
    pub window: usize,
    pub dropout: f64,
    /// Heads and rows of the mask of a sample: 1 where all share them.
    pub mask_shape: [usize; 2],
    /// Queries, keys, values and the mask of the whole batch.
    pub inputs: [Vec<f32>; 4],
    /// The gradient of the output: the loss is the sum of the products of both.
    pub slope: Vec<f32>,
}

/// Sums of terms that may cancel.
#[derive(Clone)]
pub struct Sums {
    pub sums: Vec<f64>,
    /// The sums of the terms' absolute values: rounding is relative to these.
    pub sizes: Vec<f64>,
}

impl Sums {
    fn of(count: usize) -> Sums {
        Sums { sums: vec![0.0; count], sizes: vec![0.0; count] }
    }

    fn add(&mut self, at: usize, term: f64, size: f64) {
        self.sums[at] += term;
        self.sizes[at] += size;
    }

    /// Asserts that each number is off by no more than this share of its terms. A sum without terms is 0.
    #[track_caller]
    pub fn assert_close(&self, what: &str, found: &[f32], tolerance: f64) {
        assert_eq!(found.len(), self.sums.len(), "{what}");
        for (at, (&found, (&sum, &size))) in found.iter().zip(self.sums.iter().zip(&self.sizes)).enumerate() {
            let error = (f64::from(found) - sum).abs();
            assert!(
                error <= tolerance * size,
                "{what}: element {at} is {found:e}, not {sum:e}, whose terms are {size:e}"
            );
        }
    }
}

/// The output, and the gradients of queries, keys, values and the mask.
pub type Outcome = [Sums; 5];

/// Names of the tensors of an [`Outcome`].
pub const NAMES: [&str; 5] = ["output", "queries", "keys", "values", "mask"];

/// The tensors in which a training step leaves those gradients.
pub const GRADIENTS: [&str; 4] = ["input.gradient", "input1.gradient", "input2.gradient", "input3.gradient"];

/// The tensors of the inputs.
pub const INPUTS: [&str; 4] = ["input", "input1", "input2", "input3"];

/// The most negative number that a format has.
pub fn most_negative(precision: Precision) -> f32 {
    match precision.narrow() {
        gpumem_core::Format::F16 => -65504.0,
        gpumem_core::Format::Bf16 => f32::from_bits(0xff7f_0000),
        _ => f32::MIN,
    }
}

impl Masked {
    /// Two queries of one head, of which the second may see no key.
    pub fn second_sees_none() -> Masked {
        Masked {
            what: "the second of two queries sees no key".into(),
            batch: 1,
            heads: 1,
            steps: 2,
            keys: 2,
            width: 2,
            values: 2,
            causal: false,
            window: 0,
            dropout: 0.0,
            mask_shape: [1, 2],
            inputs: [
                vec![1.0, 0.0, 0.0, 1.0],
                vec![1.0, 2.0, 3.0, 4.0],
                vec![1.0, 10.0, 2.0, 20.0],
                vec![0.0, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY],
            ],
            slope: vec![1.0; 4],
        }
    }

    /// One query and 130 keys, of which a mask of one row hides the first 70 with this number.
    pub fn first_tile_hidden(hides: f32) -> Masked {
        let each = |f: fn(f32) -> [f32; 2]| (0..130).flat_map(|key| f(key as f32)).collect::<Vec<f32>>();
        Masked {
            what: format!("{hides:e} hides the first 70 of 130 keys"),
            batch: 1,
            heads: 1,
            steps: 1,
            keys: 130,
            width: 2,
            values: 2,
            causal: false,
            window: 0,
            dropout: 0.0,
            mask_shape: [1, 1],
            inputs: [
                vec![1.0, -1.0],
                each(|key| [key.sin(), key.cos()]),
                each(|key| [key / 100.0, 1.0 - key / 100.0]),
                (0..130).map(|key| if key < 70 { hides } else { 0.0 }).collect(),
            ],
            slope: vec![1.0, -0.5],
        }
    }

    /// Numbers for these sizes, `[T, M, S, V]`, and a mask that hides keys of which `hides` says so: of a sample, a head, a query and a key.
    pub fn of(
        [batch, heads]: [usize; 2],
        [steps, keys, width, values]: [usize; 4],
        mask_shape: [usize; 2],
        hidden: f32,
        hides: impl Fn([usize; 4]) -> bool,
    ) -> Masked {
        let numbers = |count: usize, salt: usize| {
            (0..count).map(|index| ((index * 37 + salt * 11) % 65) as f32 / 32.0 - 1.0).collect()
        };
        let [mask_heads, mask_rows] = mask_shape;
        let mut mask: Vec<f32> = numbers(batch * mask_heads * mask_rows * keys, 3);
        for (index, number) in mask.iter_mut().enumerate() {
            let (key, row) = (index % keys, index / keys);
            let (query, head) = (row % mask_rows, row / mask_rows % mask_heads);
            if hides([row / mask_rows / mask_heads, head, query, key]) {
                *number = hidden;
            }
        }
        let rows = |count: usize, features: usize| batch * count * heads * features;
        let inputs =
            [numbers(rows(steps, width), 0), numbers(rows(keys, width), 1), numbers(rows(keys, values), 2), mask];
        Masked {
            what: format!(
                "a mask of {mask_heads} heads and {mask_rows} rows, {steps} steps, {keys} keys, heads of {width}, {hidden:e}"
            ),
            batch,
            heads,
            steps,
            keys,
            width,
            values,
            causal: false,
            window: 0,
            dropout: 0.0,
            mask_shape,
            inputs,
            slope: numbers(rows(steps, values), 4),
        }
    }

    pub fn causal(self) -> Masked {
        Masked { causal: true, what: format!("{}, causal", self.what), ..self }
    }

    pub fn within(self, window: usize) -> Masked {
        Masked { window, what: format!("{}, a window of {window}", self.what), ..self }
    }

    pub fn dropping(self, dropout: f64) -> Masked {
        Masked { dropout, what: format!("{}, {dropout} dropped", self.what), ..self }
    }

    fn graph(&self) -> (Graph, NodeId) {
        let Masked { heads, steps, keys, width, values, causal, dropout, .. } = *self;
        let [mask_heads, mask_rows] = self.mask_shape;
        let mask = match self.mask_shape {
            [1, 1] => format!("{keys}"),
            [1, rows] => format!("{rows}x{keys}"),
            _ => format!("{mask_heads}x{mask_rows}x{keys}"),
        };
        let shapes = format!("{steps}x{0}, {keys}x{0}, {keys}x{1}, {mask}", heads * width, heads * values);
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, &shapes);
        let window = if self.window > 0 { format!(", window = {}", self.window) } else { String::new() };
        let output = join(
            &mut graph,
            &nodes,
            &format!("Attention(heads = {heads}, causal = {causal}, dropout = {dropout:?}{window})"),
        );
        (graph, output)
    }

    /// A forward pass.
    pub fn forward(&self) -> Program {
        let (graph, output) = self.graph();
        lower(&graph, &[output], &Options::default()).unwrap()
    }

    /// A training step whose loss is the product of the output with the slope, and which changes nothing.
    pub fn step(&self) -> (Program, Optimizer) {
        let (graph, output) = self.graph();
        let training = Training {
            loss: &[Term::DOT],
            moments: 0,
            update: Update::Separate,
            skips_overflow: false,
            input_gradient: true,
            descent: gpumem_core::train::Descent::PLAIN,
        };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        (program, Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }))
    }

    fn mask_index(&self, sample: usize, head: usize, query: usize, key: usize) -> usize {
        let [heads, rows] = self.mask_shape;
        ((sample * heads + head % heads) * rows + query % rows) * self.keys + key
    }

    /// The weights of a query, from the numbers of its inputs.
    fn weights(&self, [q, k, _, mask]: [&[f32]; 4], [sample, head, query]: [usize; 3]) -> Vec<f64> {
        let Masked { heads, steps, keys, width, .. } = *self;
        let row = |step: usize| (step * heads + head) * width;
        let score = |key: usize| {
            let (a, b) = (row(sample * steps + query), row(sample * keys + key));
            let product: f64 = (0..width).map(|at| f64::from(q[a + at]) * f64::from(k[b + at])).sum();
            let is_seen = (!self.causal || key <= query) && (self.window == 0 || key.abs_diff(query) < self.window);
            let added = mask[self.mask_index(sample, head, query, key)];
            // Scores have 32 bits: beside a large number that is added, few are left of the product.
            let score = (product / (width as f64).sqrt()) as f32 + added;
            if is_seen { f64::from(score) } else { f64::NEG_INFINITY }
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return vec![0.0; keys];
        }
        let weights: Vec<f64> = scores.into_iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    /// Computes output and gradients by the definition of attention, without dropout. `inputs` are this case's, rounded to a number format.
    pub fn outcome(&self, inputs: &[Vec<f32>]) -> Outcome {
        assert_eq!(self.dropout, 0.0);
        let Masked { batch, heads, steps, keys, width, values, .. } = *self;
        let [q, k, v, mask] = [0, 1, 2, 3].map(|input| &inputs[input][..]);
        let [mut y, mut dq, mut dk, mut dv] =
            [steps * values, steps * width, keys * width, keys * values].map(|each| Sums::of(batch * heads * each));
        let mut dmask = Sums::of(mask.len());
        let scale = 1.0 / (width as f64).sqrt();
        for number in 0..batch * heads * steps {
            let (sample, head, query) = (number / steps / heads, number / steps % heads, number % steps);
            let weights = self.weights([q, k, v, mask], [sample, head, query]);
            let of_query = (sample * steps + query) * heads + head;
            let of_key = |key: usize| (sample * keys + key) * heads + head;
            let slope = |at: usize| f64::from(self.slope[of_query * values + at]);
            let value = |key: usize, at: usize| f64::from(v[of_key(key) * values + at]);
            let dot = |key: usize| (0..values).map(|at| slope(at) * value(key, at)).sum::<f64>();
            let dot_size = |key: usize| (0..values).map(|at| (slope(at) * value(key, at)).abs()).sum::<f64>();
            let delta: f64 = (0..keys).map(|key| weights[key] * dot(key)).sum();
            let delta_size: f64 = (0..keys).map(|key| weights[key] * dot_size(key)).sum();
            for (key, weight) in weights.into_iter().enumerate() {
                let (s, size) = (weight * (dot(key) - delta), weight * (dot_size(key) + delta_size));
                dmask.add(self.mask_index(sample, head, query, key), s, size);
                for at in 0..values {
                    let (term, slope) = (weight * value(key, at), weight * slope(at));
                    y.add(of_query * values + at, term, term.abs());
                    dv.add(of_key(key) * values + at, slope, slope.abs());
                }
                for at in 0..width {
                    let own = scale * f64::from(q[of_query * width + at]);
                    let other = scale * f64::from(k[of_key(key) * width + at]);
                    dq.add(of_query * width + at, s * other, size * other.abs());
                    dk.add(of_key(key) * width + at, s * own, size * own.abs());
                }
            }
        }
        [y, dq, dk, dv, dmask]
    }
}

/// Cases that all backends must agree with, with keys hidden by this number: in one tile of keys and in several, with and without tensor
/// cores, masks of one row, of a row a head and of all rows.
pub fn cases(hides: f32) -> Vec<Masked> {
    // Of the second sample's first query, nothing is left.
    let few = |[sample, _, query, key]: [usize; 4]| (sample + query + key) % 3 == 0 || (sample, query) == (1, 0);
    // Prompts of different lengths, which end together.
    let left = |[sample, _, _, key]: [usize; 4]| key < 70 - 3 * sample;
    let right = |[sample, head, _, key]: [usize; 4]| key >= 20 + 3 * sample + head;
    vec![
        Masked::first_tile_hidden(hides),
        Masked::of([2, 2], [5, 7, 4, 6], [1, 5], f32::NEG_INFINITY, few),
        Masked::of([2, 2], [5, 7, 16, 16], [2, 5], f32::NEG_INFINITY, few),
        Masked::of([2, 2], [66, 135, 6, 6], [1, 1], hides, left),
        Masked::of([2, 2], [66, 135, 16, 16], [1, 1], hides, left),
        Masked::of([1, 2], [70, 67, 16, 16], [2, 1], hides, right),
        Masked::of([1, 2], [70, 67, 5, 3], [2, 1], hides, right),
        // The first queries see hidden keys alone.
        Masked::of([2, 1], [100, 100, 16, 16], [1, 1], f32::NEG_INFINITY, left).causal(),
        Masked::of([2, 1], [100, 100, 4, 4], [1, 1], f32::NEG_INFINITY, left).causal(),
        Masked::of([2, 1], [100, 140, 16, 16], [1, 100], f32::NEG_INFINITY, left).within(20),
        Masked::of([2, 1], [100, 140, 4, 4], [1, 1], f32::NEG_INFINITY, left).within(20),
    ]
}
