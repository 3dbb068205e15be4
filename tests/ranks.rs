//! `ranks`: a step that several ranks share is the step of as many micro-batches on one.
#![deny(warnings)]

use gpumem::prelude::*;
use gpumem::report::{json, table};
use gpumem::{Cpu, Error, Line, Snapshot};

/// Elements of the images and of the vectors of a sample.
const ELEMENTS: [usize; 2] = [3 * 9 * 7, 6];

/// Maps and vectors, a normalisation over samples, dropout, a weight that is used twice, a frozen one, and matrices that are large enough for shards. Their elements do not
/// divide by the number of ranks.
macro_rules! joined {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { seed: 11, batch: 12, $($settings)* };

            fn forward(image: Image<3, 9, 7>, extra: Features<6>) -> Logits<5> {
                let shared = Linear(257, 257);
                [
                    Add(
                        [Conv2d(8, 3, bias = false), BatchNorm2d, Relu, Dropout2d(0.2), MaxPool2d(2), Flatten, Linear(257)],
                        [from(extra), freeze(Linear(257))],
                    ),
                    Gelu, shared, Dropout(0.3), LayerNorm, shared, Tanh, Linear(311), Tanh, Linear(5),
                ]
            }
        }
    };
}

/// A network with the inputs and outputs of `joined`, and adapters of frozen weights in 4 bits.
macro_rules! adapted {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { seed: 11, batch: 12, $($settings)* };

            fn forward(image: Image<3, 9, 7>, extra: Features<6>) -> Logits<5> {
                [
                    Add(
                        lora(4, 8.0, base = Nf4, [Flatten, Linear(512), Gelu, Linear(512), Tanh, Linear(257)]),
                        [from(extra), Linear(257)],
                    ),
                    LayerNorm, Tanh, Linear(311), Tanh, Linear(5),
                ]
            }
        }
    };
}

/// A batch of step `step` whose first sample has this number in the batch of all ranks.
macro_rules! batch {
    ($step:expr, $first:expr) => {{
        let (step, first): (usize, usize) = ($step, $first);
        let number = move |index: usize, factor: usize, most: usize| ((index * factor + step * 31) % most) as f32;
        let of = move |tensor: usize| first * ELEMENTS[tensor];
        (
            Tensor::from_fn(move |index| number(index + of(0), 7919, 1009) / 504.5 - 1.0),
            Tensor::from_fn(move |index| number(index + of(1), 613, 101) / 50.5 - 1.0),
            Tensor::from_fn(move |index| ((index + first + step) % 5) as u32),
        )
    }};
}

/// Losses of four steps, everything that a network keeps after them but running statistics, and last a validation loss and an output, which
/// depend on those. Each micro-batch moves running statistics, and ranks have their mean.
macro_rules! trained {
    ($net:expr, $first:expr) => {{
        let (net, first) = (&mut $net, $first);
        let mut losses = Vec::new();
        for step in 0..4 {
            let (image, extra, label) = batch!(step, first);
            losses.push(net.train_step((&image, &extra), &label).unwrap());
        }
        let (image, extra, label) = batch!(4, first);
        let mut inferred = vec![net.eval_loss((&image, &extra), &label).unwrap()];
        // All ranks have the same samples here.
        let (image, extra, label) = batch!(5, 0);
        inferred.push(net.eval_loss((&image, &extra), &label).unwrap());
        inferred.extend(&net.forward((&image, &extra)).unwrap().as_slice()[..10]);
        let is_kept = |name: &String| !name.contains("running") && !name.ends_with(".gradient");
        let names: Vec<String> = net.names().map(String::from).filter(is_kept).collect();
        let kept: Vec<Vec<f32>> = names.iter().map(|name| net.get(name).unwrap()).collect();
        [vec![losses], kept, vec![inferred]].concat()
    }};
}

/// Results of training on one rank.
macro_rules! alone {
    ($name:ident) => {
        trained!($name::on(&Cpu::new()).unwrap(), 0)
    };
}

