//! Whole networks against 20 training steps of PyTorch: every loss, and all parameters and statistics at the end.

mod harness;

use gpumem_cpu::Cpu;
use harness::curves::{recurrent_network, residual_network, transformer, volumes};

fn cpu() -> Cpu {
    Cpu::with_threads(2).unwrap().with_poison(true)
}

#[test]
fn a_residual_network() {
    let curve = residual_network();
    curve.check(&mut curve.network.on(&cpu()).unwrap());
}

#[test]
fn a_transformer_with_a_tied_head() {
    let curve = transformer();
    curve.check(&mut curve.network.on(&cpu()).unwrap());
}

#[test]
fn a_recurrent_network() {
    let curve = recurrent_network();
    curve.check(&mut curve.network.on(&cpu()).unwrap());
}

#[test]
fn a_network_of_volumes() {
    let curve = volumes();
    curve.check(&mut curve.network.on(&cpu()).unwrap());
}
