//! Ranks: threads of one process, each with a session of its own, whose exchanges the host plays.

use super::*;
use crate::host::card::{exchange_counts, on_a_simulated_card, on_simulated_cards_at_once};
use gpumem_core::lower::{Blueprint, Steps};
use gpumem_core::program::loss::LossOptions;
use gpumem_core::run::ranks::Ranks as Place;
use gpumem_core::train::{Checkpoint, Clip, ConvNorm, Descent, Ranks, Shard};
use gpumem_cuda::RankId;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub(super) const ADAM: Optimizer = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });

/// Seconds that a rank of a test waits for the others.
const TIMEOUT: (&str, &str) = ("GPUMEM_RANKS_TIMEOUT", "4");

/// A network whose larger tensors are sharded, most of them with padding.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) graph: fn() -> (Graph, NodeId),
    pub(super) ranks: u64,
    pub(super) shard: Shard,
    pub(super) precision: Precision,
    pub(super) update: Update,
    pub(super) descent: Descent,
    pub(super) loss: Term,
    pub(super) sync_batch_norm: bool,
}

/// Maps with a norm, and matrices.
fn maps() -> (Graph, NodeId) {
    let layers = "Conv2d(9, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | \
                  Flatten | Dropout(0.25) | Linear(37) | Tanh | Linear(5)";
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 6])).unwrap();
    let output = chain(&mut graph, input, layers);
    (graph, output)
}

impl Shared {
    pub(super) fn new(ranks: u64, shard: Shard) -> Shared {
        let (precision, update, descent) = (Precision::F32, Update::Fused, Descent::PLAIN);
        let loss = Term::CROSS_ENTROPY;
        Shared { graph: maps, ranks, shard, precision, update, descent, loss, sync_batch_norm: false }
    }

    /// Returns the ranks of the network, of which a bucket takes some of the gradients.
    pub(super) fn ranks(&self) -> Ranks {
        Ranks {
            count: self.ranks,
            shard: self.shard,
            bucket: 4096,
            least_sharded: 100,
            sync_batch_norm: self.sync_batch_norm,
            ..Ranks::ALONE
        }
    }

    pub(super) fn blueprint(&self) -> Blueprint {
        let (graph, output) = (self.graph)();
        let ranks = self.ranks();
        let descent = Descent { ranks, skips: self.precision.scales_loss(), ..self.descent }.at(self.precision);
        let (loss, update, checkpoint) = (vec![self.loss.clone()], self.update, Checkpoint::None);
        let training =
            Steps { loss, moments: 2, update, checkpoint, descent, conv_norm: ConvNorm::Fused, ordered_at: None };
        Blueprint { graph, outputs: vec![output], training: Some(training), cached: None, parts: Default::default() }
    }

    pub(super) fn job(&self) -> Job {
        let blueprint = self.blueprint();
        let step = blueprint.training(self.precision).unwrap().unwrap();
        // A pass of a training network gathers parameters of which ranks have shards.
        let job = job_of_programs([&step, &blueprint.evaluation().unwrap()], ADAM, self.precision, None);
        Job { evaluation: job.train.as_ref().unwrap().evaluation().ok(), ..job }
    }
}

/// The losses of a rank's steps, and everything that lasts.
pub(super) type Trained = (Vec<f32>, Vec<(String, Vec<f32>)>);

