//! Sessions whose attention goes to cuDNN, which the host plays like the card.

use super::*;
use crate::host::card::{attention_counts, convolution_counts, on_a_simulated_card_with_cudnn};

/// Heads with keys of their own, and heads that share them.
pub const ATTENTION: &str =
    "Linear(48) | CausalAttention(2) | Linear(32) | CausalAttention(2, kv_heads = 1) | Flatten | Linear(5)";

/// Against the own kernels, in the same number format.
fn check(job: &Job, card: &mut Session) {
    let mut own = load_on(&Cuda::new(0).unwrap().with_cudnn(false), job).unwrap();
    assert_eq!(own.attentions(), 0);
    let expected = losses_of_steps(job, &mut own);
    for (step, (found, expected)) in losses_of_steps(job, card).into_iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-2 * expected.abs(), "step {step}: {found}, {expected}");
    }
}

/// In 16 bits, without dropout, and where runs may differ in their last bits.
#[test]
fn attention_goes_to_the_library() {
    if !on_a_simulated_card_with_cudnn("attention::attention_goes_to_the_library", &[]) {
        return;
    }
    // Each is tried once; a forward pass by itself keeps nothing, and is another. Then two halves of the input are captured, and the
    // forward pass.
    let asked = [2 + 2 + 2 * 2 + 2, 2 + 2 * 2];
    let dropped = "Linear(48) | CausalAttention(2, dropout = 0.1) | Flatten | Linear(5)";
    for (text, precision, deterministic, layers, at_load) in [
        (ATTENTION, Precision::Bf16, false, 2, asked),
        (ATTENTION, Precision::Mixed(Half::F16), false, 2, asked),
        (ATTENTION, Precision::Bf16, true, 0, [0, 0]),
        (ATTENTION, Precision::F32, false, 0, [0, 0]),
        // Only the forward pass by itself drops nothing.
        (dropped, Precision::Bf16, false, 1, [2, 0]),
    ] {
        let job = job_of_sequence(text, precision, deterministic);
        let before = attention_counts();
        let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
        let after = attention_counts();
        let what = format!("{text}, {precision:?}, {deterministic}");
        assert_eq!(([0, 1].map(|kind| after[kind] - before[kind]), card.attentions()), (at_load, layers), "{what}");
        if text == ATTENTION {
            check(&job, &mut card);
        }
        drop(card);
        assert_eq!(convolution_counts()[..2], [0, 0], "handles and objects: {what}");
    }
}

/// What the library refuses runs on the own kernels, each pass by itself.
#[test]
fn attention_without_an_engine_runs_another_way() {
    const REFUSES: &str = "GPUMEM_SIMULATED_CUDNN_REFUSES";
    for refused in ["attention", "attention gradient"] {
        let name = "attention::attention_without_an_engine_runs_another_way";
        if !on_a_simulated_card_with_cudnn(name, &[(REFUSES, refused)]) {
            continue;
        }
        let job = job_of_sequence(ATTENTION, Precision::Bf16, false);
        let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
        // Of a forward pass.
        let layers = if std::env::var(REFUSES).as_deref() == Ok("attention") { 0 } else { 2 };
        assert_eq!(card.attentions(), layers);
        check(&job, &mut card);
        return;
    }
}
