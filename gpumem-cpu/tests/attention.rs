//! Attention whose heads of queries share keys is attention with those keys repeated.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::graphs::{layer, numbers};
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
