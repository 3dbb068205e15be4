//! Networks at run time: parameters by name, errors as values, reproducible training.

mod storage;

use gpumem::__private::Role;
use gpumem::__private::run::device::Job;
use gpumem::Line;
use gpumem::Net;
use gpumem::prelude::*;
use gpumem::{AnyDevice, Cpu, Error, Kind};
use storage::Storage;

network! {
    /// Every kind of state: weights, running statistics, moments, dropout.
    pub struct Small;

    const TRAIN: Train = Train { batch: 8, optimizer: Adam { lr: 0.01 }, loss: CrossEntropy, seed: 3 };

    fn forward(image: Image<1, 6, 6>) -> Logits<4> {
        [Conv2d(4, 3, bias = false), BatchNorm2d, Relu(inplace), Flatten, Dropout(0.2), Linear(4, name = "head")]
    }
}

network! {
    /// Inference only.
    pub struct Frozen;

    const INFER: Infer = Infer { batch: 2 };

    fn forward(tokens: Tokens<3>) -> TokenLogits<3, 5> {
        [Embedding(7, 4), Linear(5)]
    }
}

network! {
    /// The weight of `Both` the other way round.
    pub struct Turned;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(features: Features<3>) -> Features<2> {
        [Linear(2, transposed = true)]
    }
}

network! {
    /// Another batch for inference than for training.
    pub struct Both;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse };
    const INFER: Infer = Infer { batch: 1 };

    fn forward(features: Features<3>) -> Features<2> {
        [Linear(2)]
    }
}

network! {
    /// The CPU does not run this precision.
    pub struct Halved;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse, precision: Mixed(Bf16) };

    fn forward(features: Features<3>) -> Features<2> {
        [Linear(2)]
    }
}

network! {
    /// A loss of two terms, one of a value that inference does not have.
    pub struct Helped;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse + 0.5 * Mean(from = side) };

    fn forward(features: Features<3>) -> Features<2> {
        [Add([Linear(2)], [Linear(5, name = "aside"), Dropout(0.5), tap(side), Linear(2)])]
    }
}

network! {
    /// The settings that only a card knows what to do with.
    pub struct Tuned;

    const TRAIN: Train = Train {
        batch: 16, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060],
        tf32: true, deterministic: true, conv_workspace: 4 * 25,
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<2048> {
        [Conv2d(4, 3, padding = 1), Flatten, Linear(2048)]
    }
}

network! {
    /// The same with other cards and the customary workspace.
    pub struct Untuned;

    const TRAIN: Train = Train { batch: 16, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060, H100_SXM] };

    fn forward(image: Image<3, 64, 64>) -> Logits<2048> {
        [Conv2d(4, 3, padding = 1), Flatten, Linear(2048)]
    }
}

fn images() -> <Small as Network>::Input {
    Tensor::from_fn(|index| ((index * 37) % 101) as f32 / 50.0 - 1.0)
}

fn labels() -> <Small as Network>::Target {
    Tensor::from_fn(|index| index as u32 % 4)
}

fn train(steps: usize) -> (Vec<f32>, Vec<f32>) {
    let mut net = Small::on(&Cpu::with_threads(2).unwrap()).unwrap();
    let losses = (0..steps).map(|_| net.train_step(&images(), &labels()).unwrap()).collect();
    (losses, net.get("head.weight").unwrap())
}

/// A network can be trained on a thread of its own.
#[test]
fn networks_move_between_threads() {
    fn can_move<T: Send>() {}
    can_move::<Net<Small, Cpu>>();
    can_move::<Net<Small, AnyDevice>>();
    can_move::<Error>();
    let mut net = Small::on(&Cpu::new()).unwrap();
    let here = net.train_step(&images(), &labels()).unwrap();
    let there = std::thread::spawn(move || net.train_step(&images(), &labels()).map(|loss| (loss, net)));
    let (loss, mut net) = there.join().unwrap().unwrap();
    assert!(loss.is_finite() && here.is_finite());
    assert_eq!(net.steps().unwrap(), 2);
}

#[test]
fn training_is_reproducible_to_the_bit_and_learns() {
    let (first, second) = (train(40), train(40));
    assert_eq!(first, second);
    assert!(first.0[39] < 0.5 * first.0[0], "{:?}", first.0);
}

