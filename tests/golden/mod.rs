//! Helpers of tests beside PyTorch: numbers that each `golden.py` makes too, and comparisons with those that it printed.
#![allow(dead_code, reason = "no test needs all of it")]

use gpumem::{HostShape, Tensor};

/// A number around 0 that looks random, as each `golden.py` has it.
pub fn spread(index: usize, salt: usize) -> f32 {
    (((index * 7919 + salt * 104_729) % 1009) as f64 / 1009.0 - 0.5) as f32
}

/// A tensor of such numbers.
pub fn numbers<S: HostShape>(salt: usize) -> Tensor<f32, S> {
    Tensor::from_fn(|index| spread(index, salt))
}

/// Compares numbers, with a tolerance that is a share of the largest expected one.
#[track_caller]
pub fn close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * scale, "{what}: {found}, expected {expected}");
    }
}

/// The lines `name number number ..` of a golden, in order.
pub fn lines(golden: &str) -> Vec<(&str, Vec<f32>)> {
    let numbers = |text: &str| text.split(' ').map(|number| number.parse().unwrap()).collect();
    let lines = golden.lines().map(|line| line.split_once(' ').unwrap());
    lines.map(|(name, values)| (name, numbers(values))).collect()
}

/// The lines `network name number number ..` of one network, in order.
pub fn lines_of<'g>(golden: &'g str, network: &str) -> Vec<(&'g str, Vec<f32>)> {
    let own = golden.lines().filter_map(|line| line.strip_prefix(network)?.strip_prefix(' '));
    own.flat_map(lines).collect()
}
