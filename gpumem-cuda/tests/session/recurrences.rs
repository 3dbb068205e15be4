//! Sessions whose recurrent layers go to cuDNN, which the host plays like the card.

use super::*;
use crate::host::card::{convolution_counts, on_a_simulated_card_with_cudnn, recurrence_counts};
use crate::host::harness::graphs::{join, layer};

const LAYERS: &str = "Lstm(8, layers = 2, cudnn = true) | Gru(6, bias = false, cudnn = true) | \
                      Rnn(5, nonlinearity = \"relu\", cudnn = true) | Rnn(4, cudnn = true) | Flatten | Linear(5)";

/// Both directions, projections, and two layers of both with masks between them.
const WIDE: &str = "Lstm(7, layers = 2, dropout = 0.25, bidirectional = true, proj_size = 2, cudnn = true) | \
                    Gru(5, bidirectional = true, bias = false, cudnn = true) | Lstm(6, proj_size = 4, bias = false, cudnn = true) | \
                    Rnn(4, bidirectional = true, cudnn = true) | Flatten | Linear(5)";

fn training() -> Training<'static> {
    Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 1,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    }
}

/// Against the own kernels, in the same number format and the same memory.
fn check(job: &Job, card: &mut Session) {
    let mut own = load_on(&Cuda::new(0).unwrap().with_cudnn(false), job).unwrap();
    assert_eq!(own.recurrences(), 0);
    let tolerance = if job.precision == Precision::F32 { 1e-5 } else { 1e-2 };
    let expected = losses_of_steps(job, &mut own);
    assert!(expected[0] != expected[3], "nothing is learned: {expected:?}");
    for (step, (found, expected)) in losses_of_steps(job, card).into_iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < tolerance * expected.abs(), "step {step}: {found}, {expected}");
    }
}

/// In every format, where runs may differ in their last bits.
#[test]
fn recurrent_layers_go_to_the_library() {
    if !on_a_simulated_card_with_cudnn("recurrences::recurrent_layers_go_to_the_library", &[]) {
        return;
    }
    for (precision, deterministic, passes) in [
        (Precision::F32, false, 10),
        (Precision::F32, true, 0),
        (Precision::Bf16, false, 10),
        (Precision::Mixed(Half::F16), false, 10),
    ] {
        for layers in [LAYERS, WIDE] {
            let job = job_of_sequence(layers, precision, deterministic);
            let before = recurrence_counts();
            let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
            let after = recurrence_counts();
            // Each pass is tried once, and captured for both halves of the input.
            let asked = [0, 1, 2].map(|kind| after[kind] - before[kind]);
            assert_eq!((asked, card.recurrences()), ([passes / 2 * 3; 3], passes as usize), "{layers} {precision:?}");
            check(&job, &mut card);
            drop(card);
            assert_eq!(convolution_counts()[..2], [0, 0], "handles and objects: {layers} {precision:?}");
        }
    }
}

/// Gradients of what arrives are added to others, and so are those of the parameters where a layer is used twice.
#[test]
fn gradients_of_recurrent_layers_are_added() {
    if !on_a_simulated_card_with_cudnn("recurrences::gradients_of_recurrent_layers_are_added", &[]) {
        return;
    }
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[7, 6])).unwrap();
    let wide = layer(&mut graph, input, "Linear(8)");
    let once = layer(&mut graph, wide, "Gru(8, cudnn = true)");
    let sum = join(&mut graph, &[once, wide], "Add");
    let twice = crate::host::harness::graphs::again(&mut graph, sum, "Gru(8, cudnn = true)", 1);
    let both = "Lstm(6, bidirectional = true, proj_size = 4, cudnn = true)";
    let first = layer(&mut graph, twice, both);
    let again = crate::host::harness::graphs::again(&mut graph, first, both, 4);
    let output = join(&mut graph, &[first, again], "Add");
    let output = chain(&mut graph, output, "Flatten | Linear(5)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let job = job_of_graph(&graph, output, optimizer, Precision::F32, (training(), None));
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    assert_eq!(card.recurrences(), 8);
    check(&job, &mut card);
}

/// What the library lacks, or has no room for, runs on the own kernels in both passes.
#[test]
fn recurrent_layers_without_the_library_run_another_way() {
    const REFUSES: &str = "GPUMEM_SIMULATED_CUDNN_REFUSES";
    for refused in ["recurrence", "room", "recurrence tried"] {
        let name = "recurrences::recurrent_layers_without_the_library_run_another_way";
        if !on_a_simulated_card_with_cudnn(name, &[(REFUSES, refused)]) {
            continue;
        }
        let job = job_of_sequence(LAYERS, Precision::F32, false);
        let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
        assert_eq!((card.recurrences(), recurrence_counts()), (0, [0; 3]));
        check(&job, &mut card);
        return;
    }
}

/// What the library keeps is of no use to the own kernels: without its gradients the network is not loaded.
#[test]
fn a_gradient_that_the_library_lacks_is_an_error() {
    let refuses = [("GPUMEM_SIMULATED_CUDNN_REFUSES", "recurrence gradient")];
    if !on_a_simulated_card_with_cudnn("recurrences::a_gradient_that_the_library_lacks_is_an_error", &refuses) {
        return;
    }
    let job = job_of_sequence("Gru(6, cudnn = true) | Flatten | Linear(5)", Precision::F32, false);
    let error = load_on(&Cuda::new(0).unwrap(), &job).unwrap_err().to_string();
    assert!(error.contains("cuDNN: no gradient of the recurrence Gru of 3x7 steps, 6 to 6 in F32"), "{error}");
    assert!(error.contains("runs without the library on `Cuda::with_cudnn(false)`"), "{error}");
    load_on(&Cuda::new(0).unwrap().with_cudnn(false), &job).unwrap();
}