#[test]
fn training_goes_on_elsewhere_as_if_nothing_had_happened() {
    let mut whole = Small::on(&Cpu::new()).unwrap();
    let mut first = Small::on(&Cpu::new()).unwrap();
    for _ in 0..3 {
        whole.train_step(&images(), &labels()).unwrap();
        first.train_step(&images(), &labels()).unwrap();
    }
    let mut second = Small::on(&Cpu::new()).unwrap();
    let names: Vec<String> = first.names().map(String::from).collect();
    for name in &names {
        second.set(name, &first.get(name).unwrap()).unwrap();
    }
    assert_eq!(first.steps().unwrap(), 3);
    second.set_steps(3).unwrap();
    for _ in 0..3 {
        let expected = whole.train_step(&images(), &labels()).unwrap();
        assert_eq!(second.train_step(&images(), &labels()).unwrap(), expected);
    }
    let error = Frozen::on(&Cpu::new()).unwrap().steps().unwrap_err();
    assert_eq!(error.to_string(), "Frozen: the network has no `const TRAIN`, so it makes no steps");
}

#[test]
fn another_step_on_the_same_batch_needs_no_copy() {
    let (mut copied, mut kept) = (Small::on(&Cpu::new()).unwrap(), Small::on(&Cpu::new()).unwrap());
    let first = copied.train_step(&images(), &labels()).unwrap();
    assert_eq!(kept.train_step(&images(), &labels()).unwrap(), first);
    for _ in 0..3 {
        let loss = copied.train_step(&images(), &labels()).unwrap();
        kept.train_again().unwrap();
        assert_eq!((kept.loss().unwrap(), kept.loss().unwrap()), (loss, loss));
    }
    assert_eq!(kept.get("head.weight").unwrap(), copied.get("head.weight").unwrap());
    let mut frozen = Frozen::on(&Cpu::new()).unwrap();
    let expected = "Frozen: the network has no `const TRAIN`, so it makes no steps";
    assert_eq!(frozen.train_again().unwrap_err().to_string(), expected);
    assert_eq!(frozen.loss().unwrap_err().to_string(), expected);
}

