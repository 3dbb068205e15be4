//! Sessions on a card with warpgroup instructions: whether attention runs on them.

use super::*;
use crate::host::HOPPER;
use crate::notices::says;
use gpumem_cuda::{Call, Kernel};

/// The card and the variable that the tests add to it.
const CARD: (&str, &str) = ("GPUMEM_SIMULATED_CAPABILITY", "9.0");

/// The entry points of the kernel that every card runs, and of its counterpart.
const ENTRIES: [&str; 2] = ["attention_forward", "attention_forward_wgmma"];

const NETWORK: &str = "Linear(192) | CausalAttention(1) | Flatten | Linear(5)";

/// Two tiles of queries and of keys.
const STEPS: u64 = 140;

fn attention_job(steps: u64) -> Job {
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    job_of(&[steps, 6], NETWORK, optimizer, Precision::Bf16)
}

/// Makes the kernels of a job known to the card, those of attention from changed sources.
fn register_changed(job: &Job, change: impl Fn(&str, &str) -> String) {
    let mut programs = [job.train.clone().unwrap(), job.infer.clone()];
    order(&mut programs.iter_mut().collect::<Vec<_>>(), job.precision, HOPPER);
    let all = [Products::Own, Products::Library, Products::Warpgroups].into_iter().flat_map(|products| {
        let steps = |placed, count| products.steps_on(placed, BATCH, (job.precision, HOPPER), job.optimizer, count);
        let kernels = |placed| MULTIPROCESSORS.map(|count| kernels(&steps(placed, count))).concat();
        programs.iter().flat_map(kernels).collect::<Vec<Kernel>>()
    });
    let (counterparts, others): (Vec<Kernel>, Vec<Kernel>) = all.partition(|kernel| kernel.entry == ENTRIES[1]);
    assert!(!counterparts.is_empty());
    for machine in [Machine::new(others.clone()), Machine::with_sources(counterparts.clone(), change)] {
        let machine: &Machine = Box::leak(Box::new(machine));
        let has = |kernel: &&Kernel| machine.has(kernel);
        register(machine, others.iter().chain(&counterparts).filter(has));
    }
}

/// The layers that run on warpgroup instructions, of a training step as of a forward pass, and the losses of steps.
fn trained(card: Cuda, job: &Job) -> (usize, Vec<f32>) {
    let mut session = card.with_cudnn(false).load(job.clone()).unwrap();
    let (layers, losses) = (session.warpgroup_attentions(), losses_of_steps(job, &mut session));
    let profile = session.profile(1).unwrap();
    let is_it = |call: &Call| matches!(call, Call::Kernel(launch) if launch.kernel.entry == ENTRIES[1]);
    for program in &profile.programs {
        let found = program.launches.iter().filter(|launch| is_it(&launch.counted.call)).count();
        assert_eq!(found, layers, "{}", program.name);
    }
    (layers, losses)
}

/// The kernel that is faster, whatever results it has, or the one that was chosen by hand.
#[test]
fn the_faster_kernel_is_taken() {
    let (name, slow) = ("warpgroups::the_faster_kernel_is_taken", "GPUMEM_SIMULATED_SLOW_KERNEL");
    let Ok(slower) = std::env::var(slow) else {
        for slower in ["neither", ENTRIES[0], ENTRIES[1]] {
            assert!(!on_a_simulated_card(name, &[CARD, (slow, slower)]));
        }
        return;
    };
    // One tile for one of the kernels, and two for the other: roundings differ.
    let job = attention_job(70);
    register_changed(&job, |_, text| text.to_string());
    let card = Cuda::new(0).unwrap();
    let (none, expected) = trained(card.clone(), &job);
    assert_eq!(none, 0, "by default");
    let tuned = card.clone().with_autotuning(true);
    let faster = usize::from(slower == ENTRIES[0]);
    for (what, card, layers) in [
        ("timed", tuned.clone(), faster),
        ("timed, off", tuned.clone().with_wgmma(false), 0),
        ("on", card.clone().with_wgmma(true), 1),
        ("timed, on", tuned.clone().with_wgmma(true), 1),
    ] {
        let (found, losses) = trained(card, &job);
        assert_eq!(found, layers, "{what}, {slower} is slower");
        host::harness::assert_close(what, &losses, &expected, 1e-2);
        assert_eq!(losses == expected, layers == 0, "{what}");
    }
    assert_eq!(trained(tuned, &Job { deterministic: true, ..job }).0, 0, "deterministic");
}

/// On cards with other instructions, and where attention is not what the kernel computes.
#[test]
fn other_cards_and_other_attention_have_no_such_kernel() {
    let (name, variable) = ("warpgroups::other_cards_and_other_attention_have_no_such_kernel", CARD.0);
    let Ok(capability) = std::env::var(variable) else {
        for capability in ["8.0", "9.0", "10.0"] {
            assert!(!on_a_simulated_card(name, &[(variable, capability)]));
        }
        return;
    };
    let card = Cuda::new(0).unwrap().with_cudnn(false).with_wgmma(true);
    for (text, precision) in [
        (NETWORK, Precision::F32),
        ("Linear(96) | CausalAttention(1) | Flatten | Linear(5)", Precision::Bf16),
        ("Linear(192) | CausalAttention(1, window = 3) | Flatten | Linear(5)", Precision::Bf16),
        (NETWORK, Precision::Bf16),
    ] {
        let runs_there = precision == Precision::F32 || text.contains("96") || text.contains("window");
        if capability == "9.0" && !runs_there {
            continue;
        }
        let session = load_on(&card, &job_of_sequence(text, precision, false)).unwrap();
        assert_eq!(session.warpgroup_attentions(), 0, "{text} in {precision:?} on {capability}");
    }
}

