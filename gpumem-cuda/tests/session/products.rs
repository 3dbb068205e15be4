//! Matrix products of whole networks through the library, and what becomes of those that it does not take.

use super::*;

/// Linear with Relu and Gelu, whose workspaces are worth something, and a bias that is alone.
const PRODUCTS: &str =
    "Flatten | Linear(512) | Relu(inplace = true) | Linear(16) | Gelu(approximate = \"tanh\") | Linear(5)";

pub fn products_job() -> Job {
    // Adam divides by the gradient's size and would make much of its last bits.
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    job_of(&[2, 6, 6], PRODUCTS, optimizer, Precision::F32)
}

/// What is asked of a library while a network is loaded, of each kind.
pub fn load_asking<const N: usize>(card: &Cuda, job: &Job, asked_so_far: impl Fn() -> [u64; N]) -> (Session, [u64; N]) {
    let before = asked_so_far();
    let card = load_on(card, job).unwrap();
    let asked = asked_so_far();
    (card, std::array::from_fn(|kind| asked[kind] - before[kind]))
}

/// Steps on the card against the CPU backend.
pub fn train_with<const N: usize>(job: &Job, card: &mut Session, asked_so_far: impl Fn() -> [u64; N]) {
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(job, card);
    begin(job, &mut cpu);
    let (asked, made) = (asked_so_far(), start_up().0);
    for step in 0..5 {
        feed(job, &mut cpu, step);
        cpu.train().unwrap();
        feed(job, card, step);
        card.train().unwrap();
        let (found, expected) = (loss(job, card), loss(job, &mut cpu));
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "step {step}: {found}, {expected}");
    }
    assert_eq!((asked_so_far(), start_up().0), (asked, made), "replays ask for nothing, and nothing is made for them");
}

pub fn products_so_far() -> [u64; 1] {
    [product_counts()[2]]
}

/// Products through the library in fed and replayed steps; nothing of the library's is left behind.
#[test]
fn products_go_to_the_library() {
    if !on_a_simulated_card("products::products_go_to_the_library", &[]) {
        return;
    }
    let job = products_job();
    let device = Cuda::new(0).unwrap().with_cudnn(false);
    let (mut card, [asked]) = load_asking(&device, &job, products_so_far);
    assert_eq!((card.products(), product_counts()[0]), (3, 1), "products of a forward pass, handles");
    // A step has three forward, three for parameters and two for inputs. Each is tried once, and so is the Gelu of the forward
    // pass by itself, which keeps nothing; steps are captured for both halves of the input.
    assert_eq!(asked, (8 + 1) + 2 * 8 + 3);
    train_with(&job, &mut card, products_so_far);
    drop(card);
    assert_eq!(product_counts()[..2], [0, 0], "handles and objects");
    // The same with the project's own kernels.
    let (mut card, [asked]) = load_asking(&device.with_library(false), &job, products_so_far);
    assert_eq!((card.products(), product_counts()[0], asked), (0, 0, 0));
    train_with(&job, &mut card, products_so_far);
}

/// Without an algorithm for what is fused, and for a bias (4): single operations, and the project's own kernel.
#[test]
fn products_without_an_algorithm_run_another_way() {
    let refused = [("GPUMEM_SIMULATED_REFUSES", "6,4,36,164,192,512")];
    if !on_a_simulated_card("products::products_without_an_algorithm_run_another_way", &refused) {
        return;
    }
    let job = products_job();
    let (mut card, [asked]) = load_asking(&Cuda::new(0).unwrap().with_cudnn(false), &job, products_so_far);
    assert_eq!(card.products(), 0, "every product of the forward pass has a bias");
    // Tried, and captured for both halves.
    assert_eq!(asked, 5 + 2 * 5);
    train_with(&job, &mut card, products_so_far);
}

/// What the library takes and does not launch after all (6 is a Relu with its bias): found when it is tried.
#[test]
fn products_that_are_refused_when_they_are_tried_run_another_way() {
    let name = "products::products_that_are_refused_when_they_are_tried_run_another_way";
    if !on_a_simulated_card(name, &[("GPUMEM_SIMULATED_REFUSES_LATE", "6")]) {
        return;
    }
    let job = products_job();
    let (mut card, [asked]) = load_asking(&Cuda::new(0).unwrap().with_cudnn(false), &job, products_so_far);
    assert_eq!((card.products(), asked), (3, (8 + 1) + 2 * 8 + 3), "the bias alone instead");
    train_with(&job, &mut card, products_so_far);
}

/// 512 is the product that also sums a bias's gradient.
#[test]
fn a_trial_that_fails_names_the_product() {
    if !on_a_simulated_card("products::a_trial_that_fails_names_the_product", &[("GPUMEM_SIMULATED_CRASHES", "512")]) {
        return;
    }
    let text = load_on(&Cuda::new(0).unwrap(), &products_job()).unwrap_err().to_string();
    assert!(text.contains("cuBLASLt: trying product m="), "{text}");
    assert!(text.contains("epilogue BGRADB") && text.contains("SIMULATED_ERROR_700"), "{text}");
}

#[test]
fn a_library_that_fails_is_an_error_that_names_the_product() {
    let name = "products::a_library_that_fails_is_an_error_that_names_the_product";
    if !on_a_simulated_card(name, &[("GPUMEM_SIMULATED_BREAKS", "1")]) {
        return;
    }
    let error = load_on(&Cuda::new(0).unwrap(), &products_job()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cuBLASLt: choosing an algorithm for product m=512 n=3 k=72 TN in F32"), "{text}");
    assert!(text.contains("CUBLAS_STATUS_INTERNAL_ERROR"), "{text}");
    assert_eq!((product_counts()[..2].to_vec(), counts()[1]), (vec![0, 0], 0), "handles, objects, bytes on the card");
}