#[test]
fn parameters_by_name() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    let names: Vec<String> = net.names().map(String::from).collect();
    for name in ["conv2d.weight", "batch_norm2d.running_var", "head.bias", "head.weight.exp_avg_sq"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    assert_eq!(net.get("batch_norm2d.running_var").unwrap(), [1.0; 4]);
    assert_eq!(net.shape("head.weight"), Some(&[4, 64][..]));
    assert_eq!((net.shape("head.weight.exp_avg_sq"), net.shape("head")), (Some(&[4, 64][..]), None));
    let kind = |name: &str| net.tensors().find(|tensor| tensor.name == name).map(|tensor| tensor.kind);
    let kinds = ["head.bias", "batch_norm2d.running_var", "head.weight.exp_avg_sq"].map(kind);
    assert_eq!(kinds, [Some(Kind::Parameter), Some(Kind::Statistic), Some(Kind::OptimizerState)]);
    assert!(net.tensors().map(|tensor| tensor.name).eq(net.names()));
    let weights = net.get("head.weight").unwrap();
    let bound = 1.0 / 64f32.sqrt();
    assert!(
        weights.iter().all(|weight| weight.abs() <= bound) && weights.iter().any(|weight| weight.abs() > bound / 2.0)
    );
    net.set("head.bias", &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(net.get("head.bias").unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(net.set("head.bias", &[1.0]).unwrap_err().to_string(), "`head.bias` has 4 elements, but 1 were given");
    assert_eq!(
        net.get("head.wieght").unwrap_err().to_string(),
        "the network has nothing called `head.wieght`; did you mean `head.weight`?"
    );
    assert_eq!(
        net.get("x").unwrap_err().to_string(),
        "the network has nothing called `x`; `names()` lists what it has"
    );
    net.reset().unwrap();
    assert_eq!(net.get("head.weight").unwrap(), weights);
}

#[test]
fn a_bad_label_changes_nothing() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    let before = net.get("conv2d.weight").unwrap();
    let statistics = net.get("batch_norm2d.running_mean").unwrap();
    let mut labels = labels();
    labels.as_mut_slice()[5] = 4;
    let error = net.train_step(&images(), &labels).unwrap_err();
    assert_eq!(error, Error::Index { what: "label", position: 5, value: 4, limit: 4 });
    assert_eq!(error.to_string(), "label 4 at position 5 is too large: it must be below 4");
    assert_eq!(net.get("conv2d.weight").unwrap(), before);
    assert_eq!(net.get("batch_norm2d.running_mean").unwrap(), statistics);
}

#[test]
fn inference_uses_running_statistics_and_no_dropout() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    for _ in 0..5 {
        net.train_step(&images(), &labels()).unwrap();
    }
    let weights = net.get("head.weight").unwrap();
    let (first, second) = (net.forward(&images()).unwrap(), net.forward(&images()).unwrap());
    assert_eq!(first, second);
    assert_eq!(net.get("head.weight").unwrap(), weights);
    // One image at a time gives the same logits as all at once: nothing depends on the rest of the batch.
    let all = images();
    let alone = Tensor::from_fn(|index| if index < 36 { all.as_slice()[index] } else { 0.0 });
    let alone = net.forward(&alone).unwrap();
    for (a, b) in alone.as_slice()[..4].iter().zip(first.as_slice()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn a_network_without_training() {
    let mut net = Frozen::on(&Cpu::new()).unwrap();
    let tokens = Tensor::from_fn(|index| index as u32);
    let output = net.forward(&tokens).unwrap();
    assert_eq!(output.dims(), [2, 3, 5]);
    assert_eq!(net.infer(&tokens).unwrap(), output);
    let tokens = Tensor::from_fn(|index| 3 + index as u32);
    let error = net.forward(&tokens).unwrap_err();
    assert_eq!(error, Error::Index { what: "token", position: 4, value: 7, limit: 7 });
    const { assert!(Frozen::TRAIN.is_none() && Frozen::TRAINING.is_none()) };
}

#[test]
fn training_and_inference_may_differ_in_batch() {
    const { assert!(Both::PROGRAM.batch == 4) };
    assert_eq!(Both::INFERENCE.batch, 1);
    let mut net = Both::on(&Cpu::new()).unwrap();
    let features = Tensor::from_fn(|index| index as f32);
    let output = net.forward(&features).unwrap();
    let loss = net.train_step(&features, &output).unwrap();
    assert!(loss.abs() < 1e-10, "the output is the target: {loss}");
    for lr in [-0.1, f64::NAN, f64::INFINITY] {
        let expected = format!("Both: a learning rate must be 0 or more and finite, not {lr}");
        assert_eq!(net.set_lr(lr).unwrap_err().to_string(), expected);
    }
    net.set_lr(0.0).unwrap();
    let zeros = Tensor::zeros();
    let before = net.train_step(&features, &zeros).unwrap();
    assert_eq!(net.train_step(&features, &zeros).unwrap(), before, "nothing moves at learning rate 0");
}

#[test]
fn what_the_cpu_cannot_run_is_an_error() {
    let error = Halved::on(&Cpu::new()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let expected =
        "the CPU: `Halved` has precision Mixed(Bf16), but it runs F32 only; `Cpu::new().emulate()` runs it in F32";
    assert_eq!(error.to_string(), expected);
    const { assert!(Halved::BUDGET.get(Line::Master) > 0) };
}

/// What a card would run in 16 bits, in f32 and otherwise the same.
#[test]
fn networks_of_sixteen_bits_run_on_the_cpu_when_asked() {
    macro_rules! declared {
        ($name:ident, $precision:expr) => {
            network! {
                struct $name;
                const TRAIN: Train = Train {
                    batch: 8, optimizer: Adam { lr: 0.01 }, loss: CrossEntropy, seed: 3, precision: $precision,
                };
                fn forward(image: Image<1, 6, 6>) -> Logits<4> {
                    [Conv2d(4, 3, bias = false), BatchNorm2d, Relu(inplace), Flatten, Dropout(0.2), Linear(4, name = "head")]
                }
            }
        };
    }
    declared!(Narrow, Bf16);
    declared!(Scaled, F16);
    declared!(Doubled, Mixed(Bf16));
    fn run<N>(mut net: Net<N, AnyDevice>, expected: &(Vec<f32>, Vec<f32>))
    where
        N: Network<Input = <Small as Network>::Input, Target = <Small as Network>::Target>,
    {
        let losses: Vec<f32> = (0..5).map(|_| net.train_step(&images(), &labels()).unwrap()).collect();
        let weights = net.get("head.weight").unwrap();
        // A step in F16 checks its gradients before it changes anything, and ends in the same numbers.
        assert_eq!(&(losses, weights), expected, "{}", N::NAME);
        assert!(net.eval_loss(&images(), &labels()).unwrap().is_finite());
        net.forward(&images()).unwrap();
    }
    let device = AnyDevice::Cpu(Cpu::with_threads(2).unwrap().emulate());
    let expected = train(5);
    run(Small::on(&device).unwrap(), &expected);
    run(Narrow::on(&device).unwrap(), &expected);
    run(Scaled::on(&device).unwrap(), &expected);
    run(Doubled::on(&device).unwrap(), &expected);
}

network! {
    /// Served one by one while it is trained.
    struct Shared;

    const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: 2 };

    fn forward(tokens: Tokens<6>) -> TokenLogits<6, 5> {
        [Embedding(5, 8), LayerNorm, Linear(8), Gelu, Dropout(0.5), Linear(5)]
    }
}

#[test]
fn training_and_serving_share_one_set_of_weights() {
    let mut net = Shared::shared_on(&Cpu::new()).unwrap();
    let tokens = Tensor::from_fn(|index| index as u32 * 7 % 5);
    let two = || Tensor::from_samples(tokens.samples().take(2)).unwrap().0;
    for _ in 0..3 {
        net.train_step(&tokens, &tokens).unwrap();
        let all = net.forward(&tokens).unwrap();
        // As the step has left them, without a copy.
        let some = net.infer(&two()).unwrap();
        assert!(some.as_slice().iter().zip(all.as_slice()).all(|(some, all)| (some - all).abs() < 1e-5));
    }
    let mut beside = Shared::on(&Cpu::new()).unwrap();
    for _ in 0..3 {
        beside.train_step(&tokens, &tokens).unwrap();
    }
    assert_eq!(
        beside.get("linear[0].weight").unwrap(),
        net.get("linear[0].weight").unwrap(),
        "training does not see it"
    );
    let expected = "Shared: it was loaded without the forward pass of `INFER`; load it with `shared_on`";
    assert_eq!(beside.infer(&two()).unwrap_err().to_string(), expected);
    let wrong = Tensor::from_fn(|index| index as u32);
    let error = net.infer(&wrong).unwrap_err().to_string();
    assert_eq!(error, "token 5 at position 5 is too large: it must be below 5");
}

#[test]
fn what_cannot_share_weights_says_why() {
    macro_rules! declared {
        ($name:ident, $infer:expr) => {
            network! {
                struct $name;
                const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse };
                const INFER: Infer = $infer;
                fn forward(features: Features<3>) -> Features<2> { [Linear(2)] }
            }
        };
    }
    declared!(Narrow, Infer { batch: 1, precision: Bf16 });
    declared!(Wide, Infer { batch: 5 });
    let so = ", so they cannot share one set of weights; load it alone with `infer_on`";
    let error = Narrow::shared_on(&Cpu::new()).unwrap_err().to_string();
    assert_eq!(error, format!("Narrow: `INFER` has precision Bf16 and `TRAIN` F32{so}"));
    let error = Wide::shared_on(&Cpu::new()).unwrap_err().to_string();
    assert_eq!(error, format!("Wide: `INFER` has batch 5, more than 4 in `TRAIN`{so}"));
}

/// Mean cross entropy of logits.
fn cross_entropy(logits: &[f32], labels: &[u32]) -> f32 {
    let rows = logits.chunks_exact(4).zip(labels);
    let terms = rows.map(|(row, &label)| row.iter().map(|x| x.exp()).sum::<f32>().ln() - row[label as usize]);
    terms.sum::<f32>() / labels.len() as f32
}

#[test]
fn a_validation_loss_changes_nothing() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    for _ in 0..3 {
        net.train_step(&images(), &labels()).unwrap();
    }
    let names: Vec<String> = net.names().map(String::from).collect();
    let all = |net: &mut Net<Small, _>| names.iter().map(|name| net.get(name).unwrap()).collect::<Vec<_>>();
    let before = all(&mut net);
    let other = Tensor::from_fn(|index| ((index * 53) % 89) as f32 / 40.0 - 1.0);
    let loss = net.eval_loss(&other, &labels()).unwrap();
    assert_eq!(net.eval_loss(&other, &labels()).unwrap(), loss, "nothing is drawn");
    assert_eq!((all(&mut net), net.steps().unwrap()), (before, 3));
    let logits = net.forward(&other).unwrap();
    let expected = cross_entropy(logits.as_slice(), labels().as_slice());
    assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");

    let mut wrong = labels();
    wrong.as_mut_slice()[2] = 9;
    let error = net.eval_loss(&other, &wrong).unwrap_err();
    assert_eq!(error.to_string(), "label 9 at position 2 is too large: it must be below 4");
}

