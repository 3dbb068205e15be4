//! Two ranks on one card, in a process each: what NCCL does inside a captured graph, and the memory that it takes.
//!
//! NCCL gives two ranks one card from version 2.30 on, with `NCCL_MULTI_RANK_GPU_ENABLE=1`.

use crate::harness::{Loaded, assert_close};
use crate::{CHILD, card, is_child};
use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::{Class, Program};
use gpumem_core::run::device::{Device, Runner};
use gpumem_core::run::ranks::Ranks as Place;
use gpumem_core::train::optim::{Adam, Optimizer};
use gpumem_core::train::{Descent, Ranks, Shard};
use gpumem_cpu::Cpu;
use gpumem_cuda::{Cuda, RankId};
use std::process::{Command, Stdio};

const STEPS: usize = 10;
/// Samples of both ranks.
const BATCH: u64 = 64;
const ADAM: Optimizer = Optimizer::Adam(Adam { lr: 1e-3, ..Adam::DEFAULT });

/// The variable with the number of a child's rank, and that with the index of its sharding.
const RANK: &str = "GPUMEM_CARD_RANK";
const SHARD: &str = "GPUMEM_CARD_SHARD";

/// A step of two ranks with weights of some MiB.
fn program(shard: Shard) -> Program {
    let mut graph = Graph::default();
    let input = graph.input(crate::harness::graphs::numbers(&[256])).unwrap();
    let layers = "Linear(1024) | BatchNorm1d | Relu | Linear(1024) | Relu | Linear(10)";
    let output = crate::harness::graphs::chain(&mut graph, input, layers);
    let ranks = Ranks { count: 2, shard, bucket: 1 << 20, ..Ranks::ALONE };
    let training = Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 2,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent { ranks, ..Descent::PLAIN },
    };
    lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
}

/// Trains one rank. Returns the losses, and the sum of the absolute values of each tensor that lasts.
fn trained(device: &impl Device, shard: Shard) -> Vec<f32> {
    let mut net = Loaded::of(device, &program(shard), BATCH, ADAM).unwrap();
    let [rank, _] = net.runner_mut().rank();
    net.initialise(1);
    let samples = (BATCH / 2) as usize;
    let mut found = Vec::new();
    for step in 0..STEPS {
        let salt = step * 2 + rank as usize;
        let spread = |at: usize| ((at * 7919 + salt * 104_729) % 1009) as f32 / 1009.0;
        let input: Vec<u32> = (0..samples * 256).map(|at| spread(at).to_bits()).collect();
        let labels: Vec<u32> = (0..samples).map(|at| (at + salt) as u32 % 10).collect();
        net.set("input", &input);
        net.set("target", &labels);
        found.push(net.step().unwrap());
    }
    let lasts = |class: Class| matches!(class, Class::Parameter | Class::Buffer | Class::Moment);
    let tensors = program(shard).tensors;
    for tensor in tensors.iter().filter(|tensor| lasts(tensor.class)) {
        found.push(net.get(&tensor.name).unwrap().into_iter().map(f32::abs).sum());
    }
    found
}

/// One of the two processes. It prints a line of numbers.
fn run_rank(number: u64) {
    let shard = Shard::ALL[std::env::var(SHARD).unwrap().parse::<usize>().unwrap()];
    // With NCCL_COMM_ID both processes get one id.
    let place = Place::new(number, 2).unwrap();
    let found = trained(&Cuda::new(0).unwrap().on_rank(&place, RankId::new().unwrap()).unwrap(), shard);
    let numbers: Vec<String> = found.iter().map(f32::to_string).collect();
    println!("\nnumbers {}", numbers.join(" "));
}

/// Returns the numbers of both ranks.
fn on_one_card(shard: usize) -> [Vec<f32>; 2] {
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["ranks::two_ranks_on_one_card", "--exact", "--nocapture", "--test-threads", "1"]);
        command
            .env(CHILD, "1")
            .env("GPUMEM_REQUIRE_GPU", "1")
            .env(RANK, rank.to_string())
            .env(SHARD, shard.to_string());
        command.env("NCCL_COMM_ID", format!("127.0.0.1:{}", 29_411 + shard)).env("NCCL_MULTI_RANK_GPU_ENABLE", "1");
        command.env("GPUMEM_RANKS_TIMEOUT", "40").env("NCCL_DEBUG", "WARN");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    [0, 1].map(start).map(|process| {
        let output = process.wait_with_output().unwrap();
        let [text, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{:?}:\n{text}\n{errors}", Shard::ALL[shard]);
        let line =
            text.lines().find_map(|line| line.strip_prefix("numbers ")).unwrap_or_else(|| panic!("{text}\n{errors}"));
        line.split(' ').map(|number| number.parse().unwrap()).collect()
    })
}

#[test]
fn two_ranks_on_one_card() {
    if let Some(rank) = std::env::var(RANK).ok().filter(|_| is_child()) {
        return run_rank(rank.parse().unwrap());
    }
    let Some(_card) = card() else { return };
    if let Err(error) = RankId::new() {
        return eprintln!("not run, there is no NCCL: {error}");
    }
    for (index, shard) in Shard::ALL.into_iter().enumerate() {
        let [first, second] = on_one_card(index);
        assert_eq!(first, second, "{shard:?}: ranks differ");
        let devices = Cpu::ranks(2).unwrap();
        let expected = std::thread::scope(|scope| {
            let threads: Vec<_> = devices.into_iter().map(|cpu| scope.spawn(move || trained(&cpu, shard))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).next_back().unwrap()
        });
        assert_close(&format!("{shard:?}"), &first, &expected, 1e-2);
        println!("{shard:?}: losses {:?} to {:?}", first[0], first[STEPS - 1]);
    }
}
