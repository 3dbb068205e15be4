//! Training steps that ranks share: all values of `shard` give equal bits, and the gradients are those of as many micro-batches on one rank.

mod harness;

use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::indices::Indices;
use gpumem_core::program::{Class, Init, Program, Slot, Tensor};
use gpumem_core::run::device::Runner;
use gpumem_core::train::Shard;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::train::{Descent, Ranks};
use gpumem_core::{Precision, Role, Update};
use gpumem_cpu::Cpu;
use gpumem_language::source::{Overrides, Text};
use harness::graphs::random::{Choice, KINDS, network};
use harness::{Loaded, assert_pairs_close};
use proptest::prelude::*;

/// Momentum after the first step is the gradient.
const MOMENTUM: Optimizer = Optimizer::Sgd(Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::DEFAULT });

/// 64 roundings of the largest gradient.
const BOUND: f64 = 64.0 / (1 << 24) as f64;

/// Words of tensors, by name.
type Words = Vec<(String, Vec<u32>)>;

/// The loss of each step, the optimizer state after the first one, and everything that lasts after the last one.
#[derive(Clone, PartialEq)]
struct Trained {
    losses: Vec<u32>,
    gradients: Words,
    lasting: Words,
}

/// Numbers from 0 to 1 that look random.
fn spread(count: usize, salt: usize) -> impl Iterator<Item = f32> {
    (0..count).map(move |index| ((index * 7919 + salt * 104_729) % 1009) as f32 / 1009.0)
}

/// Gives a network the inputs and targets of one part of a batch. A target that counts others has their number in so many parts.
fn feed<R: Runner>(net: &mut Loaded<R>, (step, part): (usize, usize), counted_in: usize) {
    let program = net.train.program.clone();
    let operations = &program.operations;
    let indices: Vec<(u32, Indices)> = operations
        .iter()
        .flat_map(|operation| operation.indices(&program).into_iter().map(|it| (operation.read(it.slot).unwrap(), it)))
        .collect();
    let counts = |operation: &gpumem_core::program::Operation| operation.read(Slot::Saved(0));
    let counted: Vec<u32> = operations.iter().filter(|it| !it.action.is_exchange()).filter_map(counts).collect();
    for (id, tensor) in (0..).zip(&program.tensors) {
        if !matches!(tensor.class, Class::Input | Class::Target) {
            continue;
        }
        let salt =
            tensor.name.bytes().fold(step * 31 + part * 7 + 1, |salt, byte| (salt * 31 + byte as usize) % 65_521);
        let count = tensor.elements(net.batch).unwrap() as usize;
        let limit = indices.iter().filter(|(of, _)| *of == id).map(|(_, indices)| indices.limit).min();
        let numbers = spread(count, salt);
        let words: Vec<u32> = match (tensor.role, limit) {
            (Role::Index, limit) => numbers.map(|number| (number * limit.unwrap_or(1) as f32) as u32).collect(),
            _ if tensor.class == Class::Target && counted.contains(&id) => {
                vec![(8.0 * counted_in as f32).to_bits(); count]
            }
            (Role::Byte, _) => numbers.map(|number| (255.0 * number).to_bits()).collect(),
            _ => numbers.map(f32::to_bits).collect(),
        };
        net.set(&tensor.name, &words);
    }
}

/// Returns the words of all tensors of some classes.
fn words<R: Runner>(net: &mut Loaded<R>, is_wanted: fn(&Tensor) -> bool) -> Words {
    let names: Vec<String> =
        net.train.program.tensors.iter().filter(|it| is_wanted(it)).map(|it| it.name.clone()).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), net.get(&name).unwrap().into_iter().map(f32::to_bits).collect()))
        .collect()
}

fn is_state(tensor: &Tensor) -> bool {
    tensor.class == Class::Moment
}

fn lasts(tensor: &Tensor) -> bool {
    matches!(tensor.class, Class::Parameter | Class::Buffer | Class::Moment)
}

/// Trains two steps on the parts `parts` of a batch, with each part but the last accumulated.
fn trained(program: &Program, batch: u64, device: &Cpu, parts: &[usize]) -> Trained {
    let mut net = Loaded::of(device, program, batch, MOMENTUM).unwrap();
    net.initialise(3);
    let is_singular = |tensor: &&Tensor| matches!(tensor.init, Init::Singular { .. });
    let singular: Vec<Tensor> = program.tensors.iter().filter(is_singular).cloned().collect();
    for tensor in singular {
        let words: Vec<u32> = spread(tensor.elements(1).unwrap() as usize, 5).map(f32::to_bits).collect();
        net.set(&tensor.name, &words);
    }
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for step in 0..2 {
        for (number, &part) in parts.iter().enumerate() {
            feed(&mut net, (step, part), parts.len());
            if number + 1 < parts.len() {
                net.runner_mut().accumulate(number as u64).unwrap();
            }
        }
        losses.push(net.step().unwrap().to_bits());
        if step == 0 {
            gradients = words(&mut net, is_state);
        }
    }
    Trained { losses, gradients, lasting: words(&mut net, lasts) }
}

