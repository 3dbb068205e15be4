//! Settings of training on ranks: norms over the samples of all ranks, host memory, averages, several steps, and resuming on other ranks.

use super::parked::{deep, parked};
use super::ranks::{Shared, Trained, check, inferred, lasting, on_cards, on_cpus, trained};
use super::steps::{begin_steps, job_of_steps, make, register_steps};
use super::*;
use gpumem_core::train::{Clip, Descent, Ema, Offload, Shard};

const TIMEOUT: (&str, &str) = ("GPUMEM_RANKS_TIMEOUT", "60");

/// Norms that are undone, before a function that costs much, and before a sum. Maps of 8 channels lie with channels last in 16 bits.
fn norms() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 6])).unwrap();
    let first = chain(&mut graph, input, "Conv2d(8, 3, padding = 1, bias = false) | InplaceAbn");
    let made = chain(
        &mut graph,
        first,
        "Conv2d(16, 1, bias = false) | BatchNorm2d | Silu | Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d",
    );
    let sum = join(&mut graph, &[first, made], "Add");
    let output = chain(&mut graph, sum, "Relu | Flatten | Dropout(0.25) | Linear(5)");
    (graph, output)
}

/// Trains on one rank of the CPU with the samples of all ranks.
fn whole(shared: &Shared) -> Trained {
    let one = Shared { ranks: 1, sync_batch_norm: false, ..shared.clone() };
    let step = one.blueprint().training(Precision::F32).unwrap().unwrap();
    let batch = BATCH * shared.ranks;
    let compiled = plan(&step, batch, Precision::F32);
    let (placed, arena) = (place(&compiled).unwrap(), compiled.budget[Line::Arena]);
    let job = Job { arena, batch, train: Some(placed.clone()), evaluation: None, infer: placed.clone(), ..one.job() };
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut cpu);
    let ((input, count), (target, labels)) = (at(&placed, Class::Input), at(&placed, Class::Target));
    let mut losses = Vec::new();
    for step in 0..3 {
        let parts = || (0..shared.ranks as usize).map(|rank| step * shared.ranks as usize + rank);
        let numbers: Vec<u32> = parts().flat_map(|part| spread(count, 100 + part)).collect();
        let classes = parts().flat_map(|part| (0..labels).map(move |index| (index + part) as u32 % CLASSES));
        cpu.feed(input, &bytes(&numbers)).unwrap();
        cpu.feed(target, &bytes(&classes.collect::<Vec<u32>>())).unwrap();
        cpu.train().unwrap();
        losses.push(loss(&job, &mut cpu));
    }
    let lasting = lasting(&job, &mut cpu).unwrap();
    (losses, lasting)
}

/// Returns the largest difference of losses, beside 1.
fn differ(found: &[f32], expected: &[f32]) -> f32 {
    found.iter().zip(expected).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

/// As ranks of the CPU compute them, and as one rank does with the whole batch.
#[test]
fn norms_of_all_ranks_are_those_of_the_whole_batch() {
    if !on_a_simulated_card("rank_settings::norms_of_all_ranks_are_those_of_the_whole_batch", &[TIMEOUT]) {
        return;
    }
    for (ranks, shard) in [(2, Shard::None), (3, Shard::Gradients), (4, Shard::Parameters)] {
        let shared = Shared { graph: norms, sync_batch_norm: true, ..Shared::new(ranks, shard) };
        check(&format!("{shard:?} on {ranks}"), shared.clone());
        let expected = whole(&shared);
        let run = |job: Job| {
            register_kernels(&job);
            on_cards(ranks, |card| trained(&job, &mut card.load(job.clone()).unwrap()).unwrap()).swap_remove(0)
        };
        let found = run(shared.job());
        assert!(differ(&found.0, &expected.0) < 1e-4, "{shard:?}: {:?}, {:?}", found.0, expected.0);
        compare(&format!("{shard:?} beside the whole batch"), &found.1, &expected.1);
        // Norms of each rank's own samples are others.
        let apart = run(Shared { sync_batch_norm: false, ..shared }.job());
        assert!(differ(&apart.0, &expected.0) > 1e-2, "{:?}, {:?}", apart.0, expected.0);
    }
}

#[test]
fn norms_of_all_ranks_with_settings_of_training() {
    if !on_a_simulated_card("rank_settings::norms_of_all_ranks_with_settings_of_training", &[TIMEOUT]) {
        return;
    }
    for precision in [Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)] {
        let shared = Shared { graph: norms, sync_batch_norm: true, precision, ..Shared::new(2, Shard::Optimizer) };
        check(&format!("{precision:?}"), shared);
    }
    for shard in [Shard::None, Shard::Parameters] {
        let descent = Descent { micro_batches: 2, clip: Some(Clip::GlobalNorm(0.5)), ..Descent::PLAIN };
        let update = Update::Separate;
        let shared = Shared { sync_batch_norm: true, descent, update, ..Shared::new(3, shard) };
        check(&format!("micro-batches, {shard:?}"), shared);
    }
}

