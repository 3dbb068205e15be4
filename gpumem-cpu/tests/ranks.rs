//! Training steps that ranks share: all values of `shard` give equal bits, and the gradients are those of as many micro-batches on one rank.

mod harness;

use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::indices::Indices;
use gpumem_core::program::loss::{Chunks, LossOptions};
use gpumem_core::program::{Class, Init, Program, Slot, Tensor};
use gpumem_core::run::device::Runner;
use gpumem_core::train::Shard;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::train::{Descent, Ranks};
use gpumem_core::{Precision, Role, Update};
use gpumem_cpu::Cpu;
use gpumem_language::source::{Overrides, Text};
use harness::graphs::random::{Choice, KINDS, network};
use harness::graphs::{again, chain, tokens};
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

/// Gives a network the inputs and targets of these parts of a batch. A target that counts others has one for each sample of so many parts.
fn feed<R: Runner>(net: &mut Loaded<R>, step: usize, parts: &[usize], counted_in: usize) {
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
        let count = tensor.elements(net.batch).unwrap() as usize;
        let each = count / parts.len();
        let numbers = parts.iter().flat_map(|part| {
            let first = step * 31 + part * 7 + 1;
            spread(each, tensor.name.bytes().fold(first, |salt, byte| (salt * 31 + byte as usize) % 65_521))
        });
        let limit = indices.iter().filter(|(of, _)| *of == id).map(|(_, indices)| indices.limit).min();
        let words: Vec<u32> = match (tensor.role, limit) {
            (Role::Index, limit) => numbers.map(|number| (number * limit.unwrap_or(1) as f32) as u32).collect(),
            _ if tensor.class == Class::Target && counted.contains(&id) => {
                vec![((net.batch * counted_in as u64 / parts.len() as u64) as f32).to_bits(); count]
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

/// Trains two steps on the micro-batches `micro_batches`, each of which has these parts of a batch.
fn trained(program: &Program, batch: u64, device: &Cpu, micro_batches: &[Vec<usize>]) -> Trained {
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
        let counted_in = micro_batches.iter().map(Vec::len).sum();
        for (number, parts) in micro_batches.iter().enumerate() {
            feed(&mut net, step, parts, counted_in);
            if number + 1 < micro_batches.len() {
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

/// Trains on several ranks, each in a thread of its own. All of them end with the same numbers. A micro-batch has one part for each rank.
fn on_ranks(program: &Program, batch: u64, is_late: bool) -> Trained {
    let (count, micro_batches) = (program.descent.ranks.count as usize, program.descent.micro_batches as usize);
    let mut all: Vec<Trained> = std::thread::scope(|scope| {
        let devices = Cpu::ranks(count).unwrap().into_iter().enumerate();
        let threads: Vec<_> = devices
            .map(|(rank, device)| {
                let device = if is_late { device.with_late_exchanges() } else { device }.with_poison(true);
                let parts: Vec<Vec<usize>> = (0..micro_batches).map(|number| vec![number * count + rank]).collect();
                scope.spawn(move || trained(program, batch, &device, &parts))
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
    let parts: Vec<Vec<usize>> = (0..count as usize).map(|part| vec![part]).collect();
    let alone = trained(&program(Ranks::ALONE, count), batch, &Cpu::with_threads(2).unwrap().with_poison(true), &parts);
    assert_close(name, &whole, &alone, BOUND);
}

/// Compares the loss and the gradients of the first step.
fn assert_close(name: &str, found: &Trained, expected: &Trained, bound: f64) {
    let [loss, of_expected] = [found, expected].map(|trained| f32::from_bits(trained.losses[0]));
    assert!((loss - of_expected).abs() <= 1e-6 * of_expected.abs(), "{name}: loss {loss} and {of_expected}");
    let pairs: Vec<(String, [Vec<f32>; 2])> = (found.gradients.iter().zip(&expected.gradients))
        .map(|((name, found), (_, expected))| (name.clone(), [numbers(found), numbers(expected)]))
        .collect();
    assert_pairs_close(&pairs, bound);
}

fn numbers(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

/// Compares each training step of an example. Large images and layers are smaller than those of the example.
fn compare_example(file: &str, count: u64) {
    let path = format!("{}/../examples/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let smaller = [("224, 224", "32, 32"), ("128, 128", "32, 32"), ("Linear(4096)", "Linear(128)")];
    let text = Text::read(&smaller.iter().fold(text, |text, (from, to)| text.replace(from, to))).unwrap();
    let batch = 2 * count;
    for name in text.names() {
        let mut overrides = Overrides::default();
        overrides.set("batch", &batch.to_string()).unwrap();
        let steps = text.declared(Some(&name), &overrides).unwrap().blueprint.steps();
        for blueprint in steps.iter().filter(|step| step.training.is_some()) {
            let program = |ranks: Ranks, micro_batches: u64| {
                let mut blueprint = blueprint.clone();
                let steps = blueprint.training.as_mut().unwrap();
                (steps.descent.ranks, steps.descent.micro_batches) = (ranks, micro_batches);
                steps.moments = MOMENTUM.moments();
                blueprint.training(Precision::F32).unwrap().unwrap()
            };
            let step = blueprint.step_name().unwrap_or("TRAIN");
            compare(&format!("{file} {name} {step}"), count, batch, program);
        }
    }
}

/// Compares ranks that synchronise batch norms with one rank that has the samples of all of them, in so many micro-batches.
fn compare_synchronised(name: &str, count: u64, micro_batches: u64, text: &Text) {
    let batch = 2 * count * micro_batches;
    let program = |ranks: Ranks| {
        let mut overrides = Overrides::default();
        let [batch, micro_batches] = [batch, micro_batches].map(|number| number.to_string());
        for (field, value) in [
            ("batch", batch.as_str()),
            ("micro_batches", &micro_batches),
            ("optimizer", "Sgd { lr: 1e-3, momentum: 0.9 }"),
            ("precision", "F32"),
        ] {
            overrides.set(field, value).unwrap();
        }
        let mut blueprint = text.declared(None, &overrides).unwrap().blueprint;
        blueprint.training.as_mut().unwrap().descent.ranks = ranks;
        blueprint.training(Precision::F32).unwrap().unwrap()
    };
    let ranks = |shard| Ranks { count, shard, least_sharded: 64, sync_batch_norm: true, ..Ranks::ALONE };
    let synchronised = program(ranks(Shard::None));
    let whole = on_ranks(&synchronised, batch, false);
    // A rank of `Parameters` adds up the sums of micro-batches, and one of `None` sums up what it has added up: other roundings.
    let with_shards = (micro_batches == 1).then_some((Shard::Parameters, true));
    for (shard, is_late) in [(Shard::None, true), (Shard::Optimizer, false)].into_iter().chain(with_shards) {
        let differ = differing(&on_ranks(&program(ranks(shard)), batch, is_late), &whole);
        assert!(differ.is_empty(), "{name}, {shard:?}, late: {is_late}: {differ:?}");
    }
    let parts = |first: u64| (first..first + count).map(|part| part as usize).collect();
    let parts: Vec<Vec<usize>> = (0..micro_batches).map(|number| parts(number * count)).collect();
    let device = Cpu::with_threads(2).unwrap().with_poison(true);
    let alone = trained(&program(Ranks::ALONE), batch, &device, &parts);
    assert_close(name, &whole, &alone, BOUND);
    let is_statistic = |name: &str| name.contains("running_");
    let statistics = whole.lasting.iter().zip(&alone.lasting).filter(|((name, _), _)| is_statistic(name));
    let pairs: Vec<(String, [Vec<f32>; 2])> =
        statistics.map(|((name, found), (_, expected))| (name.clone(), [numbers(found), numbers(expected)])).collect();
    assert!(!pairs.is_empty(), "{name} has running statistics");
    assert_pairs_close(&pairs, 1e-6);
    // Without it, each rank normalises by its own samples.
    let apart = on_ranks(&program(Ranks { sync_batch_norm: false, ..ranks(Shard::None) }), batch, false);
    assert_ne!(apart.losses, whole.losses, "{name}");
}

#[test]
fn synchronised_batch_norms_are_those_of_the_whole_batch() {
    let of_example = |file: &str| {
        let path = format!("{}/../examples/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        Text::read(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    compare_synchronised("images", 3, 1, &of_example("image_folder"));
    compare_synchronised("images in micro-batches", 2, 2, &of_example("image_folder"));
    let of = |layers: &str| {
        let text = format!(
            "network! {{
                pub struct Net;
                const TRAIN: Train = Train {{ batch: 1, loss: CrossEntropy }};
                fn forward(x: Image<2, 8, 8>) -> Logits<5> {{ [{layers}, Flatten, Linear(5)] }}
            }}"
        );
        Text::read(&text).unwrap()
    };
    compare_synchronised("no factors", 2, 1, &of("Conv2d(8, 3), BatchNorm2d(affine = false), Gelu"));
    compare_synchronised("in place", 3, 1, &of("Conv2d(8, 3), InplaceAbn, Conv2d(8, 3), InplaceAbn"));
    // The gradient of an activation that costs much is part of the norm's; 1x1 convolutions are fused with norms on one rank.
    let residual = "Conv2d(8, 3, padding = 1), BatchNorm2d, Silu, Add([], [Conv2d(16, 1, bias = false), BatchNorm2d, Relu, \
                    Conv2d(8, 1, bias = false), BatchNorm2d]), Relu";
    compare_synchronised("residual", 2, 1, &of(residual));
    // Norms read the first channels of a concatenation, which is made beside them.
    let dense = "Conv2d(4, 1), Concat([], [BatchNorm2d, Relu, Conv2d(4, 1)]), Concat([], [BatchNorm2d, Relu, Conv2d(4, 1)]), BatchNorm2d";
    compare_synchronised("a dense block", 2, 1, &of(dense));
    compare_synchronised("features", 4, 1, &of("Flatten, Linear(12), BatchNorm1d, Tanh"));
}

/// A forward pass gathers the shards of parameters, and computes what one rank does.
#[test]
fn forward_passes_of_shards() {
    let text = "network! {
        pub struct Net;
        const TRAIN: Train = Train { batch: 6, loss: CrossEntropy };
        fn forward(x: Features<6>) -> Logits<5> {
            let shared = Linear(257, 257);
            [Linear(257), Gelu, shared, LayerNorm, repeat(3, [Linear(257), Tanh]), shared, freeze(Linear(311)), Linear(5)]
        }
    }";
    let outputs = |count: usize, least_sharded: u64| {
        let mut blueprint = Text::read(text).unwrap().declared(None, &Overrides::default()).unwrap().blueprint;
        let ranks = Ranks { count: count as u64, shard: Shard::Parameters, least_sharded, ..Ranks::ALONE };
        blueprint.training.as_mut().unwrap().descent.ranks = ranks;
        let program = blueprint.evaluation().unwrap();
        let run = |device: Cpu, parts: &[usize]| {
            let mut net = Loaded::of(&device.with_poison(true), &program, 6, MOMENTUM).unwrap();
            net.initialise(3);
            feed(&mut net, 0, parts, 1);
            net.infer().unwrap().into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        let parts: Vec<usize> = (0..6).collect();
        let run = &run;
        std::thread::scope(|scope| {
            let devices = Cpu::ranks(count).unwrap().into_iter().zip(parts.chunks(6 / count));
            let threads: Vec<_> = devices.map(|(device, own)| scope.spawn(move || run(device, own))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<u32>>()
        })
    };
    let expected = outputs(1, 64);
    for (count, least_sharded) in [(2, 64), (2, 65_536), (3, 64)] {
        assert_eq!(outputs(count, least_sharded), expected, "{count} ranks");
    }
}

#[test]
fn examples_of_sequences() {
    compare_example("lstm", 2);
    compare_example("char_gpt", 2);
}

#[test]
fn examples_of_digits() {
    compare_example("first", 2);
    compare_example("digits", 3);
    compare_example("vit", 2);
    compare_example("distill", 2);
    compare_example("finetune", 2);
}

#[test]
fn examples_of_images() {
    compare_example("image_folder", 2);
    compare_example("unet", 2);
    compare_example("vae", 2);
    compare_example("gan", 2);
}

#[test]
fn examples_that_are_large() {
    compare_example("pets", 2);
    compare_example("vgg16", 2);
}

/// The gradient of a weight that the head shares is exchanged after logits were computed a second time.
#[test]
fn logits_twice() {
    let mut graph = Graph::default();
    let input = graph.input(tokens(9)).unwrap();
    let hidden = chain(&mut graph, input, "Embedding(40, 8) | Linear(8) | Tanh | LayerNorm");
    let output = again(&mut graph, hidden, "Tied", 0);
    for ignored in [None, Some(3)] {
        let options = LossOptions { chunks: Chunks::Twice(4), ignored, ..LossOptions::DEFAULT };
        let loss = &[Term { options, ..Term::CROSS_ENTROPY }];
        compare("a tied head", 2, 4, |ranks, micro_batches| {
            let descent = Descent { ranks, micro_batches, ..Descent::PLAIN };
            let update = Update::Fused;
            let training = Training { loss, moments: 1, update, skips_overflow: false, input_gradient: false, descent };
            let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
            // A sum over micro-batches lives until the end of the step anyway.
            assert_eq!(program.computes_logits_twice(), micro_batches == 1);
            program
        });
    }
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
