//! What NVIDIA's driver asks of those who call it: its rules are at the head of `stand_ins/card.cpp`.

use super::*;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::c_int;

/// Allocations, modules and kernels loaded, graphs instantiated and brought to the card, streams and events made; and how
/// often the host has waited: so far.
pub fn start_up() -> ([u64; 5], u64) {
    let [made @ .., waits] = read::<6>("simulated_start_up");
    (made, waits)
}

/// Allocations on the card, pinned ones and modules that are alive.
pub fn alive() -> [u64; 3] {
    read("simulated_alive")
}

/// Numbers that the stand-in keeps.
pub fn read<const N: usize>(function: &str) -> [u64; N] {
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    let mut counts = [0; N];
    // SAFETY: the library is the stand-in, which is open already; its functions have this type, and write as many numbers as
    // their callers take.
    unsafe {
        let driver = Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        driver.get::<Counts>(function.as_bytes()).unwrap()(counts.as_mut_ptr());
    }
    counts
}

/// Parameters, state, inputs and the learning rate, small and large, written while a step may be running and read by the next
/// one; what is fed comes after what was written.
#[test]
fn writes_keep_their_place_between_steps() {
    if !on_a_simulated_card("rules::writes_keep_their_place_between_steps", &[]) {
        return;
    }
    // A weight of 360 KiB: more than is staged.
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let job = job_of(&[5, 6, 6], "Flatten | Linear(512) | Relu | Linear(5)", optimizer, Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, labels)) = (at(placed, Class::Input), at(placed, Class::Target));
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    for step in 0..4 {
        for runner in [&mut card as &mut dyn Runner, &mut cpu] {
            begin(&job, runner);
            runner.write(input, &vec![0; count * 4]).unwrap();
            runner.write(target, &vec![0; labels * 4]).unwrap();
            runner.set_optimizer(optimizer.with_lr(0.01 * (step + 1) as f64)).unwrap();
        }
        feed(&job, &mut cpu, step);
        cpu.train().unwrap();
        feed(&job, &mut card, step);
        card.train().unwrap();
    }
    let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
    assert!((found - expected).abs() < 1e-4 * expected.abs(), "{found}, {expected}");
    compare("after 4 beginnings", &state(&job, &mut card), &state(&job, &mut cpu));
}

