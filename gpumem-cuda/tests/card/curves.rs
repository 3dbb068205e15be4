//! Four networks for 20 training steps.

use crate::card;
use crate::harness::curves::{Curve, check_digits, digits, recurrent_network, residual_network, transformer};

fn check(curve: &Curve) {
    let Some(card) = card() else { return };
    curve.check(&mut curve.network.on(&card.cuda).unwrap());
}

#[test]
fn a_residual_network_follows_pytorch() {
    check(&residual_network());
}

#[test]
fn a_transformer_with_a_tied_head_follows_pytorch() {
    check(&transformer());
}

#[test]
fn a_recurrent_network_follows_pytorch() {
    check(&recurrent_network());
}

#[test]
fn the_digits_network_follows_the_cpu() {
    let Some(card) = card() else { return };
    let network = digits(32);
    let losses = check_digits(&network, &mut network.on(&card.cuda).unwrap());
    assert!(losses[19] < 0.5 * losses[0], "it learns: {losses:?}");
}