/// Runs a function on each rank in a thread of its own, and returns what each returns.
fn on_ranks<T: Send>(count: usize, run: impl Fn(usize, Cpu) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let devices = Cpu::ranks(count).unwrap().into_iter().enumerate();
        let run = &run;
        let threads: Vec<_> = devices.map(|(rank, device)| scope.spawn(move || run(rank, device))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Results of training on several ranks, which are equal on all of them.
macro_rules! together {
    ($name:ident, $count:expr, $late:expr) => {{
        let mut all = on_ranks($count, |rank, device| {
            let device = if $late { device.with_late_exchanges() } else { device };
            trained!($name::on(&device.with_poison(true)).unwrap(), rank * 12 / $count)
        });
        let first = all.swap_remove(0);
        let wrong: Vec<usize> = (0..first.len()).filter(|&at| !first[at].iter().all(|it| it.is_finite())).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?} of {} are not finite", stringify!($name), first.len());
        assert!(all.iter().all(|other| bits(other) == bits(&first)), "ranks of {} differ", stringify!($name));
        first
    }};
}

fn bits(all: &[Vec<f32>]) -> Vec<Vec<u32>> {
    all.iter().map(|numbers| numbers.iter().map(|number| number.to_bits()).collect()).collect()
}

/// The largest difference beside the largest number of each, but for the last numbers.
fn apart(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let (found, expected) = (&found[..found.len() - 1], &expected[..expected.len() - 1]);
    let of = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        assert_eq!(found.len(), expected.len());
        let largest = expected.iter().fold(1e-6f32, |most, number| most.max(number.abs()));
        found.iter().zip(expected).fold(0.0f32, |most, (one, other)| most.max((one - other).abs())) / largest
    };
    found.iter().zip(expected).map(of).fold(0.0, f32::max)
}

/// Compares ranks, with each value of `shard` and both moments of an exchange, with micro-batches.
macro_rules! compare {
    ($network:ident, $count:literal, $bound:expr, { $($settings:tt)* }) => {{
        $network!(Parts, { micro_batches: $count, $($settings)* });
        $network!(Whole, { ranks: $count, $($settings)* });
        $network!(States, { ranks: $count, shard: Optimizer, $($settings)* });
        $network!(Sums, { ranks: $count, shard: Gradients, $($settings)* });
        $network!(Shards, { ranks: $count, shard: Parameters, $($settings)* });
        let (parts, whole) = (alone!(Parts), together!(Whole, $count, false));
        assert!(apart(&whole, &parts) <= $bound, "{} apart", apart(&whole, &parts));
        for (name, other) in [
            ("late", together!(Whole, $count, true)),
            ("Optimizer", together!(States, $count, false)),
            ("Optimizer, late", together!(States, $count, true)),
            ("Gradients", together!(Sums, $count, false)),
            ("Gradients, late", together!(Sums, $count, true)),
            ("Parameters", together!(Shards, $count, false)),
            ("Parameters, late", together!(Shards, $count, true)),
        ] {
            let differ: Vec<usize> = (0..whole.len()).filter(|&at| bits(&other[at..][..1]) != bits(&whole[at..][..1])).collect();
            assert!(differ.is_empty() && other.len() == whole.len(), "{name}: {differ:?} of {} differ", whole.len());
        }
    }};
}

/// Adam divides by roots of squares, so that the rounding of small gradients shows in parameters.
#[test]
fn two_ranks_are_two_micro_batches() {
    compare!(joined, 2, 1e-4, { optimizer: Adam { lr: 1e-3 } });
}

#[test]
fn three_ranks_with_momentum_and_averages() {
    compare!(joined, 3, 3e-6, { optimizer: Sgd { lr: 0.1, momentum: 0.9 }, ema: 0.9 });
}

#[test]
fn four_ranks_with_held_gradients() {
    compare!(joined, 4, 3e-6, { optimizer: Sgd { lr: 0.1 }, update: Separate });
}

