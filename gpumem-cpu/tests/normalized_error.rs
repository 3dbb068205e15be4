//! Errors of convolutions that are one with their normalisations, beside those of both apart: against a step in float64.

mod harness;

use gpumem_core::graph::Graph;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::bottleneck::{BATCH, Given, TRAINING, errors, programs};
use harness::graphs::{chain, numbers};

/// The relative error that rounding alone causes in a loss and in gradients.
const FLOOR: f64 = 5e-7;

#[test]
fn they_are_as_exact_as_both_apart() {
    let (cpu, programs) = (Cpu::with_threads(2).unwrap().with_poison(true), programs());
    let still = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    for (case, given) in Given::cases() {
        let [apart, one] = errors(&programs, &given, |program| Loaded::of(&cpu, program, BATCH as u64, still).unwrap());
        println!("{case}: {one:?} as one, {apart:?} apart");
        for (one, apart) in one.into_iter().zip(apart) {
            assert!(one <= 2.0 * apart + FLOOR, "{case}: {one:e} as one, {apart:e} apart");
        }
    }
}

/// Statistics lose no digits where the mean is thousands of deviations away from 0: what is normalised is that of the same numbers about 0.
#[test]
fn norms_far_from_zero() {
    let still = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let (channels, side) = (4, 6);
    for norm in [
        "BatchNorm2d(eps = 1e-12)",
        "GroupNorm(2, eps = 1e-12)",
        "InstanceNorm2d(eps = 1e-12, affine = true)",
        "InplaceAbn(eps = 1e-12)",
        "Flatten | BatchNorm1d(eps = 1e-12)",
        "Flatten | LayerNorm(eps = 1e-12)",
    ] {
        let [near, far] = ["", "Affine(0.0625, 64) | "].map(|moved| {
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[channels, side, side])).unwrap();
            let output = chain(&mut graph, input, &format!("{moved}{norm}"));
            let mut loaded = Loaded::new(&graph, output, TRAINING, BATCH as u64, still);
            loaded.initialise(1);
            let count = BATCH * (channels * side * side) as usize;
            // Of numbers that have no more digits than are left after the move.
            let of = |salt: usize| (0..count).map(move |i| ((i * 7919 + salt) % 1009) as f32 / 1024.0 - 0.5);
            for (name, salt) in [("input", 1), ("target", 2)] {
                loaded.set(name, &of(salt).map(f32::to_bits).collect::<Vec<u32>>());
            }
            let loss = f64::from(loaded.step().unwrap());
            let names: Vec<String> = loaded.train.program.tensors.iter().map(|it| it.name.clone()).collect();
            let gradients = names.iter().filter(|name| name.ends_with(".gradient")).cloned().collect::<Vec<_>>();
            assert_eq!(gradients.len(), 2, "{norm}: {names:?}");
            let all = gradients.iter().flat_map(|name| loaded.get(name).unwrap()).collect::<Vec<f32>>();
            (loss, all)
        });
        assert!((near.0 - far.0).abs() < 1e-3 * near.0, "{norm}: {} {}", near.0, far.0);
        let largest = near.1.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        for (near, far) in near.1.iter().zip(&far.1) {
            assert!((near - far).abs() < 1e-3 * largest, "{norm}: {near} {far}");
        }
    }
}
