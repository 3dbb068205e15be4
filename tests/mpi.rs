//! Ranks in processes that `mpirun` starts: their results have the bits of ranks in one process, and a failure of one ends all of them.
//!
//! A test starts this program anew on several ranks. Each of them runs [`rank_of_a_case`], and writes its result to a file.
#![cfg(feature = "mpi")]
#![deny(warnings)]

use gpumem::prelude::*;
use gpumem::{Cpu, Error};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The variables with the name of the case, and with the folder of results.
const CASE: &str = "GPUMEM_TEST_CASE";
const FOLDER: &str = "GPUMEM_TEST_FOLDER";

/// The time in which every case ends. One that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

macro_rules! declared {
    ($($name:ident { $($settings:tt)* })*) => { $(
        network! {
            pub struct $name;

            const TRAIN: Train = Train { seed: 11, batch: 12, $($settings)* };

            fn forward(image: Image<3, 9, 7>) -> Logits<5> {
                [Conv2d(8, 3, bias = false), BatchNorm2d, Relu, MaxPool2d(2), Flatten, Linear(257), Tanh, Dropout(0.3), Linear(311), Gelu, Linear(5)]
            }
        }
    )* };
}

declared! {
    Two { ranks: 2, optimizer: AdamW { lr: 1e-3 } }
    OtherSeed { ranks: 2, optimizer: AdamW { lr: 1e-3, weight_decay: 0.5 } }
    TwoShards { ranks: 2, shard: Optimizer, clip: GlobalNorm(0.5), optimizer: AdamW { lr: 1e-3 } }
    Three { ranks: 3, shard: Parameters, optimizer: AdamW { lr: 1e-3 } }
    Four { ranks: 4, optimizer: Sgd { lr: 0.1, momentum: 0.9 } }
    FourShards { ranks: 4, shard: Gradients, update: Separate, optimizer: Sgd { lr: 0.1, momentum: 0.9 } }
}

/// The input and the labels of a rank in a step.
macro_rules! batch {
    ($ranks:expr, $step:expr) => {{
        let (first, step): (usize, usize) = (12 / $ranks.count() as usize * $ranks.rank() as usize, $step);
        let number = move |index: usize| (((index + first * 189) * 7919 + step * 31) % 1009) as f32 / 504.5 - 1.0;
        (Tensor::from_fn(number), Tensor::from_fn(move |index| ((index + first + step) % 5) as u32))
    }};
}