/// Optimizer state of shards, and activations, in host memory: to the bit what a card computes that keeps them.
#[test]
fn ranks_with_host_memory() {
    if !on_a_simulated_card("rank_settings::ranks_with_host_memory", &[TIMEOUT]) {
        return;
    }
    let run = |shared: &Shared| {
        let job = shared.job();
        register_kernels(&job);
        let found = on_cards(shared.ranks, |card| trained(&job, &mut card.load(job.clone()).unwrap()).unwrap());
        (found, parked(&job), job.train.as_ref().unwrap().host())
    };
    let offloaded = |offload, plain: &Shared| Shared { descent: Descent { offload, ..plain.descent }, ..plain.clone() };
    for shard in Shard::ALL {
        for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
            let plain = Shared { precision, ..Shared::new(2, shard) };
            let (expected, ..) = run(&plain);
            let states = offloaded(Offload::OptimizerState, &plain);
            let (found, _, host) = run(&states);
            assert!(host > 0);
            assert_eq!(found, expected, "{shard:?}, {precision:?}");
            check("states in host memory", states);
        }
    }
    for shard in [Shard::None, Shard::Parameters] {
        let plain = Shared { graph: || deep(6), ..Shared::new(2, shard) };
        let (expected, ..) = run(&plain);
        for offload in [Offload::Activations, Offload::All] {
            let (found, parked, _) = run(&offloaded(offload, &plain));
            assert!(parked > 0, "nothing leaves the card");
            assert_eq!(found, expected, "{shard:?}, {offload:?}");
        }
    }
}

#[test]
fn ranks_with_averages() {
    if !on_a_simulated_card("rank_settings::ranks_with_averages", &[TIMEOUT]) {
        return;
    }
    for shard in Shard::ALL {
        let ema = Some(Ema { decay: 0.75, ..Ema::DEFAULT });
        for (precision, offload) in [
            (Precision::F32, Offload::None),
            (Precision::F32, Offload::OptimizerState),
            (Precision::Mixed(Half::Bf16), Offload::None),
        ] {
            let descent = Descent { ema, offload, ..Descent::PLAIN };
            let shared = Shared { precision, descent, ..Shared::new(3, shard) };
            let averages = shared.job().train.unwrap().program.of_class(Class::Average).count();
            assert!(averages > 0);
            check(&format!("{shard:?}, {precision:?}, {offload:?}"), shared);
        }
    }
}

/// Several training steps in turns, with exchanges of their own.
#[test]
fn ranks_with_several_steps() {
    if !on_a_simulated_card("rank_settings::ranks_with_several_steps", &[TIMEOUT]) {
        return;
    }
    for shard in Shard::ALL {
        let ranks = Shared::new(2, shard).ranks();
        let plain = Descent { ranks, ..Descent::PLAIN };
        let job = job_of_steps(
            Precision::F32,
            [plain, Descent { clip: Some(Clip::GlobalNorm(0.1)), micro_batches: 2, ..plain }],
        );
        register_steps(&job);
        fn run(job: &Job, runner: &mut impl Runner) -> Trained {
            begin_steps(job, runner);
            let [rank, count] = runner.rank().map(|number| number as usize);
            let order = [0, 1, 1, 0, 1].into_iter().enumerate();
            let losses = order.map(|(salt, number)| make(job, runner, number, salt * count + rank)).collect();
            runner.select(0).unwrap();
            let lasting = lasting(job, runner).unwrap();
            (losses, [lasting, vec![("the forward pass".into(), inferred(job, runner).unwrap())]].concat())
        }
        let found = on_cards(2, |card| run(&job, &mut card.load(job.clone()).unwrap()));
        let expected = on_cpus(2, |cpu| run(&job, &mut cpu.load(job.clone()).unwrap()));
        assert_eq!(found[0], found[1], "{shard:?}");
        host::harness::assert_close(&format!("{shard:?}: losses"), &found[0].0, &expected[0].0, 1e-3);
        compare(&format!("{shard:?}"), &found[0].1, &expected[0].1);
    }
}

