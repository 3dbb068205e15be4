//! Values that are set in a network on a device: states by name, their bounds, numbers of steps, samples of a batch.

use gpumem::optim::Optimizer;
use gpumem::prelude::*;
use gpumem::{Cpu, Error, Kind};

network! {
    pub struct Slow;
    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };
    fn forward(image: Image<1, 4, 4>) -> Logits<3> { [Conv2d(4, 3), BatchNorm2d, Flatten, Linear(3, name = "head")] }
}

network! {
    pub struct Adaptive;
    const TRAIN: Train = Train { batch: 4, optimizer: AdamW { lr: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: 2 };
    fn forward(image: Image<1, 4, 4>) -> Logits<3> { [Conv2d(4, 3), BatchNorm2d, Flatten, Linear(3, name = "head")] }
}

network! {
    /// States that lie in the host's memory, in pieces.
    pub struct Parked;
    const TRAIN: Train = Train { batch: 4, optimizer: AdamW { lr: 0.1 }, loss: Mse, offload: OptimizerState };
    fn forward(x: Features<8>) -> Features<8> { [Linear(8)] }
}

network! {
    pub struct Orthogonal;
    const TRAIN: Train = Train { batch: 4, optimizer: Muon { lr: 0.1 }, loss: Mse };
    fn forward(x: Features<8>) -> Features<8> { [Linear(8, name = "hidden"), Tanh, Linear(8, name = "head")] }
}

network! {
    pub struct Coded;
    const TRAIN: Train = Train { batch: 2, optimizer: AdamW8bit { lr: 0.1 }, loss: Mse };
    fn forward(x: Features<64>) -> Features<64> { [Linear(64)] }
}

network! {
    pub struct Words;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, micro_batches: 2 };
    fn forward(tokens: Tokens<3>) -> Logits<3> { [Embedding(7, 4), Flatten, Linear(3)] }
}

network! {
    pub struct Bare;
    fn forward(x: Features<4>) -> Features<2> { [Linear(2)] }
}

fn states<N: Network>(net: &Net<N, Cpu>) -> Vec<String> {
    let states = net.tensors().filter(|tensor| tensor.kind == Kind::OptimizerState);
    states.map(|tensor| tensor.name.to_string()).collect()
}

#[test]
fn states_are_called_what_they_are() {
    let all = |state: &str| {
        let parameters =
            ["conv2d.weight", "conv2d.bias", "batch_norm2d.weight", "batch_norm2d.bias", "head.weight", "head.bias"];
        parameters.map(|parameter| format!("{parameter}.{state}"))
    };
    assert_eq!(states(&Slow::on(&Cpu::new()).unwrap()), all("momentum_buffer"));
    let mut adaptive = states(&Adaptive::on(&Cpu::new()).unwrap());
    adaptive.sort();
    let mut expected = [all("exp_avg"), all("exp_avg_sq")].concat();
    expected.sort();
    assert_eq!(adaptive, expected);
    let parked = ["linear.weight.exp_avg", "linear.weight.exp_avg_sq", "linear.bias.exp_avg", "linear.bias.exp_avg_sq"];
    assert_eq!(states(&Parked::on(&Cpu::new()).unwrap()), parked);
    let orthogonal = [
        "hidden.weight.momentum_buffer",
        "hidden.bias.exp_avg",
        "hidden.bias.exp_avg_sq",
        "head.weight.exp_avg",
        "head.weight.exp_avg_sq",
        "head.bias.exp_avg",
        "head.bias.exp_avg_sq",
    ];
    assert_eq!(states(&Orthogonal::on(&Cpu::new()).unwrap()), orthogonal);
    let coded = [
        "linear.weight.exp_avg.codes",
        "linear.weight.exp_avg_sq.codes",
        "linear.weight.exp_avg.scale",
        "linear.weight.exp_avg_sq.scale",
        "linear.bias.exp_avg",
        "linear.bias.exp_avg_sq",
    ];
    assert_eq!(states(&Coded::on(&Cpu::new()).unwrap()), coded);
}

/// A loop over all tensors of one network does not fill another optimizer's states.
#[test]
fn states_of_another_optimizer_are_refused_by_name() {
    let (mut slow, mut adaptive) = (Slow::on(&Cpu::new()).unwrap(), Adaptive::on(&Cpu::new()).unwrap());
    for name in states(&adaptive) {
        let values = adaptive.get(&name).unwrap();
        let Err(Error::State { owners, optimizer, kept, .. }) = slow.set(&name, &values) else { panic!("{name}") };
        assert!(owners.contains(&"AdamW") && !owners.contains(&"Sgd"), "{owners:?}");
        assert_eq!((optimizer, kept), ("Sgd", vec!["momentum_buffer".to_string()]));
    }
    let error = adaptive.get("head.weight.momentum_buffer").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`head.weight.momentum_buffer` is a state of `Sgd`, `RmsProp` and `Muon`, but the network is trained by `AdamW`, which keeps \
         `exp_avg` and `exp_avg_sq` of `head.weight`; write the optimizer that the state is of in `TRAIN`, or set parameters and \
         statistics only"
    );
    // Codes are no numbers, and a network that is not trained has no optimizer.
    let codes = adaptive.set("head.weight.exp_avg.codes", &[0.0; 48]).unwrap_err();
    assert!(matches!(codes, Error::State { .. }), "{codes}");
    let error = Adaptive::infer_on(&Cpu::new()).unwrap().get("head.weight.exp_avg").unwrap_err();
    assert!(matches!(error, Error::Name { .. }), "{error}");
    let error = adaptive.get("head.weight.moment0").unwrap_err();
    assert!(matches!(error, Error::Name { .. }), "{error}");
}

