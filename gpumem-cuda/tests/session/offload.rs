//! Optimizer state in the host's memory: copied into the arena and back beside the step, replayed or launched call by call.

use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_core::train::{Clip, Descent, Offload};

/// More parameters than there are staging buffers, so that pieces follow each other in each.
const LAYERS: &str = "Conv2d(4, 3, padding = 1) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | Flatten | Linear(9) | Tanh | \
                      Dropout(0.25) | Linear(7) | Tanh | Linear(5)";

fn offloaded(precision: Precision, update: Update, clip: Option<Clip>, offload: Offload) -> Job {
    let training = Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 2,
        update,
        skips_overflow: precision.scales_loss(),
        input_gradient: false,
        descent: Descent { clip, offload, ..Descent::PLAIN },
    };
    let adam = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });
    job_training(&[2, 6, 6], LAYERS, adam, precision, (training, None))
}

fn here(precision: Precision) -> Job {
    offloaded(precision, Update::Fused, None, Offload::None)
}

fn there(precision: Precision) -> Job {
    offloaded(precision, Update::Fused, None, Offload::OptimizerState)
}

/// The bits of some losses, and of everything that lasts after them, read and written in between as well.
pub(super) fn trained(job: &Job) -> (Vec<u32>, Vec<(String, Vec<u8>)>) {
    let mut card = load(job);
    begin(job, &mut card);
    let mut losses = Vec::new();
    let parts = job.train.as_ref().unwrap().program.descent.micro_batches;
    for number in 0..5 {
        for part in 0..parts - 1 {
            feed(job, &mut card, 100 * number + part as usize);
            card.accumulate(part).unwrap();
        }
        feed(job, &mut card, number);
        card.train().unwrap();
        // Steps follow each other without anybody asking, too.
        if number != 1 {
            losses.push(loss(job, &mut card).to_bits());
        }
        if number == 2 {
            for (name, bytes) in lasting(job, &mut card) {
                let id = job.train.as_ref().unwrap().program.tensors.iter().position(|it| it.name == name);
                card.write(job.train.as_ref().unwrap().offsets[id.unwrap()], &bytes).unwrap();
            }
        }
    }
    (losses, lasting(job, &mut card))
}

/// The bytes of parameters, statistics and states, by name.
fn lasting(job: &Job, card: &mut Session) -> Vec<(String, Vec<u8>)> {
    let placed = job.train.as_ref().unwrap();
    let lasts = |class| matches!(class, Class::Parameter | Class::Buffer | Class::Moment);
    let ids = (0..placed.program.tensors.len()).filter(|&id| lasts(placed.program.tensors[id].class));
    let read = |id: usize| {
        let mut bytes = vec![0; placed.bytes[id] as usize];
        card.read(placed.offsets[id], &mut bytes).unwrap();
        (placed.program.tensors[id].name.clone(), bytes)
    };
    ids.map(read).collect()
}

/// Three steps are three replays of a graph, and no other work of the host's.
pub fn check_replays(job: &Job) {
    let mut card = load(job);
    begin(job, &mut card);
    let start = counts();
    for number in 0..3 {
        feed(job, &mut card, number);
        card.train().unwrap();
    }
    loss(job, &mut card);
    let end = counts();
    assert_eq!(end[..3], start[..3], "what belongs to the start");
    assert_eq!(end[3] - start[3], 3, "graphs replayed");
}

/// To the bit that of states on the card, in every order of copies and kernels, and nothing is allocated or captured after the start.
#[test]
fn steps_are_those_of_states_on_the_card() {
    if !on_a_simulated_card("offload::steps_are_those_of_states_on_the_card", &[]) {
        return;
    }
    for precision in [Precision::F32, Precision::Mixed(Half::F16), Precision::Bf16] {
        let (here, there) = (here(precision), there(precision));
        assert!(there.arena < here.arena + 4096 && there.train.as_ref().unwrap().host() > 0);
        assert_eq!(trained(&there), trained(&here), "{precision:?}");
    }
    let clip = Some(Clip::GlobalNorm(0.5));
    let [here, there] = [Offload::None, Offload::OptimizerState]
        .map(|offload| offloaded(Precision::F32, Update::Separate, clip, offload));
    assert_eq!(trained(&there), trained(&here));
    check_replays(&there);
}

/// Without graphs the same calls are made one by one.
#[test]
fn steps_are_launched_call_by_call() {
    if !on_a_simulated_card("offload::steps_are_launched_call_by_call", &[]) {
        return;
    }
    let job = there(Precision::Mixed(Half::Bf16));
    let replayed = trained(&job);
    // SAFETY: this process runs one test alone, in one thread.
    unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags") };
    let before = counts()[3];
    assert_eq!(trained(&job), replayed);
    assert_eq!(counts()[3], before, "no graph was replayed");
}

/// A host that locks no pages says what to do.
#[test]
fn a_host_without_locked_memory() {
    if !on_a_simulated_card("offload::a_host_without_locked_memory", &[]) {
        return;
    }
    let job = there(Precision::F32);
    let card = Cuda::new(0).unwrap().with_cudnn(false);
    register_kernels(&job);
    // SAFETY: this process runs one test alone, in one thread.
    unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuMemHostAlloc") };
    let error = card.load(job).unwrap_err().to_string();
    assert!(error.contains("`offload: OptimizerState` needs 0.00 GiB of the host's memory page-locked"), "{error}");
    assert!(error.contains("raise its limit of locked memory, or leave `offload` out"), "{error}");
}

/// Nothing outside of what lies there is read or written.
#[test]
fn places_in_host_memory_are_checked() {
    if !on_a_simulated_card("offload::places_in_host_memory_are_checked", &[]) {
        return;
    }
    let job = there(Precision::F32);
    let mut card = load(&job);
    let host = gpumem_core::memory::place::HOST;
    let end = host + job.train.as_ref().unwrap().host();
    card.write(end - 4, &[0; 4]).unwrap();
    assert!(matches!(card.write(end - 4, &[0; 8]), Err(Error::Range { .. })));
    assert!(matches!(card.read(end, &mut [0; 4]), Err(Error::Range { .. })));
    let plain = here(Precision::F32);
    let mut other = load(&plain);
    assert!(matches!(other.write(host, &[0; 4]), Err(Error::Range { .. })));
}

/// Each launch is timed and each copy counted.
#[test]
fn copies_have_a_place_in_the_profile() {
    if !on_a_simulated_card("offload::copies_have_a_place_in_the_profile", &[]) {
        return;
    }
    let job = there(Precision::Mixed(Half::Bf16));
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    let profile = card.profile(1).unwrap();
    let train = profile.programs.iter().find(|program| program.name == "train").unwrap();
    let copies: Vec<_> = train.launches.iter().filter(|launch| launch.counted.kind() == "copy").collect();
    let bytes: u64 = copies.iter().map(|launch| launch.counted.bytes()).sum();
    let placed = job.train.as_ref().unwrap();
    let of = |id: u32| {
        let tensor = placed.program.tensor(id);
        let master = placed.masters[id as usize].map_or(0, |_| 4 * tensor.elements(1).unwrap());
        master + if tensor.class == Class::Moment { placed.bytes[id as usize] } else { 0 }
    };
    let all: u64 = (0..placed.program.tensors.len() as u32).map(of).sum();
    assert_eq!(bytes, 2 * all, "in and out");
}
