//! Inference with a cache on a card: the pass of a chunk and that of one step over the same keys and values.

use super::*;
use gpumem_core::graph::Type;
use gpumem_core::lower::{Blueprint, Cached};
use gpumem_core::shape::Shape;
use host::harness::graphs::join;

const STEPS: u64 = 9;
const CHUNK: u64 = 4;

fn cached_job(precision: Precision, layers: &[&str]) -> Job {
    let mut graph = Graph::default();
    let input = graph.input(Type::indices(Shape::new(&[STEPS]))).unwrap();
    let mut output = input;
    for layers in layers {
        output = match *layers {
            // Of one value, which is its own step sizes, b and c.
            "SelectiveScan" => join(&mut graph, &[output; 4], layers),
            layers => chain(&mut graph, output, layers),
        };
    }
    let cached = Some(Cached { steps: STEPS, chunk: CHUNK });
    let blueprint = Blueprint { graph, outputs: vec![output], training: None, cached, parts: Default::default() };
    let compiled = plan(&blueprint.inference().unwrap(), BATCH, precision);
    let infer = place(&compiled).unwrap();
    let one_step = blueprint.decoding().unwrap().unwrap().encode();
    let served = Served { placed: infer.covering(&one_step, BATCH, precision).unwrap(), batch: BATCH };
    Job {
        name: "test",
        arena: compiled.budget[Line::Arena],
        batch: BATCH,
        precision,
        train: None,
        evaluation: None,
        others: Vec::new(),
        infer,
        served: Some(served),
        optimizer: Optimizer::Sgd(Sgd::DEFAULT),
        tf32: false,
        deterministic: false,
        reserve: 0,
        settings: 0,
        operations: &OPERATIONS,
    }
}

/// What a device says to these passes: their first step and how many steps they take.
fn passes(job: &Job, runner: &mut dyn Runner, passes: &[(u64, u64)]) -> Vec<Vec<f32>> {
    for (id, tensor) in job.infer.program.tensors.iter().enumerate().filter(|(_, it)| it.class == Class::Parameter) {
        let words = spread(tensor.elements(1).unwrap() as usize, id + 1);
        runner.write(job.infer.offsets[id], &bytes(&words)).unwrap();
    }
    let mut found = Vec::new();
    for &(first, count) in passes {
        let placed = if count == 1 { &job.served.as_ref().unwrap().placed } else { &job.infer };
        let of = |class| placed.offsets[placed.program.of_class(class).next().unwrap() as usize];
        // A chunk may be filled up.
        let length = if count == 1 { 1 } else { CHUNK };
        let token = |index: u64| ((first + index % length + 3 * (index / length)) % 7) as u32;
        let tokens: Vec<u32> = (0..BATCH * length).map(token).collect();
        runner.write(of(Class::Input), &bytes(&tokens)).unwrap();
        let words = [first as u32, 0, count as u32];
        runner.write(of(Class::State) + 4 * StateWord::Step as u64, &bytes(&words)).unwrap();
        if count == 1 { runner.serve() } else { runner.infer() }.unwrap();
        let result = placed.program.results[0] as usize;
        let mut logits = vec![0; placed.bytes[result] as usize];
        runner.read(placed.offsets[result], &mut logits).unwrap();
        let word = |word: &[u8]| f32::from_le_bytes(word.try_into().unwrap());
        found.push(logits.chunks_exact(4).map(word).collect());
    }
    found
}

/// In captured graphs, which are replayed at another position.
#[test]
fn chunks_and_steps_share_a_cache() {
    if !on_a_simulated_card("cached::chunks_and_steps_share_a_cache", &[]) {
        return;
    }
    let layers = ["Embedding(7, 16) | CausalSelfAttention(4, kv_heads = 2, rotary = 100.0) | LayerNorm | Linear(5)"];
    let job = cached_job(Precision::F32, &layers);
    let order = [(0, CHUNK), (4, 1), (5, 1), (6, 1), (4, CHUNK), (8, 1), (7, CHUNK)];
    let found = passes(&job, &mut load(&job), &order);
    let expected = passes(&job, &mut Cpu::with_threads(1).unwrap().load(job.clone()).unwrap(), &order);
    for ((found, expected), pass) in found.iter().zip(&expected).zip(&order) {
        host::harness::assert_close(&format!("{pass:?}"), found, expected, 1e-4);
    }
    let mut card = load(&job);
    let input = job.infer.offsets[job.infer.program.of_class(Class::Input).next().unwrap() as usize];
    let wrong = Error::Index { what: "token", position: 1, value: 7, limit: 7 };
    assert_eq!(card.write(input, &bytes(&[0, 7, 0])), Err(wrong.clone()));
    assert_eq!(card.write(input, &bytes(&[0, 7].repeat(6))), Err(wrong));
}

/// What both passes keep of all steps so far, from the beginning and again from there.
#[test]
fn chunks_and_steps_share_states() {
    if !on_a_simulated_card("cached::chunks_and_steps_share_states", &[]) {
        return;
    }
    let convolution =
        "Transpose(1, 2) | Conv1d(6, 3, padding = 2) | Slice(0, -2, dim = -1) | Transpose(1, 2) | Sigmoid";
    let job = cached_job(Precision::F32, &["Embedding(7, 4)", convolution, "SelectiveScan", "Linear(5)"]);
    let order = [(0, CHUNK), (4, 1), (5, 1), (6, 3), (0, 1), (1, CHUNK), (5, 2), (7, 1)];
    let found = passes(&job, &mut load(&job), &order);
    let expected = passes(&job, &mut Cpu::with_threads(1).unwrap().load(job.clone()).unwrap(), &order);
    for ((found, expected), pass) in found.iter().zip(&expected).zip(&order) {
        host::harness::assert_close(&format!("{pass:?}"), found, expected, 1e-4);
    }
}
