//! Sessions whose convolutions go to cuDNN, which the host plays like the card.

use super::*;
use crate::host::card::{convolution_counts, on_a_simulated_card_with_cudnn};

/// A Relu that runs with its convolution, groups, a kernel of one pixel, whose workspace is too small for a copy of it, and one
/// without a bias.
const CONVOLUTIONS: &str = "Conv2d(4, 3, padding = 1) | Relu(inplace = true) | Conv2d(4, 3, padding = 1, groups = 2) | \
                            Conv2d(24, 1) | Tanh | Conv2d(3, 3, stride = [2; 1], bias = false) | BatchNorm2d | Flatten | \
                            Linear(5)";

/// The same with channels in whole 16 bytes. The first convolution reads what the host feeds, channels first, and writes its
/// output channels last: the library has none such.
pub const NARROW: &str = "Conv2d(8, 3, padding = 1) | Relu(inplace = true) | Conv2d(16, 3, padding = 1, groups = 2) | \
                      Conv2d(24, 1) | Tanh | Conv2d(8, 3, stride = [2; 1], bias = false) | BatchNorm2d | \
                      MaxPool2d(2) | Flatten | Linear(5)";

pub fn job_with(text: &str, deterministic: bool, precision: Precision) -> Job {
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    Job { deterministic, ..job_of(&[2, 6, 6], text, optimizer, precision) }
}

pub fn convolutions_job(deterministic: bool, precision: Precision) -> Job {
    job_with(CONVOLUTIONS, deterministic, precision)
}

/// What cuDNN has been asked for: forward passes, those with a bias in the same pass, biases in a pass of their own, data
/// gradients and filter gradients.
fn convolutions_so_far() -> [u64; 5] {
    let [_, _, asked @ ..] = convolution_counts();
    asked
}

/// What loading asks for if a step needs these: each is tried once, and captured for both halves of the input and for the
/// forward pass by itself.
fn at_load(step: [u64; 5]) -> [u64; 5] {
    let [forward, fused, biases, ..] = step;
    let infer = [forward, fused, biases, 0, 0];
    std::array::from_fn(|kind| step[kind] + 2 * step[kind] + infer[kind])
}

/// Convolutions through the library in fed and replayed steps; nothing of the library's is left behind.
#[test]
fn convolutions_go_to_the_library() {
    if !on_a_simulated_card_with_cudnn("convolutions::convolutions_go_to_the_library", &[]) {
        return;
    }
    // The fast algorithm adds the bias by itself. It is not the first: that one gives other bits in each run.
    for (deterministic, expected) in [(false, [3, 1, 2, 3, 4]), (true, [2, 2, 1, 3, 4])] {
        let job = convolutions_job(deterministic, Precision::F32);
        let (mut card, asked) = load_asking(&Cuda::new(0).unwrap(), &job, convolutions_so_far);
        assert_eq!((card.convolutions(), convolution_counts()[0]), (4, 1), "of a forward pass, handles");
        assert_eq!(asked, at_load(expected));
        train_with(&job, &mut card, convolutions_so_far);
        drop(card);
        assert_eq!(convolution_counts()[..2], [0, 0], "handles and objects");
        assert_eq!(counts()[1], 0, "bytes on the card");
    }
    // The same with the project's own kernels.
    let job = convolutions_job(false, Precision::F32);
    let device = Cuda::new(0).unwrap().with_cudnn(false);
    let (mut card, asked) = load_asking(&device, &job, convolutions_so_far);
    assert_eq!((card.convolutions(), convolution_counts()[0], asked), (0, 0, [0; 5]));
    train_with(&job, &mut card, convolutions_so_far);
}