/// Trains some steps, of which each rank takes its part.
pub(super) fn trained(job: &Job, runner: &mut impl Runner) -> Result<Trained, Error> {
    let [rank, count] = runner.rank().map(|number| number as usize);
    begin(job, runner);
    let placed = job.train.as_ref().unwrap();
    let parts = placed.program.descent.micro_batches as usize;
    let divisor = placed.program.of_class(Class::Target).nth(1);
    let mut losses = Vec::new();
    for step in 0..3 {
        for part in 0..parts {
            feed(job, runner, (step * count + rank) * parts + part);
            if let Some(divisor) = divisor {
                let values = vec![(rank as f32 + 1.5).to_bits(); BATCH as usize];
                runner.feed(placed.offsets[divisor as usize], &bytes(&values))?;
            }
            if part + 1 < parts {
                runner.accumulate(part as u64)?;
            }
        }
        runner.train()?;
        losses.push(runner.loss(placed.offsets[placed.program.results[0] as usize])?);
    }
    // Training feeds another half of the double buffer.
    let (target, labels) = at(placed, Class::Target);
    let (input, count) = at(placed, Class::Input);
    runner.write(input, &stored(job, Role::Activation, &spread(count, rank + 50)))?;
    runner.write(target, &bytes(&vec![rank as u32; labels]))?;
    runner.evaluate()?;
    let mut loss = [0; 4];
    runner.read(placed.offsets[placed.program.results[0] as usize], &mut loss)?;
    losses.push(f32::from_le_bytes(loss));
    let mut lasting = lasting(job, runner)?;
    lasting.push(("the forward pass".into(), inferred(job, runner)?));
    Ok((losses, lasting))
}

/// Returns the output of a forward pass on one input of all ranks.
pub(super) fn inferred(job: &Job, runner: &mut impl Runner) -> Result<Vec<f32>, Error> {
    let (input, count) = at(&job.infer, Class::Input);
    runner.write(input, &stored(job, Role::Activation, &spread(count, 3)))?;
    runner.infer()?;
    numbers_at(job, runner, (&job.infer, job.infer.program.results[0] as usize))
}

/// Returns the numbers of a tensor of a program; of one in 16 bits the bits.
fn numbers_at(job: &Job, runner: &mut impl Runner, (placed, id): (&Placed, usize)) -> Result<Vec<f32>, Error> {
    let tensor = &placed.program.tensors[id];
    let width = tensor.role.bytes(job.precision) as usize;
    let mut bytes = vec![0; tensor.elements(BATCH).unwrap() as usize * width];
    runner.read(placed.offsets[id], &mut bytes)?;
    let number = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        [a, b] => f32::from(u16::from_le_bytes([a, b])),
        _ => panic!("numbers of {width} bytes"),
    };
    Ok(bytes.chunks_exact(width).map(number).collect())
}

/// Returns everything that outlives a step, by name.
pub(super) fn lasting(job: &Job, runner: &mut impl Runner) -> Result<Vec<(String, Vec<f32>)>, Error> {
    let placed = job.train.as_ref().unwrap();
    let lasts = |class| matches!(class, Class::Parameter | Class::Buffer | Class::Moment | Class::Average);
    let tensors = placed.program.tensors.iter().enumerate().filter(|(_, tensor)| lasts(tensor.class));
    tensors.map(|(id, tensor)| Ok((tensor.name.clone(), numbers_at(job, runner, (placed, id))?))).collect()
}