/// The bytes of everything that outlives a step, by name: what a snapshot has.
fn saved(job: &Job, runner: &mut impl Runner) -> Vec<(String, Vec<u8>)> {
    let placed = job.train.as_ref().unwrap();
    let lasts =
        |class| matches!(class, Class::Parameter | Class::Buffer | Class::Moment | Class::Average | Class::State);
    let all = placed.program.tensors.iter().enumerate().filter(|(_, tensor)| lasts(tensor.class));
    let mut read = |name: String, offset: u64, bytes: u64| {
        let mut own = vec![0; bytes as usize];
        runner.read(offset, &mut own).unwrap();
        (name, own)
    };
    let mut saved = Vec::new();
    for (id, tensor) in all {
        // A tensor is saved whole, without the padding of its last shard.
        let elements = tensor.elements(BATCH).unwrap();
        let bytes = elements * tensor.role.bytes(job.precision);
        saved.push(read(tensor.name.clone(), placed.offsets[id], bytes));
        if let (Class::State, Some((_, words))) = (tensor.class, saved.last_mut()) {
            // Words of a running step, which differ on ranks.
            for word in [StateWord::PART, StateWord::Losses as usize, StateWord::Blocks as usize] {
                words[4 * word..4 * word + 4].fill(0);
            }
        }
        if let Some(master) = placed.masters[id] {
            saved.push(read(format!("{}, master copy", tensor.name), master, 4 * elements));
        }
    }
    // Programs of other numbers of ranks may list them in another order.
    saved.sort();
    saved
}

/// Writes what [`saved`] returned, for a job with any number of ranks.
fn resume(job: &Job, runner: &mut impl Runner, saved: &[(String, Vec<u8>)]) {
    let placed = job.train.as_ref().unwrap();
    for (name, bytes) in saved {
        let plain = name.trim_end_matches(", master copy");
        let is_it = |tensor: &gpumem_core::program::Tensor| tensor.name == plain && tensor.class != Class::Transient;
        let id = placed.program.tensors.iter().position(is_it).unwrap();
        let offset = if plain == name { placed.offsets[id] } else { placed.masters[id].unwrap() };
        runner.write(offset, bytes).unwrap();
    }
}

/// One training step, of which each rank takes its part.
fn step_after(job: &Job, runner: &mut impl Runner, first: usize) -> f32 {
    let [rank, _] = runner.rank();
    feed(job, runner, first + rank as usize);
    runner.train().unwrap();
    loss(job, runner)
}

/// As many ranks resume a saved state to the bit, and fewer ranks as ranks of the CPU do.
#[test]
fn saved_by_four_ranks_and_resumed_by_fewer() {
    if !on_a_simulated_card("rank_settings::saved_by_four_ranks_and_resumed_by_fewer", &[TIMEOUT]) {
        return;
    }
    let ema = Some(Ema { decay: 0.75, ..Ema::DEFAULT });
    for (precision, offload) in
        [(Precision::F32, Offload::OptimizerState), (Precision::Mixed(Half::Bf16), Offload::None)]
    {
        let of = |ranks, shard| {
            let descent = Descent { ema, offload, ..Descent::PLAIN };
            Shared { precision, descent, sync_batch_norm: ranks > 1, ..Shared::new(ranks, shard) }
        };
        let four = of(4, Shard::Gradients).job();
        register_kernels(&four);
        let kept = on_cards(4, |card| {
            let mut net = card.load(four.clone()).unwrap();
            begin(&four, &mut net);
            step_after(&four, &mut net, 0);
            let kept = saved(&four, &mut net);
            (kept, step_after(&four, &mut net, 4), saved(&four, &mut net))
        });
        assert!(kept.iter().all(|other| *other == kept[0]), "ranks save other numbers");
        let (kept, next, after) = &kept[0];
        let again = on_cards(4, |card| {
            let mut net = card.load(four.clone()).unwrap();
            begin(&four, &mut net);
            resume(&four, &mut net, kept);
            (saved(&four, &mut net), step_after(&four, &mut net, 4), saved(&four, &mut net))
        });
        assert!(again.iter().all(|(own, loss, last)| own == kept && loss == next && last == after), "{precision:?}");
        for (ranks, shard) in [(3, Shard::Parameters), (2, Shard::Optimizer), (1, Shard::None)] {
            let job = of(ranks, shard).job();
            register_kernels(&job);
            let run = |card: Cuda| {
                let mut net = card.load(job.clone()).unwrap();
                resume(&job, &mut net, kept);
                assert!(saved(&job, &mut net) == *kept, "{ranks} ranks resume other numbers");
                (step_after(&job, &mut net, 4), lasting(&job, &mut net).unwrap())
            };
            let found =
                if ranks > 1 { on_cards(ranks, run) } else { vec![run(Cuda::new(0).unwrap().with_cudnn(false))] };
            assert!(found.iter().all(|other| *other == found[0]), "{ranks} ranks differ");
            if precision != Precision::F32 {
                continue;
            }
            let on_cpu = |cpu: Cpu| {
                let mut net = cpu.load(job.clone()).unwrap();
                resume(&job, &mut net, kept);
                (step_after(&job, &mut net, 4), lasting(&job, &mut net).unwrap())
            };
            let expected = if ranks > 1 { on_cpus(ranks, on_cpu) } else { vec![on_cpu(Cpu::with_threads(1).unwrap())] };
            assert!((found[0].0 - expected[0].0).abs() < 1e-4, "{} and {}", found[0].0, expected[0].0);
            compare(&format!("resumed on {ranks}"), &found[0].1, &expected[0].1);
        }
    }
}