/// A forward pass by itself, between training steps.
#[test]
fn inference_through_cudnn() {
    if !on_a_simulated_card_with_cudnn("convolutions::inference_through_cudnn", &[]) {
        return;
    }
    let job = convolutions_job(true, Precision::F32);
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    let (input, count) = at(&job.infer, Class::Input);
    let output = job.infer.offsets[job.infer.program.results[0] as usize];
    for step in 0..3 {
        let infer = |runner: &mut dyn Runner| {
            runner.write(input, &bytes(&spread(count, step))).unwrap();
            runner.infer().unwrap();
            let mut bytes = vec![0; (BATCH as usize) * CLASSES as usize * 4];
            runner.read(output, &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<f32>>()
        };
        let (found, expected) = (infer(&mut card), infer(&mut cpu));
        host::harness::assert_close(&format!("output before step {step}"), &found, &expected, 1e-4);
        feed(&job, &mut cpu, step);
        cpu.train().unwrap();
        feed(&job, &mut card, step);
        card.train().unwrap();
    }
    compare("after 3 steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// Tensors, bias and sums of 16-bit networks.
#[test]
fn sixteen_bits_through_cudnn() {
    if !on_a_simulated_card_with_cudnn("convolutions::sixteen_bits_through_cudnn", &[]) {
        return;
    }
    follows_in_sixteen_bits(NARROW, at_load([1, 2, 0, 3, 3]));
}

/// What a transpose writes is what the library makes as a gradient, with its bias and a Relu behind that.
#[test]
fn transposes_in_sixteen_bits_through_cudnn() {
    if !on_a_simulated_card_with_cudnn("convolutions::transposes_in_sixteen_bits_through_cudnn", &[]) {
        return;
    }
    let text = "Conv2d(8, 3, padding = 1) | ConvTranspose2d(16, 2, stride = 2) | Relu(inplace = true) | \
                ConvTranspose2d(8, 3, stride = 2, padding = 1, bias = false) | BatchNorm2d | MaxPool2d(2) | Flatten | Linear(5)";
    // Two that write, whose gradients are a convolution and that of its filter each.
    let (step, infer) = ([2, 0, 0, 2, 2], [0, 0, 0, 2, 0]);
    follows_in_sixteen_bits(text, std::array::from_fn(|kind| 3 * step[kind] + infer[kind]));
}

/// A network in the formats of 16 bits, for which the library is asked that often, and without the library, beside the CPU backend.
fn follows_in_sixteen_bits(text: &str, asked: [u64; 5]) {
    let wide = job_with(text, true, Precision::F32);
    let mut cpu = Cpu::with_threads(1).unwrap().load(wide.clone()).unwrap();
    begin(&wide, &mut cpu);
    let mut run = |step| {
        feed(&wide, &mut cpu, step);
        cpu.train().unwrap();
        loss(&wide, &mut cpu)
    };
    let expected: Vec<f32> = (0..4).map(&mut run).collect();
    let own = [0; 5];
    let all = [Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)];
    let all = all.map(|precision| (precision, true, asked));
    for (precision, cudnn, expected_calls) in all.into_iter().chain([(Precision::Mixed(Half::Bf16), false, own)]) {
        let job = job_with(text, true, precision);
        let device = Cuda::new(0).unwrap().with_cudnn(cudnn);
        let (mut card, asked) = load_asking(&device, &job, convolutions_so_far);
        assert_eq!(asked, expected_calls, "{precision:?}");
        begin(&job, &mut card);
        for (step, expected) in expected.iter().enumerate() {
            feed(&job, &mut card, step);
            card.train().unwrap();
            let found = loss(&job, &mut card);
            assert!(
                (found - expected).abs() < 2e-2 * expected.abs(),
                "{precision:?}, step {step}: {found}, {expected}"
            );
        }
    }
}

/// What is refused when it is tried, or has no algorithm, runs another way: unfused, or with the project's own kernels.
#[test]
fn convolutions_without_an_algorithm_run_another_way() {
    let name = "convolutions::convolutions_without_an_algorithm_run_another_way";
    if std::env::var_os("GPUMEM_SIMULATED_CUDNN_REFUSES").is_none() {
        for refused in ["fused", "filter", "forward,data"] {
            assert!(!on_a_simulated_card_with_cudnn(name, &[("GPUMEM_SIMULATED_CUDNN_REFUSES", refused)]));
        }
        return;
    }
    let (forward, expected) = match std::env::var("GPUMEM_SIMULATED_CUDNN_REFUSES").unwrap().as_str() {
        "fused" => (4, [4, 0, 3, 3, 4]),
        "filter" => (4, [2, 2, 1, 3, 0]),
        _ => (0, [0, 0, 0, 0, 4]),
    };
    let job = convolutions_job(true, Precision::F32);
    let (mut card, asked) = load_asking(&Cuda::new(0).unwrap(), &job, convolutions_so_far);
    assert_eq!((card.convolutions(), asked), (forward, at_load(expected)));
    train_with(&job, &mut card, convolutions_so_far);
}

/// Convolutions of one pixel through cuBLASLt, where there is no cuDNN. Refused are Relu (2), and all that is not fused (1).
#[test]
fn convolutions_of_one_pixel_are_products() {
    let name = "convolutions::convolutions_of_one_pixel_are_products";
    if std::env::var_os("GPUMEM_SIMULATED_REFUSES").is_none() {
        for refused in ["", "2", "1,2"] {
            assert!(!on_a_simulated_card(name, &[("GPUMEM_SIMULATED_REFUSES", refused)]));
        }
        return;
    }
    // A step has three forward, two for gradients of maps, and two of the linear layer's. Each is tried once; steps are captured for
    // both halves of the input, and the forward pass by itself.
    let (forward, step) = if std::env::var("GPUMEM_SIMULATED_REFUSES").unwrap() == "1,2" { (0, 0) } else { (3, 7) };
    let text = "Conv2d(6, 1, bias = false) | Relu(inplace = true) | Conv2d(4, 1, bias = false) | Tanh | Conv2d(3, 1) | \
                Flatten | Linear(5, bias = false)";
    let job = job_with(text, true, Precision::F32);
    let device = Cuda::new(0).unwrap().with_cudnn(false);
    let (mut card, [asked]) = load_asking(&device, &job, products_so_far);
    assert_eq!((card.products(), card.convolutions(), asked), (forward as usize, 0, step + 2 * step + forward));
    train_with(&job, &mut card, products_so_far);
}

#[test]
fn a_library_that_fails_is_an_error_that_names_the_convolution() {
    let name = "convolutions::a_library_that_fails_is_an_error_that_names_the_convolution";
    if !on_a_simulated_card_with_cudnn(name, &[("GPUMEM_SIMULATED_CUDNN_BREAKS", "1")]) {
        return;
    }
    let text = load_on(&Cuda::new(0).unwrap(), &convolutions_job(false, Precision::F32)).unwrap_err().to_string();
    let expected = "cuDNN: choosing an algorithm for convolution 3x2x6x6 to 4x6x6, kernel 3x3, stride 1x1, padding 1x1, \
                    dilation 1x1, groups 1 in F32, bias, Relu, workspace of 576 bytes: CUDNN_STATUS_INTERNAL_ERROR";
    assert!(text.contains(expected), "{text}");
    assert_eq!(
        (convolution_counts()[..2].to_vec(), counts()[1]),
        (vec![0, 0], 0),
        "handles, objects, bytes on the card"
    );
    // A network without convolutions does not ask.
    let card = load_on(&Cuda::new(0).unwrap(), &products_job()).unwrap();
    assert_eq!((card.convolutions(), convolution_counts()[0]), (0, 0));
}

/// An algorithm that breaks the card is named, by the trial that broke it.
#[test]
fn a_trial_that_fails_names_the_convolution() {
    let name = "convolutions::a_trial_that_fails_names_the_convolution";
    if !on_a_simulated_card_with_cudnn(name, &[("GPUMEM_SIMULATED_CUDNN_CRASHES", "data")]) {
        return;
    }
    let text = load_on(&Cuda::new(0).unwrap(), &convolutions_job(false, Precision::F32)).unwrap_err().to_string();
    assert!(text.contains("cuDNN: trying data gradient of the convolution 3x24x6x6 to 3x2x4"), "{text}");
    assert!(text.contains("SIMULATED_ERROR_700"), "{text}");
}

#[test]
fn networks_follow_pytorch_through_cudnn() {
    if !on_a_simulated_card_with_cudnn("convolutions::networks_follow_pytorch_through_cudnn", &[]) {
        return;
    }
    let card = Known(Cuda::new(0).unwrap());
    for curve in host::harness::curves::Curve::all() {
        curve.check(&mut curve.network.on(&card).unwrap());
    }
    assert!(convolutions_so_far().iter().sum::<u64>() > 0, "none of the networks has a convolution");
}
