//! What works another way than it should is said in one line on stderr, and works.

use super::*;
use crate::host::card::{convolution_counts, on_a_simulated_card_with_cudnn};
use std::process::Command;

/// Set in the process whose lines are read.
const INNER: &str = "GPUMEM_TEST_INNER";

/// Whether this is that process. Else it is run, first as it is and then with `GPUMEM_QUIET=1`, and says this line alone, or
/// nothing.
pub fn says(test: &str, line: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    for (quiet, expected) in [("0", vec![format!("gpumem: {line}")]), ("1", Vec::new())] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(INNER, "1").env("GPUMEM_QUIET", quiet);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let said: Vec<&str> = text.lines().filter(|line| line.starts_with("gpumem: ")).collect();
        assert_eq!(said, expected, "{text}");
    }
    false
}

/// Steps on the card against the CPU backend, and forward passes between them.
fn check_steps(job: &Job, card: &mut Session) {
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(job, card);
    begin(job, &mut cpu);
    for step in 0..4 {
        feed(job, &mut cpu, step);
        cpu.train().unwrap();
        feed(job, card, step);
        card.train().unwrap();
        let (found, expected) = (loss(job, card), loss(job, &mut cpu));
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "step {step}: {found}, {expected}");
        card.infer().unwrap();
    }
    compare("after 4 steps", &state(job, card), &state(job, &mut cpu));
}

/// A graph that cannot be made, and a library that does in every launch what no capture allows.
#[test]
fn without_graphs_steps_are_launched_call_by_call() {
    let name = "notices::without_graphs_steps_are_launched_call_by_call";
    let (variable, what) = ("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags");
    if std::env::var_os(variable).is_none() {
        assert!(!on_a_simulated_card(name, &[(variable, what)]));
        assert!(!on_a_simulated_card(name, &[(variable, ""), ("GPUMEM_SIMULATED_LOADS_EACH_TIME", "1")]));
        return;
    }
    let why = if std::env::var(variable).as_deref() == Ok(what) {
        "instantiating the graph: DriverError(CUDA_ERROR_UNKNOWN, \"SIMULATED_ERROR_999\")"
    } else {
        "cuBLASLt: product m=512 n=3 k=72 TN in F32, epilogue RELU_BIAS, workspace of 0 bytes: CUBLAS_STATUS_INTERNAL_ERROR"
    };
    let line = format!("the steps of `test` could not be captured and are launched call by call: CUDA: {why}");
    if !says(name, &line) {
        return;
    }
    let job = products_job();
    let mut card = load(&job);
    check_steps(&job, &mut card);
    assert_eq!(counts()[3], 0, "graphs replayed");
    drop(card);
    assert_eq!((product_counts()[..2].to_vec(), counts()[1]), (vec![0, 0], 0), "handles, objects, bytes on the card");
}

/// cuBLAS 13 on a card before Turing: at the first call or at a later one.
#[test]
fn a_cublaslt_that_does_not_support_the_card_is_done_without() {
    let name = "notices::a_cublaslt_that_does_not_support_the_card_is_done_without";
    let variable = "GPUMEM_SIMULATED_OLD";
    if std::env::var_os(variable).is_none() {
        for function in ["cublasLtCreate", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"] {
            assert!(!on_a_simulated_card(name, &[(variable, function)]));
        }
        return;
    }
    let line = "cuBLASLt does not support this card (CUBLAS_STATUS_ARCH_MISMATCH): matrix products run on gpumem's own kernels; \
                an older version of the library may support it";
    if !says(name, line) {
        return;
    }
    let job = products_job();
    let mut card = load(&job);
    assert_eq!((card.products(), product_counts()), (0, [0; 3]), "of a forward pass; handles, objects, launches");
    check_steps(&job, &mut card);
}

/// cuDNN 9.11 on such a card.
#[test]
fn a_cudnn_that_does_not_support_the_card_is_done_without() {
    let name = "notices::a_cudnn_that_does_not_support_the_card_is_done_without";
    let variable = "GPUMEM_SIMULATED_CUDNN_OLD";
    let heuristics = "cudnnGetConvolutionForwardAlgorithm_v7,cudnnGetConvolutionBackwardDataAlgorithm_v7,\
                      cudnnGetConvolutionBackwardFilterAlgorithm_v7";
    let launches = "cudnnConvolutionForward,cudnnConvolutionBiasActivationForward,cudnnConvolutionBackwardData,\
                    cudnnConvolutionBackwardFilter";
    if std::env::var_os(variable).is_none() {
        for functions in ["cudnnCreate", heuristics, launches] {
            assert!(!on_a_simulated_card_with_cudnn(name, &[(variable, functions)]));
        }
        return;
    }
    let line = "cuDNN does not support this card (CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH): convolutions run on gpumem's own \
                kernels; an older version of the library may support it";
    if !says(name, line) {
        return;
    }
    let job = convolutions::convolutions_job(true, Precision::F32);
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    assert_eq!(
        (card.convolutions(), convolution_counts()),
        (0, [0; 7]),
        "of a forward pass; handles, objects, launches"
    );
    check_steps(&job, &mut card);
}

/// Of a recurrent layer for which the library wants more memory than is planned.
#[test]
fn recurrent_layers_without_room_for_the_library_are_named() {
    let name = "notices::recurrent_layers_without_room_for_the_library_are_named";
    if !on_a_simulated_card_with_cudnn(name, &[("GPUMEM_SIMULATED_CUDNN_REFUSES", "room")]) {
        return;
    }
    let line = "cuDNN wants a reserve of 0.0 MiB and a workspace of 1048576.0 MiB for the recurrence Gru of 3x7 steps, 6 to 6 in F32, workspace \
                of 16790736 bytes, and 0.0 and 16.0 are planned: it runs on gpumem's own kernels, which need less without `cudnn = true`";
    if !says(name, line) {
        return;
    }
    let job = job_of_sequence("Gru(6, cudnn = true) | Flatten | Linear(5)", Precision::F32, false);
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    check_steps(&job, &mut card);
}