#[test]
fn clipping_by_the_norm_of_all_shards() {
    compare!(joined, 3, 3e-6, {
        clip: GlobalNorm(0.05), schedule: Cosine { warmup: 2, total: 9 }, optimizer: Sgd { lr: 0.1, momentum: 0.9 }
    });
}

#[test]
fn weights_of_classes_and_labels_that_do_not_count() {
    compare!(joined, 2, 3e-6, {
        loss: CrossEntropy { ignore_index: 3, label_smoothing: 0.1 }, optimizer: Sgd { lr: 0.1 }, clip: Value(0.01)
    });
}

#[test]
fn states_in_host_memory() {
    compare!(joined, 2, 1e-4, { optimizer: AdamW { lr: 1e-3 }, offload: OptimizerState });
}

#[test]
fn steps_that_are_skipped() {
    compare!(joined, 2, 3e-6, { optimizer: Sgd { lr: 0.1, momentum: 0.9 }, skip: NonFinite });
}

#[test]
fn adapters_of_weights_in_codes() {
    compare!(adapted, 2, 1e-4, { optimizer: AdamW { lr: 1e-3 } });
}

/// A code is 1/127 of the largest state of its block, and rounding may choose its neighbour.
#[test]
fn optimizer_states_in_8_bits() {
    joined!(Parts, { micro_batches: 3, optimizer: AdamW8bit { lr: 1e-3 } });
    joined!(Whole, { ranks: 3, optimizer: AdamW8bit { lr: 1e-3 } });
    let (parts, whole) = (alone!(Parts), together!(Whole, 3, false));
    assert!(apart(&whole[..2], &parts[..2]) <= 1e-5, "{:?} and {:?}", whole[0], parts[0]);
    assert!(apart(&whole, &parts) <= 1.0 / 127.0, "{}", apart(&whole, &parts));
    assert_eq!(bits(&together!(Whole, 3, true)), bits(&whole));
}

