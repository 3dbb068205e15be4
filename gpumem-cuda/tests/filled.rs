//! The kernels of the benchmark's training steps, compiled for cards that are not there: `GPUMEM_COMPILE_FOR=9.0` names their compute
//! capabilities, and `GPUMEM_CACHE` the folder. `scripts/gpu-bundle` ships that folder. Forward passes alone, and what a library
//! turns out not to have, are compiled on the card.

#[path = "../../tests/networks/mod.rs"]
mod networks;
mod planned;

use gpumem::cards::{ALL, Card};
use gpumem::{Checkpoint, ConvNorm, Half, Network, Precision};
use gpumem_core::lower::{Blueprint, Steps};
use gpumem_core::memory::place::Placed;
use gpumem_cuda::cache::Cache;
use gpumem_cuda::compile::compile_all;
use gpumem_cuda::operations::{LaunchContext, warpgroup_launches};
use gpumem_cuda::program_calls::{OperationCalls, steps};
use gpumem_cuda::progress::Progress;
use gpumem_cuda::{Call, Kernel};
use std::collections::BTreeSet;

/// The kernels of a network's training step on a card, with libraries and without.
fn kernels<N: Network>(card: &Card, precision: Precision, batch: u64) -> BTreeSet<Kernel> {
    let of = |libraries| {
        let (placed, setting, _) = planned::training::<N>(card, Some(precision), Some(batch), libraries).unwrap();
        kernels_in(&placed, setting)
    };
    [true, false].into_iter().flat_map(of).collect()
}

/// Those of a step in bf16 with other settings than the network's, and with launches in place of grid barriers.
fn variant<N: Network>(card: &Card, batch: u64, change: impl FnOnce(&mut Steps)) -> BTreeSet<Kernel> {
    let change = |blueprint: &mut Blueprint| change(blueprint.training.as_mut().unwrap());
    let planned = planned::training_with::<N>(card, Some(Precision::Bf16), Some(batch), true, change);
    let (placed, setting, _) = planned.unwrap();
    let apart = LaunchContext { multiprocessors: 0, ..setting };
    [setting, apart].into_iter().flat_map(|setting| kernels_in(&placed, setting)).collect()
}

/// Those of a program, and of attention on warpgroup instructions too.
fn kernels_in(placed: &Placed, setting: LaunchContext) -> BTreeSet<Kernel> {
    let with_counterparts = |step: OperationCalls| {
        let counterparts = warpgroup_launches(placed, setting, &step).unwrap();
        step.calls.into_iter().chain(counterparts.into_iter().map(|(_, launch)| launch.into()))
    };
    let calls = steps(placed, setting).unwrap().into_iter().flat_map(with_counterparts);
    calls.filter_map(|call| if let Call::Kernel(launch) = call { Some(launch.kernel) } else { None }).collect()
}

/// Those of the networks of `examples/bench.rs`, at their batches.
fn all(card: &Card) -> BTreeSet<Kernel> {
    let (narrow, mixed) = (Precision::Bf16, Precision::Mixed(Half::Bf16));
    let each = [
        kernels::<planned::Digits>(card, Precision::F32, 32),
        kernels::<networks::ResNet50>(card, narrow, 256),
        kernels::<networks::ResNet50>(card, mixed, 256),
        kernels::<networks::Vgg16>(card, Precision::F32, 64),
        kernels::<networks::Vgg16>(card, narrow, 64),
        kernels::<networks::Gpt2>(card, narrow, 16),
        kernels::<networks::Gpt2>(card, mixed, 16),
        variant::<networks::ResNet50>(card, 256, |_| {}),
        variant::<networks::ResNet50>(card, 256, |training| training.checkpoint = Checkpoint::None),
        variant::<networks::ResNet50>(card, 256, |training| training.conv_norm = ConvNorm::Separate),
        variant::<networks::Gpt2>(card, 16, |_| {}),
        variant::<networks::Gpt2>(card, 16, |training| training.checkpoint = Checkpoint::None),
    ];
    each.into_iter().flatten().collect()
}

/// A card of the table with this compute capability.
fn card(text: &str) -> Option<&'static Card> {
    let (major, minor) = text.split_once('.')?;
    let capability = (major.trim().parse().ok()?, minor.trim().parse().ok()?);
    ALL.iter().find(|card| card.compute_capability == capability)
}

#[test]
fn the_benchmark_has_kernels_for_every_card() {
    let h200 = card("9.0").unwrap();
    let kernels = all(h200);
    assert!(kernels.len() > 100, "{}", kernels.len());
    assert!(kernels.iter().any(|kernel| kernel.entry == "attention_forward_wgmma"));
    assert!(card("1.0").is_none() && card("nine").is_none());
}

/// Takes minutes.
#[test]
#[ignore = "fills a cache"]
fn the_cache_is_filled() {
    let text = std::env::var("GPUMEM_COMPILE_FOR").expect("GPUMEM_COMPILE_FOR names compute capabilities, such as 9.0");
    for text in text.split(',') {
        let card = card(text).unwrap_or_else(|| panic!("no card of the table has compute capability `{text}`"));
        let (major, minor) = card.compute_capability;
        let kernels: Vec<Kernel> = all(card).into_iter().collect();
        let progress = Progress::stderr(card.short_name);
        compile_all(&kernels, (major.into(), minor.into()), &Cache::open(), &progress)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}
