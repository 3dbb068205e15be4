//! Bytes on the card against the lines of the budget, and no allocation after start-up.
//!
//! The process asks the driver for its free memory, to the byte; `nvidia-smi` sees the context as well, to the MiB. Nothing
//! else may run on the card meanwhile.

use crate::harness::curves::{Network, digits, vgg16};
use crate::smi::{self, Usage};
use crate::{Card, card, child, is_child};
use cudarc::driver::result;
use gpumem_core::cards::reserve_of_size;
use gpumem_core::memory::budget::Budget;
use gpumem_core::memory::budget::Line;
use gpumem_cuda::Cuda;

const STEPS: usize = 100;

/// Code and graphs are on the card before the first step. It may still make room for what a kernel keeps beside its registers.
const START_UP: usize = 1;

/// The driver gives out memory in pages of this size. An allocation shows as the next multiple of it.
const GRANULARITY: u64 = 2 << 20;

/// What a network takes of a card, in bytes.
struct Measured {
    /// Of everyone, before this process had a context; then with the context; then after the last step.
    usage: [Option<Usage>; 3],
    /// Free with a context; with the arena alone, allocated by hand and freed again; after loading.
    free: [i64; 3],
    /// Free after each step.
    after: Vec<i64>,
}

impl Measured {
    fn of(network: &Network, arena: u64) -> Measured {
        let outside = smi::usage();
        let cuda = Cuda::new(0).unwrap_or_else(|error| panic!("{error}"));
        let free = || cuda.memory().unwrap().0 as i64;
        let (with_context, context) = (smi::usage(), free());
        // SAFETY: asking for the free memory bound the context; the memory is used by nothing and freed below.
        let address = unsafe { result::malloc_sync(arena as usize) }.unwrap();
        let alone = free();
        // SAFETY: allocated above.
        unsafe { result::free_sync(address) }.unwrap();

        let mut loaded = network.on(&cuda).unwrap_or_else(|error| panic!("{error}"));
        let whole = free();
        loaded.initialise(1);
        let mut after = Vec::new();
        for step in 0..STEPS {
            let (images, labels) = network.batch_of(step as u64);
            loaded.set("input", &images);
            loaded.set("target", &labels);
            let loss = loaded.step().unwrap();
            assert!(loss.is_finite(), "loss {step} is {loss}");
            after.push(free());
        }
        Measured { usage: [outside, with_context, smi::usage()], free: [context, alone, whole], after }
    }

    /// Bytes of this process at a moment: as the driver counts them, or what the card has more than before.
    fn process(&self, moment: usize) -> Option<i64> {
        let (now, before) = (self.usage[moment]?, self.usage[0]?);
        Some(now.process.map_or(now.card as i64 - before.card as i64, |bytes| bytes as i64))
    }

    fn arena(&self) -> i64 {
        self.free[0] - self.free[1]
    }

    /// What the first step took.
    fn start_up(&self) -> i64 {
        self.free[2] - self.after[START_UP - 1]
    }
}

/// A line of the table, in MiB; what is not known or has no line in the budget is left blank.
fn row(line: &str, budget: Option<u64>, measured: Option<i64>, note: &str) {
    let mib = |bytes: f64| format!("{:.2}", bytes / f64::from(1 << 20));
    let budget = budget.map_or(String::new(), |bytes| mib(bytes as f64));
    let measured = measured.map_or(String::new(), |bytes| mib(bytes as f64));
    println!("| {line:<22} | {budget:>12} | {measured:>13} | {note} |");
}

fn print(network: &Network, budget: &Budget, measured: &Measured) {
    let usage = |moment: usize| measured.usage[moment].map(|usage| usage.card as i64);
    println!("\n{}, batch {}, F32, {STEPS} steps\n", network.name, network.batch);
    println!("| {:<22} | {:>12} | {:>13} | how |", "line", "budget, MiB", "measured, MiB");
    println!("| --- | ---: | ---: | --- |");
    row("card before", None, usage(0), "nvidia-smi, all processes");
    for line in Line::parts() {
        row(line.name(), Some(budget[line]), None, "part of the arena");
    }
    let over = measured.arena() - budget[Line::Arena] as i64;
    row("arena", Some(budget[Line::Arena]), Some(measured.arena()), &format!("free memory; {over} bytes of rounding"));
    let beside = measured.process(2).map(|bytes| bytes - measured.arena());
    row("reserve", Some(budget[Line::Reserve]), beside, "the total without the arena");
    row("  context", None, measured.process(1), "nvidia-smi");
    row(
        "  modules, graphs",
        None,
        Some(measured.free[0] - measured.free[2] - measured.arena()),
        "free memory, while loading",
    );
    row("  first step", None, Some(measured.start_up()), "free memory");
    row("  steps 2 to 100", None, Some(measured.after[START_UP - 1] - measured.after[STEPS - 1]), "free memory");
    row("card after", None, usage(2), "nvidia-smi, all processes");
    let share = measured.process(2).map(|bytes| 100.0 * bytes as f64 / budget[Line::Total] as f64);
    let share = share.map_or("nvidia-smi does not answer".into(), |share| format!("{share:.2} % of the budget"));
    row("total", Some(budget[Line::Total]), measured.process(2), &share);
}

fn assert_exact(budget: &Budget, measured: &Measured) {
    let arena = measured.arena();
    let rounded = budget[Line::Arena].next_multiple_of(GRANULARITY) as i64;
    // Other drivers may have other pages: at most one page too much, never a byte too little.
    assert!(
        arena >= budget[Line::Arena] as i64 && arena - rounded.min(arena) < GRANULARITY as i64,
        "the arena of {} bytes shows as {arena}; pages of {GRANULARITY} bytes explain {rounded}",
        budget[Line::Arena]
    );
    let settled = measured.after[START_UP - 1];
    let moved: Vec<(usize, i64)> = (START_UP..STEPS)
        .map(|step| (step + 1, settled - measured.after[step]))
        .filter(|(_, bytes)| *bytes != 0)
        .collect();
    assert!(moved.is_empty(), "free memory moved after step {START_UP}, by step and bytes: {moved:?}");
    let strict = std::env::var_os("GPUMEM_STRICT").is_some_and(|value| value == "1");
    match measured.process(2) {
        Some(total) => {
            assert!(
                total <= budget[Line::Total] as i64,
                "{total} bytes are taken, more than the budget's {}",
                budget[Line::Total]
            );
            let enough = total as f64 >= 0.98 * budget[Line::Total] as f64;
            assert!(
                enough || !strict,
                "{total} bytes are taken, less than 98 % of the budget's {}",
                budget[Line::Total]
            );
        }
        None => assert!(!strict, "nvidia-smi does not answer: the process's bytes are not known"),
    }
}

/// In a process of its own: measures, prints and asserts. Else: starts that process.
fn check(test: &str, network: &Network) {
    if is_child() {
        // That of the largest card, on whichever this runs.
        let budget = network.budget().with_reserve(reserve_of_size(u64::MAX));
        let measured = Measured::of(network, budget[Line::Arena]);
        print(network, &budget, &measured);
        assert_exact(&budget, &measured);
        return;
    }
    let Some(Card { cuda, _alone }) = card() else { return };
    // This process's context would be counted among what others hold.
    drop(cuda);
    print!("{}", child(test, &[]));
}

/// At a batch whose arena is several pages: the driver serves less than a page from one that is there already.
#[test]
fn the_digits_network_takes_its_budget() {
    check("exact::the_digits_network_takes_its_budget", &digits(256));
}

#[test]
fn vgg16_takes_its_budget() {
    check("exact::vgg16_takes_its_budget", &vgg16(16));
}