/// Norms of all ranks are those of one rank with the whole batch, in training and by the running statistics, which evaluation and inference use.
#[test]
fn statistics_of_all_ranks() {
    joined!(Alone, { optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Apart, { ranks: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Whole, { ranks: 3, sync_batch_norm: true, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Shards, { ranks: 3, sync_batch_norm: true, shard: Parameters, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    let (whole, alone) = (together!(Whole, 3, false), alone!(Alone));
    // The last numbers are a loss of all samples, one of other samples on ranks than on one rank, and outputs of samples that all have.
    let inferred = |of: &[Vec<f32>]| {
        let last = of.last().unwrap();
        vec![vec![last[0]], last[2..].to_vec(), Vec::new()]
    };
    assert!(apart(&whole, &alone) <= 3e-6, "{} apart", apart(&whole, &alone));
    let (found, expected) = (inferred(&whole), inferred(&alone));
    assert!(apart(&found, &expected) <= 3e-6, "{} apart", apart(&found, &expected));
    // Norms of each rank's own samples are others.
    let other = together!(Apart, 3, false);
    assert!(apart(&other, &alone) > 1e-3, "{}", apart(&other, &alone));
    assert!(apart(&inferred(&other), &expected) > 1e-3, "{}", apart(&inferred(&other), &expected));
    assert_eq!(bits(&together!(Whole, 3, true)), bits(&whole));
    assert_eq!(bits(&together!(Shards, 3, true)), bits(&whole));
}

#[test]
fn micro_batches_of_ranks() {
    joined!(Parts, { micro_batches: 6, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Whole, { ranks: 2, micro_batches: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(States, { ranks: 2, shard: Optimizer, micro_batches: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Sums, { ranks: 2, shard: Gradients, micro_batches: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    joined!(Shards, { ranks: 2, shard: Parameters, micro_batches: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 } });
    let (parts, whole) = (alone!(Parts), together!(Whole, 2, false));
    assert!(apart(&whole, &parts) <= 3e-6, "{}", apart(&whole, &parts));
    assert_eq!(bits(&together!(States, 2, true)), bits(&whole));
    // The shard of each micro-batch's sum over ranks is added up, so that sums have another order.
    let sums = together!(Sums, 2, false);
    assert!(apart(&sums, &parts) <= 3e-6, "{}", apart(&sums, &parts));
    assert_eq!(bits(&together!(Sums, 2, true)), bits(&sums));
    assert_eq!(bits(&together!(Shards, 2, true)), bits(&sums));
}

joined!(Two, { ranks: 2, shard: Optimizer, optimizer: AdamW { lr: 1e-3 } });
joined!(Three, { ranks: 3, shard: Parameters, optimizer: AdamW { lr: 1e-3 } });
joined!(Four, { ranks: 4, shard: Gradients, optimizer: AdamW { lr: 1e-3 } });
joined!(One, { optimizer: AdamW { lr: 1e-3 } });

/// A training state knows nothing of ranks.
#[test]
fn saved_by_four_ranks_and_resumed_by_other_numbers_of_ranks() {
    let saved: Vec<Snapshot> = on_ranks(4, |rank, device| {
        let mut net = Four::on(&device).unwrap();
        let (image, extra, label) = batch!(0, rank * 3);
        net.train_step((&image, &extra), &label).unwrap();
        net.snapshot().unwrap()
    });
    assert!(saved.iter().all(|other| *other == saved[0]));
    let two = on_ranks(2, |rank, device| {
        let mut net = Two::on(&device).unwrap();
        net.restore(&saved[0]).unwrap();
        assert_eq!(net.snapshot().unwrap(), saved[0]);
        let (image, extra, label) = batch!(1, rank * 6);
        net.train_step((&image, &extra), &label).unwrap()
    });
    on_ranks(3, |_, device| {
        let mut net = Three::on(&device).unwrap();
        net.restore(&saved[0]).unwrap();
        assert_eq!(net.snapshot().unwrap(), saved[0]);
    });
    let mut one = One::on(&Cpu::new()).unwrap();
    one.restore(&saved[0]).unwrap();
    assert_eq!(one.snapshot().unwrap(), saved[0]);
    assert_eq!(two[0].to_bits(), two[1].to_bits());
}

/// One rank has a label that is no class: none makes the step, and all can make the next one.
#[test]
fn a_batch_that_one_rank_refuses() {
    let found = on_ranks(2, |rank, device| {
        let mut net = Two::on(&device).unwrap();
        let (image, extra, label) = batch!(0, rank * 6);
        let before = net.snapshot().unwrap();
        let wrong = Tensor::from_fn(|index| if index == 4 && rank == 1 { 9 } else { 0 });
        let error = net.train_step((&image, &extra), &wrong).unwrap_err();
        assert_eq!(net.snapshot().unwrap(), before);
        net.train_step((&image, &extra), &label).unwrap();
        error.to_string()
    });
    assert_eq!(found[0], "rank 1 refused its batch, so that no rank made the step");
    assert!(found[1].contains('9') && !found[1].contains("rank"), "{}", found[1]);
}

#[test]
fn a_rank_that_stops() {
    let found = on_ranks(2, |rank, device| {
        let mut net = Two::on(&device).unwrap();
        let (image, extra, label) = batch!(0, rank * 6);
        net.train_step((&image, &extra), &label).unwrap();
        if rank == 1 {
            return Ok(0.0);
        }
        net.train_step((&image, &extra), &label)
    });
    let error = found[0].as_ref().unwrap_err();
    assert!(matches!(error, Error::Ranks { rank: 1, .. }));
    assert_eq!(error.to_string(), "rank 1 has stopped: its network is no longer loaded");
}

/// A network is loaded on all ranks or on none: all of them name the first that differs, and its difference.
#[test]
fn ranks_with_other_networks() {
    joined!(Seeds, { ranks: 2, shard: Optimizer, optimizer: AdamW { lr: 1e-3, weight_decay: 0.5 } });
    joined!(Steps, { ranks: 2, shard: Optimizer, optimizer: Sgd { lr: 1e-3 } });
    let then = "; start one and the same program on all ranks, on devices of one kind";
    let found = on_ranks(2, |rank, device| {
        // The device loads other networks afterwards.
        let first = if rank == 0 { Two::on(&device).err() } else { Seeds::on(&device).err() };
        let second = if rank == 0 { Two::on(&device).err() } else { Steps::on(&device).err() };
        [first, second, Two::on(&device).err()].map(|error| error.map(|error| error.to_string()))
    });
    assert_eq!(found[0], found[1]);
    let said = |at: usize| found[0][at].clone().unwrap();
    assert_eq!(said(0), format!("rank 1 differs from rank 0 in its settings in `TRAIN`{then}"));
    assert_eq!(said(1), format!("rank 1 differs from rank 0 in its program, memory plan, settings in `TRAIN`{then}"));
    assert_eq!(found[0][2], None);
}

/// A rank whose network was compiled for another number of ranks loads nothing, and the others hear of it.
#[test]
fn one_rank_that_was_compiled_for_another_number() {
    let found = on_ranks(2, |rank, device| {
        let error = if rank == 0 { Two::on(&device).err() } else { Four::on(&device).err() };
        error.map(|error| error.to_string()).unwrap()
    });
    let own = "the CPU: `Four` was compiled for 4 ranks, and there are 2; build with `GPUMEM_RANKS=2`";
    assert_eq!(found[1], own);
    assert_eq!(found[0], format!("rank 1 could not load its network: {own}"));
}

#[test]
fn places_of_ranks_in_one_process() {
    let places: Vec<Ranks> = Ranks::in_process(3).collect();
    assert_eq!(places.iter().map(Ranks::rank).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(places[0].is_first() && !places[2].is_first() && places[1].count() == 3);
    let batch: Vec<usize> = (0..12).collect();
    assert_eq!(places[1].part(&batch), [4, 5, 6, 7]);
    assert!(Cpu::on(&Ranks::ALONE).is_ok());
}

#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_need_mpi() {
    let second = Ranks::in_process(2).last().unwrap();
    assert_eq!(
        Cpu::on(&second).unwrap_err().to_string(),
        "the CPU: 2 ranks were started, and this program was built without MPI; build it with `--features mpi`, or run all ranks in one process \
         with `Cpu::ranks(2)`"
    );
}

#[test]
fn devices_of_other_ranks() {
    let said = |error: Error| error.to_string();
    assert_eq!(
        said(Two::on(&Cpu::new()).unwrap_err()),
        "the CPU: `Two` was compiled for 2 ranks; start them with `mpirun -np 2` and open `Cpu::on(&ranks)`, open a device for each with \
         `Cpu::ranks(2)`, or build with `GPUMEM_RANKS=1`"
    );
    let device = &Cpu::ranks(3).unwrap()[0];
    assert_eq!(
        said(Two::on(device).unwrap_err()),
        "the CPU: `Two` was compiled for 2 ranks, and there are 3; build with `GPUMEM_RANKS=3`"
    );
    assert_eq!(
        said(One::on(device).unwrap_err()),
        "the CPU: `One` was compiled for one rank, and the device is one of 3; write `ranks: 3` in `TRAIN`"
    );
    assert_eq!(said(Cpu::ranks(0).unwrap_err()), "the CPU: there is at least 1 rank; write how many, as Cpu::ranks(2)");
}

#[test]
fn reports_say_how_many_ranks_there_are() {
    assert!(table::<Two>().starts_with("Two: training, batch 12 over 2 ranks, F32\n"));
    assert!(table::<Two>().contains("communication") && !table::<One>().contains("communication"));
    assert!(json::<Two>().contains("\"ranks\":2") && json::<Two>().contains("\"shard\":\"Optimizer\""));
    assert!(Two::BUDGET[Line::Optimizer] < One::BUDGET[Line::Optimizer]);
    let ranks = Two::TRAIN.over_ranks();
    assert_eq!(Two::BUDGET[Line::Communication], ranks.communication(None));
}
