//! Kernels compiled for a card that is not there, into the cache that a machine with that card is given.

use super::{CAPABILITY, HOPPER, Products, kernels};
use gpumem_core::memory::place::Placed;
use gpumem_core::run::device::Job;
use gpumem_cuda::Kernel;
use gpumem_cuda::cache::Cache;
use gpumem_cuda::compile::compile_all;
use gpumem_cuda::operations::order;
use gpumem_cuda::progress::Progress;
use std::collections::BTreeSet;

/// Compute capabilities, such as `9.0,8.0`: tests compile their kernels for these, and run nothing.
const VARIABLE: &str = "GPUMEM_COMPILE_FOR";

/// The compute capabilities to compile for; none if tests are to run.
pub fn capabilities() -> Vec<(i32, i32)> {
    std::env::var(VARIABLE).map_or(Vec::new(), |text| parsed(&text))
}

fn parsed(text: &str) -> Vec<(i32, i32)> {
    let capability = |part: &str| {
        let (major, minor) = part.trim().split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let one = |part| capability(part).unwrap_or_else(|| panic!("`{part}` is no compute capability such as 9.0"));
    text.split(',').filter(|part| !part.trim().is_empty()).map(one).collect()
}

/// The kernels of a job on a card of this compute capability, whatever its libraries can do.
fn kernels_of(job: &Job, capability: (i32, i32), on_warpgroups: bool) -> BTreeSet<Kernel> {
    let mut programs: Vec<Placed> = job.train.iter().chain(&job.evaluation).chain([&job.infer]).cloned().collect();
    order(&mut programs.iter_mut().collect::<Vec<_>>(), job.precision, capability);
    let all = [Products::Own, Products::Library, Products::WithoutCudnn, Products::Poor, Products::Warpgroups];
    // Attention on warpgroup instructions runs only where a test asks for it.
    let all = &all[..all.len() - usize::from(!on_warpgroups)];
    let steps = programs.iter().flat_map(|placed| {
        all.iter().map(|products| products.steps(placed, job.batch, (job.precision, capability), job.optimizer))
    });
    steps.flat_map(|steps| kernels(&steps)).collect()
}

/// Compiles the kernels of a job that a card would run: tests for other cards than [`CAPABILITY`] and [`HOPPER`] are the host's alone.
pub fn fill(job: &Job, capability: (i32, i32)) {
    let runs = |card: &(i32, i32)| capability == CAPABILITY || (capability, *card) == (HOPPER, HOPPER);
    for card in capabilities().into_iter().filter(runs) {
        let kernels = kernels_of(job, card, capability == HOPPER);
        compile(&kernels.into_iter().collect::<Vec<_>>(), card);
    }
}

/// Compiles kernels into the cache that a session would open.
pub fn compile(kernels: &[Kernel], capability: (i32, i32)) {
    if let Err(error) = compile_all(kernels, capability, &Cache::open(), &Progress::silent()) {
        panic!("{error}");
    }
}

#[test]
fn capabilities_are_read() {
    assert_eq!(parsed("9.0"), [(9, 0)]);
    assert_eq!(parsed("8.9, 12.0"), [(8, 9), (12, 0)]);
    assert_eq!(parsed(""), []);
}