/// Whatever else computes something in the meantime.
#[test]
fn a_loss_is_that_of_the_last_step() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    let none = "Small: there has been no training step whose loss this could be; call `train_step`";
    assert_eq!(net.loss().unwrap_err().to_string(), none);
    net.enqueue_step(&images(), &labels()).unwrap();
    let loss = net.loss().unwrap();
    let other = Tensor::from_fn(|index| ((index * 53) % 89) as f32 / 40.0 - 1.0);
    assert_ne!(net.eval_loss(&other, &labels()).unwrap(), loss);
    assert_eq!(net.loss().unwrap(), loss);
    net.forward(&other).unwrap();
    assert_eq!(net.loss().unwrap(), loss);
    net.reset().unwrap();
    assert_eq!(net.loss().unwrap_err().to_string(), none);
}

#[test]
fn a_validation_loss_has_every_term() {
    let mut net = Helped::on(&Cpu::new()).unwrap();
    net.set("aside.weight", &[0.5; 15]).unwrap();
    net.set("aside.bias", &[1.0; 5]).unwrap();
    let features = Tensor::from_fn(|index| index as f32 / 12.0);
    let target = net.forward(&features).unwrap();
    let loss = net.eval_loss(&features, &target).unwrap();
    // What is tapped is 1 + 0.5 * (a sample's sum), without dropout.
    let expected = 0.5 * (1.0 + 0.5 * features.as_slice().iter().sum::<f32>() / 4.0);
    assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");
}