/// Trains for four steps, and returns the bits of losses, of everything that the network keeps, and of a validation loss, as text.
macro_rules! trained {
    ($name:ident, $ranks:expr, $device:expr) => {{
        let mut net = $name::on($device)?;
        let mut bits: Vec<u32> = Vec::new();
        for step in 0..4 {
            let (image, label) = batch!($ranks, step);
            bits.push(net.train_step(&image, &label)?.to_bits());
        }
        let names: Vec<String> = net.names().map(String::from).filter(|name| !name.ends_with(".gradient")).collect();
        for name in names {
            bits.extend(net.get(&name)?.iter().map(|number| number.to_bits()));
        }
        let (image, label) = batch!($ranks, 4);
        bits.push(net.eval_loss(&image, &label)?.to_bits());
        assert!(bits.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{}", stringify!($name));
        format!("{bits:x?}")
    }};
}

/// Trains a network on ranks of MPI, and on ranks in one process. Returns the results of all ranks of each.
macro_rules! compare {
    ($($name:ident)*) => { $(
        let count = $name::TRAIN.ranks;
        let run = Run::start(stringify!($name), count, &[]);
        run.succeeded();
        let own: Vec<String> = std::thread::scope(|scope| {
            let start = |(ranks, device): (Ranks, Cpu)| {
                scope.spawn(move || -> Result<String, Error> { Ok(trained!($name, ranks, &device)) })
            };
            let threads: Vec<_> = Ranks::in_process(count).zip(Cpu::ranks(count).unwrap()).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert!(run.results == own, "{}: other bits than in one process", stringify!($name));
    )* };
}

/// Runs a case on one of its ranks.
fn run(case: &str, ranks: &Ranks) -> Result<String, Error> {
    // It is read when the device is opened.
    let device = Cpu::on(ranks)?;
    let is_last = ranks.rank() + 1 == ranks.count();
    let stepped = |net: &mut Net<Two, Cpu>, step| {
        let (image, label) = batch!(ranks, step);
        net.train_step(&image, &label)
    };
    match case {
        "Two" => Ok(trained!(Two, ranks, &device)),
        "TwoShards" => Ok(trained!(TwoShards, ranks, &device)),
        "Three" => Ok(trained!(Three, ranks, &device)),
        "Four" => Ok(trained!(Four, ranks, &device)),
        "FourShards" => Ok(trained!(FourShards, ranks, &device)),
        "another plan" if is_last => OtherSeed::on(&device).map(|_| String::new()),
        "another number" => Four::on(&device).map(|_| String::new()),
        "a refused batch" => {
            let mut net = Two::on(&device)?;
            let (image, mut label) = batch!(ranks, 0);
            if is_last {
                label = Tensor::from_fn(|index| if index == 4 { 9 } else { 0 });
            }
            let refused = net.train_step(&image, &label).map(|_| String::new());
            // All ranks can make the next step.
            stepped(&mut net, 0)?;
            refused
        }
        _ => {
            let mut net = Two::on(&device)?;
            stepped(&mut net, 0)?;
            match case {
                "a rank that leaves" if is_last => return Ok(String::new()),
                "a killed rank" if is_last => {
                    let own = std::process::id().to_string();
                    Command::new("kill").args(["-KILL", &own]).status().unwrap();
                    std::thread::sleep(LONGEST);
                }
                "a silent rank" if is_last => std::thread::sleep(Duration::from_secs(6)),
                "a killed rank" => (1..).try_for_each(|step| stepped(&mut net, step).map(drop))?,
                _ => {}
            }
            stepped(&mut net, 1).map(|loss| loss.to_string())
        }
    }
}

/// Runs one rank of a case that another test has started. Without one it does nothing.
#[test]
fn rank_of_a_case() {
    let (Ok(case), Ok(folder)) = (std::env::var(CASE), std::env::var(FOLDER)) else { return };
    let ranks = Ranks::from_environment().unwrap();
    let result = run(&case, &ranks);
    let file = |rank: u64| Path::new(&folder).join(rank.to_string());
    let text = result.as_ref().map_or_else(|error| format!("error: {error}"), String::clone);
    let own = file(ranks.rank());
    let unfinished = own.with_extension(std::process::id().to_string());
    std::fs::write(&unfinished, text).unwrap();
    std::fs::rename(unfinished, own).unwrap();
    // A launcher ends all ranks after the first one that fails, so that this one waits until all have written.
    let begun = Instant::now();
    while result.is_err() && (0..ranks.count()).any(|rank| !file(rank).exists()) && begun.elapsed() < LONGEST / 6 {
        std::thread::sleep(Duration::from_millis(20));
    }
    result.unwrap();
}

/// A case that has run on all ranks.
struct Run {
    case: String,
    /// The result of each rank, in order. Empty for one that was ended before it had a result.
    results: Vec<String>,
    is_success: bool,
    took: Duration,
    output: String,
}

impl Run {
    /// Runs a case on so many ranks, with some more arguments of `mpirun`, and waits until all have ended.
    fn start(case: &str, count: usize, more: &[&str]) -> Run {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (out, err) = (folder.join("out"), folder.join("err"));
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-np", &count.to_string(), "-x", CASE, "-x", FOLDER]);
        command.args(["-x", "GPUMEM_RANKS_TIMEOUT"]).args(more).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "rank_of_a_case", "--nocapture"]);
        command.env(CASE, case).env(FOLDER, &folder).env("GPUMEM_RANKS_TIMEOUT", "3");
        command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap());
        let begun = Instant::now();
        let mut child = command.spawn().expect("`mpirun` of the MPI that this was built with");
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > LONGEST {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = begun.elapsed();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let results = (0..count).map(|rank| read(&folder.join(rank.to_string()))).collect();
        let output = format!("{}{}", read(&out), read(&err));
        let status = status.unwrap_or_else(|| panic!("{case}: it hangs\n{output}"));
        std::fs::remove_dir_all(&folder).unwrap();
        Run { case: case.into(), results, is_success: status.success(), took, output }
    }

    fn succeeded(&self) {
        assert!(self.is_success, "{}: {:?}\n{}", self.case, self.results, self.output);
    }

    /// Checks that the launcher returned an error, and that each rank has this one.
    fn failed(&self, expected: &[&str]) {
        assert!(!self.is_success, "{}: {:?}", self.case, self.results);
        let expected: Vec<String> = expected.iter().map(|error| format!("error: {error}")).collect();
        assert_eq!(self.results, expected, "{}\n{}", self.case, self.output);
    }
}

#[test]
fn the_bits_are_those_of_ranks_in_one_process() {
    compare!(Two TwoShards Three Four FourShards);
}

#[test]
fn another_plan_on_one_rank() {
    let error = "rank 1 differs from rank 0 in its settings in `TRAIN`; start one and the same program on all ranks, on devices of one kind";
    Run::start("another plan", 2, &[]).failed(&[error; 2]);
}

#[test]
fn another_number_of_ranks() {
    let error = "the CPU: `Four` was compiled for 4 ranks, and there are 2; build with `GPUMEM_RANKS=2`";
    let run = Run::start("another number", 2, &[]);
    assert!(!run.is_success);
    // A rank hears of the other's error if that is first.
    let heard = |rank| format!("error: rank {rank} could not load its network: {error}");
    for (rank, result) in run.results.iter().enumerate() {
        assert!(*result == format!("error: {error}") || *result == heard(1 - rank), "{result}");
    }
}

#[test]
fn a_batch_that_one_rank_refuses() {
    let run = Run::start("a refused batch", 3 - 1, &[]);
    assert!(!run.is_success);
    assert_eq!(run.results[0], "error: rank 1 refused its batch, so that no rank made the step");
    assert!(run.results[1].contains('9') && !run.results[1].contains("rank"), "{}", run.results[1]);
}

#[test]
fn a_rank_whose_network_is_dropped() {
    let run = Run::start("a rank that leaves", 2, &[]);
    assert!(!run.is_success);
    assert_eq!(run.results, ["error: rank 1 has stopped: its network is no longer loaded", ""]);
}

#[test]
fn a_rank_that_does_not_come() {
    let error = "rank 0 waited 3 s for rank 1; all ranks make the same calls in the same order, and `GPUMEM_RANKS_TIMEOUT` sets how long they wait";
    let run = Run::start("a silent rank", 2, &[]);
    run.failed(&[error; 2]);
    assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
}

/// The launcher ends the other ranks, or they find it out themselves.
#[test]
fn a_rank_that_is_killed() {
    let run = Run::start("a killed rank", 2, &[]);
    assert!(!run.is_success && run.results[1].is_empty(), "{:?}", run.results);
    assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
    assert!(run.results[0].is_empty() || run.results[0].starts_with("error: rank "), "{:?}", run.results);
}

#[test]
fn an_environment_that_counts_other_ranks() {
    let run = Run::start("Two", 2, &["-x", "RANK=0", "-x", "WORLD_SIZE=4", "-x", "LOCAL_RANK=0"]);
    assert!(!run.is_success);
    // Both processes take themselves for rank 0, and one of them writes its result last.
    let said = |rank| {
        format!(
            "error: the CPU: the environment says rank 0 of 4, and MPI says rank {rank} of 2; start the program with the `mpirun` of the MPI that \
             it was built with, as `mpirun -np 4`"
        )
    };
    assert!(run.results[0] == said(0) || run.results[0] == said(1), "{:?}\n{}", run.results, run.output);
}