#[test]
fn many_small_writes_wait_once() {
    if !on_a_simulated_card("rules::many_small_writes_wait_once", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    card.train().unwrap();
    let placed = job.train.as_ref().unwrap();
    let (state, _) = at(placed, Class::State);
    let (_, before) = start_up();
    (0..1000u64).for_each(|step| card.write(state, &step.to_le_bytes()).unwrap());
    let (_, after) = start_up();
    assert_eq!(after - before, 0, "8000 bytes are staged");
    let mut last = [0; 8];
    card.read(state, &mut last).unwrap();
    assert_eq!((u64::from_le_bytes(last), start_up().1 - after), (999, 1));
    // More than is staged at a time.
    let (weight, _) = at(placed, Class::Parameter);
    let (_, before) = start_up();
    (0..1000u32).for_each(|value| card.write(weight, &bytes(&[value; 72])).unwrap());
    let mut last = [0; 4 * 72];
    card.read(weight, &mut last).unwrap();
    assert_eq!((&last[..], start_up().1 - before), (&bytes(&[999; 72])[..], 2));
}

/// Events that were never recorded stand for no work.
#[test]
fn nothing_has_to_be_fed() {
    if !on_a_simulated_card("rules::nothing_has_to_be_fed", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    card.loss(placed.offsets[placed.program.results[0] as usize]).unwrap();
    for runner in [&mut card as &mut dyn Runner, &mut cpu] {
        begin(&job, runner);
        runner.write(input, &bytes(&spread(count, 1))).unwrap();
        runner.write(target, &bytes(&[0, 1, 2])).unwrap();
        (0..2).for_each(|_| runner.train().unwrap());
    }
    let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
    assert!((found - expected).abs() < 1e-4, "{found}, {expected}");
}

/// What `work` does in a thread that has made no call to the driver yet.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap()
}

/// Each call of a session in a thread of its own: none of them has a current context before.
#[test]
fn every_call_may_come_from_another_thread() {
    if !on_a_simulated_card("rules::every_call_may_come_from_another_thread", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    let (images, labels, result) = (bytes(&spread(count, 1)), bytes(&[0, 1, 2]), placed.program.results[0] as usize);
    for library in [true, false] {
        let mut card =
            elsewhere(|| load_on(&Cuda::new(0).unwrap().with_cudnn(false).with_library(library), &job)).unwrap();
        elsewhere(|| begin(&job, &mut card));
        for _ in 0..3 {
            elsewhere(|| card.write(input, &images)).unwrap();
            elsewhere(|| card.feed(input, &images)).unwrap();
            elsewhere(|| card.feed(target, &labels)).unwrap();
            elsewhere(|| card.train()).unwrap();
            elsewhere(|| card.loss(placed.offsets[result])).unwrap();
            elsewhere(|| card.infer()).unwrap();
            elsewhere(|| card.set_optimizer(job.optimizer)).unwrap();
            elsewhere(|| card.read(0, &mut [0; 4])).unwrap();
        }
        elsewhere(|| drop(card));
        assert_eq!((alive(), counts()[1]), ([0; 3], 0));
    }
}

/// What cannot be destroyed keeps nothing else from being freed, and the next network from being loaded.
#[test]
fn a_destructor_that_fails_is_alone_in_it() {
    let name = "rules::a_destructor_that_fails_is_alone_in_it";
    let refused = [("GPUMEM_SIMULATED_REFUSED", "cuEventDestroy_v2,cuGraphExecDestroy,cuStreamDestroy_v2")];
    if !on_a_simulated_card(name, &refused) {
        return;
    }
    let (job, device) = (job(Precision::F32), Cuda::new(0).unwrap().with_cudnn(false));
    for _ in 0..2 {
        let mut card = load_on(&device, &job).unwrap();
        begin(&job, &mut card);
        for step in 0..3 {
            feed(&job, &mut card, step);
            card.train().unwrap();
        }
        // The last step is still running.
        drop(card);
        assert_eq!((alive(), product_counts()[..2].to_vec()), ([0; 3], vec![0, 0]), "what is left");
    }
}

/// After a kernel has failed every call is an error, and no call waits for ever or panics.
#[test]
fn a_kernel_that_fails_is_an_error_from_then_on() {
    let name = "rules::a_kernel_that_fails_is_an_error_from_then_on";
    if !on_a_simulated_card(name, &[("GPUMEM_SIMULATED_FAILS", "max_pool_backward")]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    let placed = job.train.as_ref().unwrap();
    let loss = placed.offsets[placed.program.results[0] as usize];
    // The loss is known before the kernel fails, and stays known.
    let failed = card.train().and_then(|()| card.loss(loss)).and_then(|_| card.read(0, &mut [0; 4])).unwrap_err();
    assert!(failed.to_string().contains("SIMULATED_ERROR_700"), "{failed}");
    let (input, count) = at(placed, Class::Input);
    let images = bytes(&spread(count, 1));
    for result in [
        card.write(input, &images),
        card.feed(input, &images),
        card.train(),
        card.infer(),
        card.read(0, &mut [0; 4]),
        card.set_optimizer(job.optimizer),
    ] {
        assert!(result.unwrap_err().to_string().contains("SIMULATED_ERROR_700"));
    }
    let _ = card.loss(loss);
    drop(card);
    let error = load_on(&Cuda::new(0).unwrap(), &job).unwrap_err();
    assert!(error.to_string().contains("SIMULATED_ERROR_700"), "{error}");
}