/// Calls `run` on each rank, in a thread of its own, with its card.
pub(super) fn on_cards<T: Send>(count: u64, run: impl Fn(Cuda) -> T + Sync) -> Vec<T> {
    let id = RankId::new().unwrap();
    let place = |number| Place::new(number, count).unwrap();
    let card = |number| Cuda::new(0).unwrap().with_cudnn(false).on_rank(&place(number), id).unwrap();
    let cards: Vec<Cuda> = (0..count).map(card).collect();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = cards.into_iter().map(|card| scope.spawn(move || run(card))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Calls `run` on each rank of the CPU, in a thread of its own.
pub(super) fn on_cpus<T: Send>(count: u64, run: impl Fn(Cpu) -> T + Sync) -> Vec<T> {
    let devices = Cpu::ranks(count as usize).unwrap();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = devices.into_iter().map(|cpu| scope.spawn(move || run(cpu))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Compares a job on so many cards with the CPU's ranks.
pub(super) fn check(what: &str, shared: Shared) {
    let job = shared.job();
    register_kernels(&job);
    let found = on_cards(shared.ranks, |card| trained(&job, &mut card.load(job.clone()).unwrap()).unwrap());
    // The CPU computes in f32 what a step in another format does.
    let job = Job { precision: Precision::F32, ..Shared { precision: Precision::F32, ..shared.clone() }.job() };
    let expected = on_cpus(shared.ranks, |cpu| trained(&job, &mut cpu.load(job.clone()).unwrap()).unwrap());
    let (losses, state) = &expected[0];
    for (rank, (own, all)) in found.iter().enumerate() {
        let what = format!("{what}, rank {rank}");
        for (step, (found, expected)) in own.iter().zip(losses).enumerate() {
            let bound = if shared.precision == Precision::F32 { 1e-4 } else { 5e-2 * expected.abs() };
            assert!((found - expected).abs() < bound, "{what}, step {step}: {found}, {expected}");
        }
        assert_eq!(own, &found[0].0, "{what}: losses differ");
        if shared.precision == Precision::F32 {
            compare(&what, all, state);
        }
        for ((name, own), (_, first)) in all.iter().zip(&found[0].1) {
            let is_equal = own.iter().zip(first).all(|(own, first)| own.to_bits() == first.to_bits());
            assert!(is_equal, "{what}: `{name}` differs from that of rank 0");
        }
    }
}

#[test]
fn steps_are_those_of_ranks_on_cpus() {
    if !on_a_simulated_card("ranks::steps_are_those_of_ranks_on_cpus", &[("GPUMEM_RANKS_TIMEOUT", "60")]) {
        return;
    }
    for shard in Shard::ALL {
        for ranks in [2, 3] {
            check(&format!("{shard:?} on {ranks}"), Shared::new(ranks, shard));
        }
    }
    let [_, reduces, scatters, gathers, made, destroyed, aborted, channels] = exchange_counts();
    assert!(reduces > 0 && scatters > 0 && gathers > 0);
    assert_eq!((made, aborted, channels), (destroyed, 0, Ranks::ALONE.channels));
}

/// Clipping by norm, micro-batches, counted targets and optimizer state in host memory, on four ranks.
#[test]
fn settings_of_training_hold_for_ranks() {
    if !on_a_simulated_card("ranks::settings_of_training_hold_for_ranks", &[("GPUMEM_RANKS_TIMEOUT", "60")]) {
        return;
    }
    for shard in Shard::ALL {
        let plain = Shared { update: Update::Separate, ..Shared::new(4, shard) };
        let clip = Some(Clip::GlobalNorm(0.5));
        check("clip", Shared { descent: Descent { clip, ..Descent::PLAIN }, ..plain.clone() });
        check(
            "micro-batches",
            Shared { descent: Descent { clip, micro_batches: 2, ..Descent::PLAIN }, ..plain.clone() },
        );
        let options = LossOptions { ignored: Some(1), ..LossOptions::DEFAULT };
        check("counted", Shared { loss: Term { options, ..Term::CROSS_ENTROPY }, ..Shared::new(2, shard) });
    }
}

/// Sums of 16-bit gradients, a loss scale, and a step that one rank cannot make.
#[test]
fn sixteen_bits_are_exchanged() {
    if !on_a_simulated_card("ranks::sixteen_bits_are_exchanged", &[("GPUMEM_RANKS_TIMEOUT", "60")]) {
        return;
    }
    for precision in [Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)] {
        for shard in Shard::ALL {
            check(&format!("{precision:?} {shard:?}"), Shared { precision, ..Shared::new(3, shard) });
        }
    }
}

/// A batch with a label that is no class, on one rank: no rank makes the step, and the next one is as if nothing had been.
#[test]
fn a_refused_batch_stops_all_ranks() {
    if !on_a_simulated_card("ranks::a_refused_batch_stops_all_ranks", &[("GPUMEM_RANKS_TIMEOUT", "60")]) {
        return;
    }
    let job = Shared::new(2, Shard::Optimizer).job();
    register_kernels(&job);
    let placed = job.train.as_ref().unwrap();
    let (target, labels) = at(placed, Class::Target);
    let results = on_cards(2, |card| {
        let mut net = card.load(job.clone()).unwrap();
        let [rank, _] = net.rank();
        begin(&job, &mut net);
        feed(&job, &mut net, rank as usize);
        net.train().unwrap();
        let before = state(&job, &mut net);
        feed(&job, &mut net, 7);
        if rank == 1 {
            net.feed(target, &bytes(&vec![CLASSES; labels])).unwrap();
        }
        let refused = net.train().unwrap_err();
        assert_eq!(state(&job, &mut net), before);
        assert_eq!([net.any_rank(rank == 0), net.any_rank(false)], [Ok(true), Ok(false)]);
        feed(&job, &mut net, 9);
        net.train().unwrap();
        assert!(net.loss(placed.offsets[placed.program.results[0] as usize]).unwrap().is_finite());
        refused
    });
    let text = "rank 1 refused its batch, so that no rank made the step";
    assert_eq!(results[0].to_string(), text);
    assert!(matches!(results[1], Error::Index { what: "label", .. }), "{}", results[1]);
}

/// Ranks that make other calls, or none, are told so; nobody waits for ever.
#[test]
fn other_calls_are_errors() {
    if !on_simulated_cards_at_once("ranks::other_calls_are_errors", &[TIMEOUT]) {
        return;
    }
    let job = Shared::new(2, Shard::None).job();
    register_kernels(&job);
    let begun = Instant::now();
    let errors = on_cards(2, |card| {
        let mut net = card.load(job.clone()).unwrap();
        let [rank, _] = net.rank();
        begin(&job, &mut net);
        feed(&job, &mut net, 0);
        let other = if rank == 0 { net.train() } else { net.inspect(None).map(|_| ()) }.unwrap_err();
        if rank == 0 {
            feed(&job, &mut net, 1);
            let late = net.train().unwrap_err();
            assert_eq!(net.train(), Err(late.clone()), "no exchange takes place any more");
            return [other, late];
        }
        [other.clone(), other]
    });
    for [other, _] in &errors {
        let text = "rank 1 makes another call than rank 0; all ranks make the same calls in the same order";
        assert_eq!(other.to_string(), text);
    }
    let text = "rank 0 waited 4 s for the others; all ranks make the same calls in the same order, and `GPUMEM_RANKS_TIMEOUT` sets how long they wait";
    assert_eq!(errors[0][1].to_string(), text);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// Loading compares programs and ranks.
#[test]
fn ranks_have_one_program() {
    if !on_a_simulated_card("ranks::ranks_have_one_program", &[TIMEOUT]) {
        return;
    }
    let jobs = [Shard::None, Shard::Optimizer].map(|shard| Shared::new(2, shard).job());
    jobs.iter().for_each(register_kernels);
    let barrier = Barrier::new(2);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let errors = on_cards(2, |card| {
        let own = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let error = card.load(jobs[own].clone()).unwrap_err();
        barrier.wait();
        error
    });
    let text = "rank 1 differs from rank 0 in its program, memory plan; start one and the same program on all ranks, on devices of one kind";
    assert!(errors.iter().all(|error| error.to_string() == text), "{errors:?}");
    let alone = Cuda::new(0).unwrap().load(jobs[0].clone()).unwrap_err().to_string();
    let text = "CUDA: `test` was compiled for 2 ranks; start a process for each, which opens its card with `Cuda::on_rank`, or build with `GPUMEM_RANKS=1`";
    assert_eq!(alone, text);
    let (place, id) = (Place::new(2, 3).unwrap(), RankId::new().unwrap());
    let three = Cuda::new(0).unwrap().on_rank(&place, id).unwrap();
    let text = "CUDA: `test` was compiled for 2 ranks, and there are 3; build with `GPUMEM_RANKS=3`";
    assert_eq!(three.load(jobs[0].clone()).unwrap_err().to_string(), text);
    let one = three.load(job(Precision::F32)).unwrap_err().to_string();
    let text = "CUDA: `test` was compiled for one rank, and the device is one of 3; write `ranks: 3` in `TRAIN`";
    assert_eq!(one, text);
}

/// A rank that never comes.
#[test]
fn a_rank_that_does_not_come_is_an_error() {
    if !on_simulated_cards_at_once("ranks::a_rank_that_does_not_come_is_an_error", &[TIMEOUT]) {
        return;
    }
    let job = Shared::new(2, Shard::None).job();
    register_kernels(&job);
    let id = RankId::new().unwrap();
    let card = Cuda::new(0).unwrap().on_rank(&Place::new(1, 2).unwrap(), id).unwrap();
    let error = card.load(job).unwrap_err().to_string();
    assert!(error.starts_with("rank 1 waited 4 s for the others; "), "{error}");
}

/// A failure of each call of the library, on one rank: all ranks get an error.
#[test]
fn failures_of_nccl_reach_all_ranks() {
    if !on_simulated_cards_at_once("ranks::failures_of_nccl_reach_all_ranks", &[("GPUMEM_RANKS_TIMEOUT", "2")]) {
        return;
    }
    let job = Shared::new(2, Shard::Optimizer).job();
    register_kernels(&job);
    let calls = [
        "ncclCommInitRankConfig:1:1",
        "ncclCommGetAsyncError:0:2",
        "ncclGroupStart:1:3",
        "ncclGroupEnd:0:9",
        "ncclAllReduce:1:1",
        "ncclReduceScatter:0:2",
        "ncclAllGather:1:5",
        "ncclCommMemStats:0:2",
    ];
    let breaks = ["0:1", "1:9", "0:30"];
    let variables = calls.map(|call| ("GPUMEM_SIMULATED_NCCL_FAILS", call)).into_iter();
    for (variable, value) in variables.chain(breaks.map(|value| ("GPUMEM_SIMULATED_NCCL_BREAKS", value))) {
        // SAFETY: no other thread of this process runs now.
        unsafe { std::env::set_var(variable, value) };
        crate::host::card::forget_exchanges();
        let begun = Instant::now();
        let errors = on_cards(2, |card| {
            let mut net = card.load(job.clone())?;
            trained(&job, &mut net).map(|_| ())
        });
        for (rank, error) in errors.into_iter().enumerate() {
            let error = error.expect_err(&format!("{value}, rank {rank}")).to_string();
            let is_clear = error.contains("NCCL") || error.starts_with("rank ");
            assert!(is_clear, "{value}, rank {rank}: {error}");
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{value}");
        // SAFETY: as above.
        unsafe { std::env::remove_var(variable) };
    }
}

/// More memory than the budget has for exchanges.
#[test]
fn memory_of_nccl_is_that_of_the_budget() {
    let variables = [TIMEOUT, ("GPUMEM_SIMULATED_NCCL_MIB", "999")];
    if !on_a_simulated_card("ranks::memory_of_nccl_is_that_of_the_budget", &variables) {
        return;
    }
    let job = Shared::new(2, Shard::None).job();
    register_kernels(&job);
    let errors = on_cards(2, |card| card.load(job.clone()).unwrap_err().to_string());
    let text = "CUDA: NCCL took 999 MiB of the card, and the budget of a rank has 256 MiB for it; set fewer `channels` in `TRAIN`, or start all ranks \
                with `NCCL_ALGO=Ring`";
    assert_eq!(errors, [text; 2]);
}

/// Graphs of one rank do not match calls of another, so none has any if one could not capture.
#[test]
fn capture_is_agreed_upon() {
    if !on_a_simulated_card("ranks::capture_is_agreed_upon", &[("GPUMEM_RANKS_TIMEOUT", "60")]) {
        return;
    }
    let job = Shared::new(2, Shard::Gradients).job();
    register_kernels(&job);
    let run = || on_cards(2, |card| trained(&job, &mut card.load(job.clone()).unwrap()).unwrap());
    let replayed = run();
    // SAFETY: no other thread of this process runs now.
    unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags") };
    let before = counts()[3];
    assert_eq!(run(), replayed);
    assert_eq!(counts()[3], before, "no graph was replayed");
}
