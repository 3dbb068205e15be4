//! The graph that is captured once and replayed does what its operations do one by one, to the bit.

use crate::harness::Loaded;
use crate::harness::curves::{Curve, Trained, digits};
use crate::{card, child, is_child};
use gpumem_core::error::Error;
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_cpu::Cpu;
use gpumem_cuda::{Cuda, Session};

const STEPS: usize = 20;

/// The card with deterministic algorithms: libraries have others, which give other bits in each run.
struct Deterministic<'a>(&'a Cuda);

impl Device for Deterministic<'_> {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        self.0.load(Job { deterministic: true, ..job })
    }
}

/// A line for each loss and for each parameter, statistic and optimizer state after the last step.
fn fingerprints(device: &impl Device) -> Vec<String> {
    let mut lines = Vec::new();
    for curve in Curve::all() {
        let mut loaded = curve.network.on(device).unwrap();
        curve.begin(&mut loaded);
        train(curve.network.name, &mut loaded, |loaded, step| curve.feed(loaded, step), &mut lines);
    }
    let network = digits(32);
    let mut loaded = network.on(device).unwrap();
    loaded.initialise(1);
    let feed = |loaded: &mut Loaded<_>, step| {
        let (images, labels) = network.batch_of(step as u64);
        loaded.set("input", &images);
        loaded.set("target", &labels);
    };
    train(network.name, &mut loaded, feed, &mut lines);
    lines
}

fn train<R: Runner>(
    network: &str,
    loaded: &mut Loaded<R>,
    mut feed: impl FnMut(&mut Loaded<R>, usize),
    lines: &mut Vec<String>,
) {
    for step in 0..STEPS {
        feed(loaded, step);
        let loss = Trained::step(loaded);
        assert!(loss.is_finite(), "{network} loss {step} is {loss}");
        lines.push(format!("{network} loss {step} {:08x} {loss}", loss.to_bits()));
    }
    for (name, words) in loaded.carried() {
        lines.push(format!("{network} {name} {:016x}", digest(&words)));
    }
}

/// FNV-1a over 64 bits: any two tensors that differ are told apart but for one case in 2^64.
fn digest(words: &[u32]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[test]
fn replay_equals_operation_by_operation() {
    let Some(card) = card() else { return };
    let own = fingerprints(&Deterministic(&card.cuda));
    if is_child() {
        own.iter().for_each(|line| println!("\nfingerprint {line}"));
        return;
    }
    let name = "GPUMEM_LAUNCH_BLOCKING";
    assert!(std::env::var_os(name).is_none(), "this process is to replay graphs: unset {name}");
    let blocking = [(name, "1")];
    let text = child("replay::replay_equals_operation_by_operation", &blocking);
    let one_by_one: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("fingerprint ")).collect();
    assert_eq!(own, one_by_one);
    println!("{} losses and tensors are equal to the bit", own.len());
}

/// The fingerprints themselves, on any machine.
#[test]
fn the_cpu_repeats_its_fingerprints() {
    let [first, second] = [2, 1].map(|threads| fingerprints(&Cpu::with_threads(threads).unwrap()));
    assert_eq!(first, second);
    let losses = STEPS * (Curve::all().len() + 1);
    assert!(first.iter().filter(|line| line.contains(" loss ")).count() == losses && first.len() > losses);
}

#[test]
fn one_bit_changes_a_fingerprint() {
    assert_ne!(digest(&[1, 2, 3]), digest(&[1, 2, 2]));
    assert_ne!(digest(&[0]), digest(&[0, 0]));
}

/// Eight different batches that nobody waits for, against the same eight with the loss asked for after each.
#[test]
fn batches_in_flight_equal_one_at_a_time() {
    let Some(card) = card() else { return };
    let network = digits(32);
    let run = |waits: bool| {
        let mut loaded = network.on(&Deterministic(&card.cuda)).unwrap();
        loaded.initialise(1);
        for step in 0..8 {
            let (images, labels) = network.batch_of(step);
            loaded.set("input", &images);
            loaded.set("target", &labels);
            loaded.train().unwrap();
            if waits {
                loaded.loss().unwrap();
            }
        }
        (loaded.loss().unwrap().to_bits(), loaded.carried())
    };
    assert_eq!(run(false), run(true));
}