/// One number of the output, or of what is saved for the backward pass.
#[test]
fn a_kernel_that_differs_is_left_out() {
    let (name, wrong) = ("warpgroups::a_kernel_that_differs_is_left_out", "GPUMEM_SIMULATED_WRONG");
    let Ok(argument) = std::env::var(wrong) else {
        for argument in ["attention_forward_wgmma:6", "attention_forward_wgmma:7"] {
            assert!(!on_a_simulated_card(name, &[CARD, (wrong, argument)]));
        }
        return;
    };
    let differ = if argument.ends_with('6') {
        "outputs differ by NaN, where roundings explain 7.8125e-2"
    } else {
        "logarithms of sums differ by NaN, where roundings explain 1e-3"
    };
    let line = format!(
        "attention runs without warpgroup instructions, on the kernel of other cards: {differ}; `Cuda::with_wgmma(false)` leaves out the trial"
    );
    if !says(name, &line) {
        return;
    }
    let job = attention_job(20);
    register_changed(&job, |_, text| text.to_string());
    let card = Cuda::new(0).unwrap();
    let expected = trained(card.clone(), &job);
    assert_eq!(trained(card.clone().with_wgmma(true), &job), expected);
    // Once in a process is enough.
    assert_eq!(trained(card.with_autotuning(true), &job), expected);
}

/// Mistakes that a kernel may have: a key too many, rows and chunks that lie elsewhere, a tile that is left out, a sum that is not scaled.
#[test]
fn mistakes_of_the_kernel_are_found() {
    const FILE: &str = "attention_wgmma.cuh";
    let name = "warpgroups::mistakes_of_the_kernel_are_found";
    let mistakes = [
        (FILE, "(CAUSAL && key > step", "(CAUSAL && key > 1 + step"),
        (FILE, "2 * EIGHT_ROWS * j", "2 * EIGHT_ROWS * (j ^ 1)"),
        (FILE, "(count - 1 - tile) * SPAN", "(count - 1) * SPAN"),
        (FILE, "(rows.base[half] + log2f(all)) * LN_2", "rows.base[half] + log2f(all)"),
        ("wgmma.cuh", "(chunk ^ row % 8)", "(chunk ^ row % 4)"),
    ];
    let Ok(number) = std::env::var("GPUMEM_TEST_MISTAKE") else {
        for number in 0..mistakes.len() {
            assert!(!on_a_simulated_card(name, &[CARD, ("GPUMEM_TEST_MISTAKE", &number.to_string())]));
        }
        return;
    };
    let (file, from, to) = mistakes[number.parse::<usize>().unwrap()];
    let job = attention_job(STEPS);
    register_changed(&job, |name, text| {
        assert!(name != file || text.contains(from), "{file} has no {from}");
        if name == file { text.replace(from, to) } else { text.to_string() }
    });
    let card = Cuda::new(0).unwrap();
    assert_eq!(trained(card.clone().with_wgmma(true), &job), trained(card, &job), "{from}");
}

/// A card that does not let a launch have so much shared memory.
#[test]
fn a_kernel_that_cannot_be_loaded_is_left_out() {
    let name = "warpgroups::a_kernel_that_cannot_be_loaded_is_left_out";
    let refused = ("GPUMEM_SIMULATED_REFUSED", "cuFuncSetAttribute");
    if std::env::var_os(refused.0).is_none() {
        assert!(!on_a_simulated_card(name, &[CARD, refused]));
        return;
    }
    let line = "attention runs without warpgroup instructions, on the kernel of other cards: CUDA: loading kernel `attention_forward_wgmma`: \
                DriverError(CUDA_ERROR_UNKNOWN, \"SIMULATED_ERROR_999\"); `Cuda::with_wgmma(false)` leaves out the trial";
    if !says(name, line) {
        return;
    }
    let job = attention_job(20);
    register_changed(&job, |_, text| text.to_string());
    let card = Cuda::new(0).unwrap();
    assert_eq!(trained(card.clone().with_wgmma(true), &job), trained(card, &job));
}

/// A kernel that reads a wrong address has broken the context.
#[test]
fn a_kernel_that_fails_is_an_error() {
    let name = "warpgroups::a_kernel_that_fails_is_an_error";
    if !on_a_simulated_card(name, &[CARD, ("GPUMEM_SIMULATED_FAILS", ENTRIES[1])]) {
        return;
    }
    let job = attention_job(20);
    register_changed(&job, |_, text| text.to_string());
    let card = Cuda::new(0).unwrap().with_cudnn(false).with_wgmma(true);
    let error = card.load(job).map(|_| ()).unwrap_err().to_string();
    let expected = "CUDA: trying attention on warpgroup instructions, which `Cuda::with_wgmma(false)` leaves out in a new process: ";
    assert!(error.starts_with(expected), "{error}");
}
