//! Attention whose heads of queries share keys is attention with those keys repeated, and masks hide keys.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Program;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cpu::Cpu;
use harness::graphs::{layer, numbers};
use harness::masked::{GRADIENTS, INPUTS, Masked, NAMES, cases};
use harness::{Loaded, assert_close};

const STEPS: usize = 5;
const WIDTH: usize = 3;
const BATCH: usize = 2;

/// Loss and gradient of the input.
fn run(text: &str, input: &[f32]) -> (f32, Vec<f32>) {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&[STEPS as u64, (input.len() / BATCH / STEPS) as u64])).unwrap();
    let output = layer(&mut graph, x, text);
    let training = Training {
        loss: &[Term::DOT],
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(&graph, output, training, BATCH as u64, optimizer);
    loaded.set("input", &input.iter().map(|x| x.to_bits()).collect::<Vec<u32>>());
    let target = (0..BATCH * STEPS * 4 * WIDTH).map(|i| ((i + 1) as f32 * 0.37).sin().to_bits());
    loaded.set("target", &target.collect::<Vec<u32>>());
    let loss = loaded.step().unwrap();
    (loss, loaded.get("input.gradient").unwrap())
}

#[test]
fn shared_keys_are_repeated_ones() {
    for kv_heads in [1, 2] {
        let group = 4 / kv_heads;
        let row = (4 + 2 * kv_heads) * WIDTH;
        let shared: Vec<f32> = (0..BATCH * STEPS * row).map(|i| ((i * i) as f32 * 0.13).cos()).collect();
        // Where an element of a head of the wide input is in the narrow one.
        let place = |head: usize| match head {
            0..4 => head,
            4..8 => 4 + (head - 4) / group,
            _ => 4 + kv_heads + (head - 8) / group,
        };
        let from = |index: usize| {
            let (step, head, element) = (index / (12 * WIDTH), index / WIDTH % 12, index % WIDTH);
            step * row + place(head) * WIDTH + element
        };
        let wide: Vec<f32> = (0..BATCH * STEPS * 12 * WIDTH).map(|index| shared[from(index)]).collect();
        let (expected_loss, wide_gradient) = run("CausalAttention(4)", &wide);
        let mut expected = vec![0.0; shared.len()];
        wide_gradient.iter().enumerate().for_each(|(index, gradient)| expected[from(index)] += gradient);
        let (loss, gradient) = run(&format!("CausalAttention(4, kv_heads = {kv_heads})"), &shared);
        assert_close("loss", &[loss], &[expected_loss], 1e-6);
        assert_close("gradient", &gradient, &expected, 1e-5);
    }
}

/// The output of a forward pass of a case, and the gradients of a training step.
fn attended(case: &Masked) -> [Vec<f32>; 5] {
    let cpu = Cpu::with_threads(2).unwrap().with_poison(true);
    let (step, optimizer) = case.step();
    let of = |program: &Program| {
        let mut loaded = Loaded::of(&cpu, program, case.batch as u64, optimizer).unwrap();
        for (name, values) in INPUTS.into_iter().zip(&case.inputs) {
            loaded.set(name, &values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
        }
        loaded
    };
    let y = of(&case.forward()).infer().unwrap();
    let mut loaded = of(&step);
    loaded.set("target", &case.slope.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
    loaded.step().unwrap();
    let [q, k, v, mask] = GRADIENTS.map(|name| loaded.get(name).unwrap());
    [y, q, k, v, mask]
}

/// As PyTorch has it: an output of 0, and gradients of 0.
#[test]
fn a_query_that_sees_no_key() {
    let [y, q, k, v, mask] = attended(&Masked::second_sees_none());
    assert_close("output", &y, &[1.80443, 18.0443, 0.0, 0.0], 1e-5);
    assert_close("queries", &q, &[2.44736, 2.44736, 0.0, 0.0], 1e-5);
    assert_close("keys", &k, &[-1.22368, 0.0, 1.22368, 0.0], 1e-5);
    assert_close("values", &v, &[0.19557, 0.19557, 0.80443, 0.80443], 1e-4);
    assert_close("mask", &mask, &[-1.73054, 1.73054, 0.0, 0.0], 1e-5);
}

#[test]
fn masks_hide_keys() {
    for hides in [f32::NEG_INFINITY, f32::MIN] {
        let [y, ..] = attended(&Masked::first_tile_hidden(hides));
        assert_close("output", &y, &[0.995897, 0.0041035], 1e-6);
        for case in cases(hides) {
            for ((name, found), expected) in NAMES.iter().zip(attended(&case)).zip(case.outcome(&case.inputs)) {
                expected.assert_close(&format!("{}: {name}", case.what), &found, 1e-5);
            }
        }
    }
}

/// Scores of a query are equal after a number far from 0, such as the most negative one, is added to all of them. Its output is then the
/// mean of the values, and gradients are those of a mean.
#[test]
fn a_query_whose_scores_are_all_far_from_0() {
    for hides in [f32::MIN, -1e9, 1e6] {
        let case = Masked::of([2, 2], [5, 70, 4, 6], [1, 5], hides, |[sample, _, query, _]| sample == query);
        for ((name, found), expected) in NAMES.iter().zip(attended(&case)).zip(case.outcome(&case.inputs)) {
            expected.assert_close(&format!("{hides:e}: {name}"), &found, 1e-5);
        }
    }
}

/// A row that all queries share is the matrix with that row for each of them, whose gradient is summed over the queries. No tensor has as
/// many elements as the matrix.
#[test]
fn a_row_is_repeated_over_the_queries() {
    const STEPS: usize = 40;
    const KEYS: usize = 50;
    for (mask_heads, dropout) in [(1, 0.0), (2, 0.3)] {
        let row =
            Masked::of([2, 2], [STEPS, KEYS, 2, 2], [mask_heads, 1], f32::NEG_INFINITY, |[sample, head, _, key]| {
                key > 30 + sample + head
            });
        let row = row.dropping(dropout);
        let rows = row.inputs[3].chunks_exact(KEYS);
        let repeated = rows.flat_map(|row| std::iter::repeat_n(row, STEPS).flatten().copied()).collect();
        let [q, k, v, _] = row.inputs.clone();
        let matrix = Masked {
            mask_shape: [mask_heads, STEPS],
            inputs: [q, k, v, repeated],
            slope: row.slope.clone(),
            what: String::new(),
            ..row
        };
        let (found, mut expected) = (attended(&row), attended(&matrix));
        let mut sums = vec![0.0; row.inputs[3].len()];
        for (at, gradient) in expected[4].iter().enumerate() {
            sums[at / (STEPS * KEYS) * KEYS + at % KEYS] += gradient;
        }
        expected[4] = sums;
        for (found, expected) in found.iter().zip(&expected) {
            assert_close("a row", found, expected, 1e-5);
        }
        let (step, _) = row.step();
        let largest = step.tensors.iter().map(|tensor| tensor.elements(1).unwrap()).max();
        assert!(largest < Some((STEPS * KEYS) as u64), "{largest:?} elements");
    }
}