/// 1 + 2^-9 is no bfloat16.
const FINE: f32 = 1.0 + 1.0 / 512.0;

#[test]
fn sixteen_bit_networks_speak_f32() {
    let mut net = Net::<Halved, Storage>::load(&Storage).unwrap();
    // Masters are as they were set, and their copies are rounded.
    net.set("linear.weight", &[FINE; 6]).unwrap();
    assert_eq!(net.get("linear.weight").unwrap(), [FINE; 6]);
    let placed = gpumem::__private::memory::place::place(Halved::PROGRAM).unwrap();
    let at = |name: &str| placed.program.tensors.iter().position(|tensor| tensor.name == name).unwrap();
    let weight = at("linear.weight");
    let (copy, master) = (placed.offsets[weight], placed.masters[weight].unwrap());
    assert_eq!(net.runner_mut().0[copy as usize..][..12], [0x80, 0x3f].repeat(6));
    assert_eq!(net.runner_mut().0[master as usize..][..4], FINE.to_le_bytes());
    // Initial values are in both places too.
    net.reset().unwrap();
    let bias = at("linear.bias");
    let (copy, master) = (placed.offsets[bias] as usize, placed.masters[bias].unwrap() as usize);
    let bytes = &net.runner_mut().0;
    let whole = f32::from_le_bytes(bytes[master..master + 4].try_into().unwrap());
    let rounded = f32::from_bits(u32::from(u16::from_le_bytes([bytes[copy], bytes[copy + 1]])) << 16);
    assert!(whole != 0.0 && (whole - rounded).abs() <= whole.abs() / 256.0, "{whole} {rounded}");
    // Inputs are rounded on their way, and what they are compared with is not.
    net.enqueue_step(&Tensor::from_fn(|_| FINE), &Tensor::from_fn(|_| FINE)).unwrap();
    let bytes = &net.runner_mut().0;
    assert_eq!(bytes[placed.offsets[at("input")] as usize..][..24], [0x80, 0x3f].repeat(12));
    assert_eq!(bytes[placed.offsets[at("target")] as usize..][..16], FINE.to_le_bytes().repeat(4));
}

#[test]
fn settings_reach_the_plan_and_the_device() {
    let tuned = Net::<Tuned, Storage>::load(&Storage).unwrap().runner_mut().1.clone();
    assert!(tuned.tf32 && tuned.deterministic);
    assert_eq!(tuned.reserve, Tuned::BUDGET[Line::Reserve]);
    assert!(tuned.reserve > 0);
    let untuned = Net::<Untuned, Storage>::load(&Storage).unwrap().runner_mut().1.clone();
    assert!(!untuned.tf32 && !untuned.deterministic);
    // The bytes of the largest workspace of a convolution (100 at most, or all that is of use: input and output in f32) and of
    // a product (4 MiB, or 32 MiB where a card has compute capability 9.0).
    let largest = |job: &Job, role| {
        let placed = job.train.as_ref().unwrap();
        let of_role = placed.program.tensors.iter().zip(&placed.bytes).filter(|(tensor, _)| tensor.role == role);
        of_role.map(|(_, bytes)| *bytes).max().unwrap()
    };
    assert_eq!(largest(&tuned, Role::ConvolutionWorkspace), 100);
    assert_eq!(largest(&untuned, Role::ConvolutionWorkspace), 16 * (3 + 4) * 64 * 64 * 4);
    assert_eq!(largest(&tuned, Role::ProductWorkspace), 4 << 20);
    assert_eq!(largest(&untuned, Role::ProductWorkspace), 16 * (4 * 64 * 64 * 2048 / 256) * 4);
    assert_eq!(Tuned::BUDGET.workspace, 4 << 20);
}