/// Trains on several ranks, each in a thread of its own. All of them end with the same numbers.
fn on_ranks(program: &Program, batch: u64, is_late: bool) -> Trained {
    let count = program.descent.ranks.count as usize;
    let mut all: Vec<Trained> = std::thread::scope(|scope| {
        let devices = Cpu::ranks(count).unwrap().into_iter().enumerate();
        let threads: Vec<_> = devices
            .map(|(rank, device)| {
                let device = if is_late { device.with_late_exchanges() } else { device }.with_poison(true);
                scope.spawn(move || trained(program, batch, &device, &[rank]))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = all.swap_remove(0);
    assert!(all.iter().all(|other| *other == first), "ranks differ");
    first
}

/// Names of tensors that differ.
fn differing(found: &Trained, expected: &Trained) -> Vec<String> {
    assert_eq!(found.lasting.len(), expected.lasting.len());
    let pairs = found.lasting.iter().zip(&expected.lasting);
    let mut names: Vec<String> = pairs.filter(|(one, other)| one != other).map(|(one, _)| one.0.clone()).collect();
    if found.losses != expected.losses {
        names.push("the loss".into());
    }
    names
}

/// Compares ranks with micro-batches, given the program of either.
fn compare(name: &str, count: u64, batch: u64, program: impl Fn(Ranks, u64) -> Program) {
    // Small tensors are sharded as well.
    let ranks = |shard| Ranks { count, shard, least_sharded: 64, ..Ranks::ALONE };
    let on = |shard, is_late| on_ranks(&program(ranks(shard), 1), batch, is_late);
    let whole = on(Shard::None, false);
    let numbers = |words: &[u32]| -> Vec<f32> { words.iter().map(|&word| f32::from_bits(word)).collect() };
    let all = whole.lasting.iter().flat_map(|(_, words)| numbers(words));
    assert!(all.into_iter().all(f32::is_finite), "{name}: numbers that are not finite");
    for (shard, is_late) in [
        (Shard::None, true),
        (Shard::Optimizer, false),
        (Shard::Gradients, true),
        (Shard::Parameters, false),
        (Shard::Parameters, true),
    ] {
        let differ = differing(&on(shard, is_late), &whole);
        assert!(differ.is_empty(), "{name}, {shard:?}, late: {is_late}: {differ:?}");
    }
    let parts: Vec<usize> = (0..count as usize).collect();
    let alone = trained(&program(Ranks::ALONE, count), batch, &Cpu::with_threads(2).unwrap().with_poison(true), &parts);
    let [found, expected] = [&whole, &alone].map(|trained| f32::from_bits(trained.losses[0]));
    assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{name}: loss {found} and {expected}");
    let pairs: Vec<(String, [Vec<f32>; 2])> = (whole.gradients.iter().zip(&alone.gradients))
        .map(|((name, found), (_, expected))| (name.clone(), [numbers(found), numbers(expected)]))
        .collect();
    assert_pairs_close(&pairs, BOUND);
}

/// Compares each network of an example, with these fields of `TRAIN`. Images are smaller than those of the example.
fn compare_example(file: &str, count: u64, fields: &[(&str, &str)]) {
    let path = format!("{}/../examples/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap().replace("224, 224", "64, 64");
    let text = Text::read(&text).unwrap();
    for name in text.names() {
        let batch = 2 * count;
        let program = |ranks: Ranks, micro_batches: u64| {
            let mut overrides = Overrides::default();
            overrides.set("batch", &batch.to_string()).unwrap();
            overrides.set("optimizer", "Sgd { lr: 1e-3, momentum: 0.9 }").unwrap();
            overrides.set("precision", "F32").unwrap();
            fields.iter().for_each(|(field, value)| overrides.set(field, value).unwrap());
            let mut blueprint = text.declared(Some(&name), &overrides).unwrap().blueprint;
            let descent = &mut blueprint.training.as_mut().unwrap().descent;
            (descent.ranks, descent.micro_batches) = (ranks, micro_batches);
            blueprint.training(Precision::F32).unwrap().unwrap()
        };
        compare(&format!("{file} {name}"), count, batch, program);
    }
}

#[test]
fn examples_of_sequences() {
    compare_example("lstm", 2, &[]);
    compare_example("char_gpt", 2, &[]);
}

#[test]
fn examples_of_digits() {
    compare_example("digits", 3, &[]);
    compare_example("vit", 2, &[]);
    compare_example("distill", 2, &[]);
    compare_example("finetune", 2, &[]);
}

#[test]
fn examples_of_images() {
    compare_example("image_folder", 2, &[]);
    compare_example("unet", 2, &[]);
    compare_example("vae", 2, &[]);
}

#[test]
fn examples_that_are_large() {
    compare_example("pets", 2, &[]);
    compare_example("vgg16", 2, &[]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Gradients are held, or used as soon as they have been exchanged.
    #[test]
    fn random_networks(
        choices in prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..12),
        count in 2u64..4,
        separate in any::<bool>(),
    ) {
        let choices: Vec<Choice> = choices;
        let (graph, output) = network(&choices, true);
        compare("a random network", count, 2 * count, |ranks, micro_batches| {
            let descent = Descent { ranks, micro_batches, ..Descent::PLAIN };
            let update = if separate { Update::Separate } else { Update::Fused };
            let loss = &[Term::CROSS_ENTROPY];
            let training =
                Training { loss, moments: 1, update, skips_overflow: false, input_gradient: false, descent };
            lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
        });
    }
}