#[test]
fn values_that_a_tensor_cannot_have_are_refused() {
    let mut net = Adaptive::on(&Cpu::new()).unwrap();
    let before = net.get("batch_norm2d.running_var").unwrap();
    let error = net.set("batch_norm2d.running_var", &[1.0, 2.0, -0.5, 1.0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`batch_norm2d.running_var` cannot be -0.5 at position 2: a variance is 0 or more; set what `get` gave for this name"
    );
    assert_eq!(net.get("batch_norm2d.running_var").unwrap(), before);
    net.set("batch_norm2d.running_var", &[0.0, 1e-30, 3.0, 1.0]).unwrap();
    net.set("batch_norm2d.running_mean", &[-1.0; 4]).unwrap();
    net.set("head.bias.exp_avg", &[-1.0; 3]).unwrap();
    let error = net.set("head.bias.exp_avg_sq", &[0.0, 1.0, -1e-9]).unwrap_err();
    assert!(matches!(error, Error::Value { position: 2, value: -1e-9, .. }), "{error}");
    assert_eq!(net.get("head.bias.exp_avg_sq").unwrap(), [0.0; 3]);

    let mut net = Coded::on(&Cpu::new()).unwrap();
    for wrong in [-1.0, 0.5, 256.0, f32::NAN, f32::INFINITY] {
        let mut codes = vec![255.0; 64 * 64];
        codes[7] = wrong;
        let error = net.set("linear.weight.exp_avg.codes", &codes).unwrap_err();
        let expected = format!(
            "`linear.weight.exp_avg.codes` cannot be {wrong} at position 7: codes are whole numbers from 0 to 255; set what `get` gave for \
             this name"
        );
        assert_eq!(error.to_string(), expected);
    }
    net.set("linear.weight.exp_avg.codes", &[255.0; 64 * 64]).unwrap();
    assert!(net.set("linear.weight.exp_avg_sq.scale", &[-1.0; 16]).is_err());
}

#[test]
fn numbers_of_steps_do_not_begin_anew() {
    let mut net = Slow::on(&Cpu::new()).unwrap();
    net.set_steps(5).unwrap();
    for steps in [1 << 53, u64::MAX] {
        let expected = format!(
            "Slow: {steps} training steps cannot have been made: their number is below 9007199254740992; the file that says so is damaged, \
             or the number was read at another place than it was written"
        );
        assert_eq!(net.set_steps(steps).unwrap_err().to_string(), expected);
        assert_eq!(net.steps().unwrap(), 5);
    }
    net.set_steps((1 << 53) - 1).unwrap();
    net.train_step(&Tensor::zeros(), &Tensor::zeros()).unwrap();
    assert_eq!(net.steps().unwrap(), 1 << 53);
}

#[test]
fn a_network_that_says_no_batch_is_not_loaded() {
    let expected = "Bare: it has neither `const TRAIN` nor `const INFER`, so nothing says at which batch it runs; add `const INFER: \
                    Infer = Infer { batch: 1 };` to use it, or `const TRAIN` to train it";
    assert_eq!(Bare::on(&Cpu::new()).unwrap_err().to_string(), expected);
}

/// PyTorch's numbers for what is left out and for what is missing: both are negative.
#[test]
fn negative_labels_and_tokens_are_printed_with_their_sign() {
    let mut net = Slow::on(&Cpu::new()).unwrap();
    let labels = Tensor::from([0, 1, (-100_i32).cast_unsigned(), 2]);
    let expected = "label -100 at position 2 is negative: it must be from 0 to 2; `ignore_index: -100` in the loss leaves out what is \
                    labelled so";
    assert_eq!(net.train_step(&Tensor::zeros(), &labels).unwrap_err().to_string(), expected);
    assert_eq!(net.eval_loss(&Tensor::zeros(), &labels).unwrap_err().to_string(), expected);
    let mut net = Words::on(&Cpu::new()).unwrap();
    let tokens = Tensor::from([[0, 1, 2], [3, 4, u32::MAX]]);
    let expected = "token -1 at position 5 is negative: it must be from 0 to 6; a table has a row for each token, also for the one that \
                    fills up: give that a number of its own";
    assert_eq!(net.train_step(&tokens, &Tensor::zeros()).unwrap_err().to_string(), expected);
    assert_eq!(net.forward(&tokens).unwrap_err().to_string(), expected);
}

#[test]
fn too_many_samples_are_said_to_be_too_many() {
    let samples = vec![[0.5_f32; 16]; 5];
    let error = <Slow as Network>::Input::from_samples(&samples).unwrap_err();
    assert_eq!(error, Error::Samples { batch: 4, found: 5 });
    let expected = "the batch has room for 4 samples, but 5 were given; hand them over in several batches, as `samples.chunks(4)` gives them";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_network_prints_its_summary() {
    let net = Slow::on(&Cpu::new()).unwrap();
    assert_eq!(net.summary(), gpumem::report::table::<Slow>());
    assert!(net.summary().starts_with("Slow: training, batch 4"), "{}", net.summary());
    assert!(matches!(Slow::TRAIN.optimizer, Optimizer::Sgd(_)));
}