#[test]
fn tensors_know_their_size() {
    let error = <Small as Network>::Input::from_vec(vec![0.0; 7]).unwrap_err();
    assert_eq!(error.to_string(), "a tensor of shape [8, 1, 6, 6] has 288 elements, but 7 were given");
}

#[test]
fn reports_have_the_keys() {
    let json: serde_json::Value = serde_json::from_str(&gpumem::report::json::<Small>()).unwrap();
    assert_eq!(json["name"], "Small");
    assert_eq!(json["parameters"], 36 + 8 + 64 * 4 + 4);
    assert_eq!(json["flops_forward"], 2 * (36 * 16 + 64 * 4));
    let layers = json["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 6);
    let expected = serde_json::json!({
        "index": 1, "path": "batch_norm2d", "kind": "BatchNorm2d", "output_shape": [4, 4, 4], "parameters": 8,
        "kept_bytes": 8 * 64 * 4 + 2 * 4 * 4,
    });
    assert_eq!(layers[1], expected);
    for part in ["train", "infer"] {
        let budget = &json[part];
        let get = |key: &str| budget[key].as_u64().unwrap_or_else(|| panic!("{part} has no {key}"));
        assert_eq!(get("batch"), 8);
        assert_eq!(get("total"), get("arena") + get("reserve"));
        assert_eq!(get("arena"), get("lower_bound"));
        let lines = ["weights", "master", "gradients", "optimizer", "buffers", "batch_io", "activations"];
        let sum: u64 = lines.iter().map(|line| get(line)).sum();
        assert!((sum..sum + 256 * 32).contains(&get("arena")), "{part}: the lines add up to the arena but for padding");
    }
    assert_eq!(json["train"]["optimizer"], 2 * json["train"]["weights"].as_u64().unwrap());
    let cards = json["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 142);
    assert!(cards.iter().all(|card| card["fits"] == true && card["max_batch"].as_u64().unwrap() > 1_000_000));
}

#[test]
fn the_table_as_text() {
    let table = gpumem::report::table::<Small>();
    assert!(table.starts_with("Small: training, batch 8, F32\n"), "{table}");
    assert!(table.contains("packed            100.0 %"), "{table}");
}

/// Training with one batch, serving with another: from one declaration.
#[test]
fn inference_runs_alone_at_its_own_batch() {
    let (mut trained, mut serving) = (Both::on(&Cpu::new()).unwrap(), Both::infer_on(&Cpu::new()).unwrap());
    for _ in 0..5 {
        trained.train_step(&Tensor::from_fn(|index| index as f32 / 7.0), &Tensor::zeros()).unwrap();
    }
    serving.copy_from(&mut trained).unwrap();
    let inputs = Tensor::<f32, (D<4>, D<3>)>::from_fn(|index| (index as f32).sin());
    let expected = trained.forward(&inputs).unwrap();
    for (sample, expected) in inputs.samples().zip(expected.samples()) {
        let (one, _) = Tensor::<f32, (D<1>, D<3>)>::from_samples([sample]).unwrap();
        assert_eq!(serving.forward(&one).unwrap().as_slice(), expected);
    }
    assert_eq!(serving.tensors().count(), 2, "no optimizer state is there");
    let error = serving.train_again().unwrap_err().to_string();
    assert_eq!(error, "Both: the network has no `const TRAIN`, so it makes no steps");
    let error = serving.copy_from(&mut Frozen::on(&Cpu::new()).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("`linear.weight` has the shape [2, 3] here and [5, 4] in the other network"), "{error}");
    // A transposed weight has as many elements, and its bias would do: nothing is taken.
    let before = serving.get("linear.bias").unwrap();
    let error = serving.copy_from(&mut Turned::on(&Cpu::new()).unwrap()).unwrap_err();
    let expected = gpumem::Error::Shape { name: "linear.weight".into(), expected: vec![2, 3], found: vec![3, 2] };
    assert_eq!((error, serving.get("linear.bias").unwrap()), (expected, before));
}
