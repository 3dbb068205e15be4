//! The search for the first number of a step that is not finite.

use gpumem::prelude::*;
use gpumem::{Cpu, NonFinite};

network! {
    pub struct Logarithm;

    const TRAIN: Train = Train { batch: 2, loss: Mse, optimizer: Sgd { lr: 0.1 } };

    fn forward(features: Features<3>) -> Features<3> {
        [Linear(3, name = "first"), Log(name = "log"), Linear(3, name = "last")]
    }
}

network! {
    pub struct InParts;

    const TRAIN: Train = Train { batch: 4, micro_batches: 2, loss: Mse, optimizer: AdamW { lr: 0.1 } };

    fn forward(features: Features<3>) -> Features<3> {
        [Linear(3, name = "first"), Sqrt(name = "root")]
    }
}

/// Returns a network whose first layer passes its input on.
fn identity() -> Net<Logarithm, Cpu> {
    let mut net = Logarithm::on(&Cpu::new()).unwrap();
    net.set("first.weight", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
    net.set("first.bias", &[0.0; 3]).unwrap();
    net
}

fn found(net: &mut Net<Logarithm, Cpu>, features: [f32; 6]) -> Option<NonFinite> {
    let features = Tensor::from_vec(features.to_vec()).unwrap();
    net.first_non_finite(&features, &Tensor::zeros()).unwrap()
}

#[test]
fn a_step_of_finite_numbers_has_none() {
    let mut net = identity();
    assert_eq!(found(&mut net, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), None);
    assert_eq!(net.steps().unwrap(), 1, "it is a step as any other");
    assert!(net.loss().unwrap().is_finite());
}

#[test]
fn the_first_nan_is_named_with_its_layer_and_pass() {
    let nan = found(&mut identity(), [1.0, 2.0, -3.0, 4.0, 5.0, 6.0]).unwrap();
    assert_eq!(nan.to_string(), "the first NaN of the step is in `log output`, in the forward pass");
    assert_eq!((nan.layer.as_str(), nan.is_nan), ("log", true));
}

#[test]
fn an_infinity_before_the_first_nan_is_named_too() {
    // log 0 is an infinity; times weights of both signs it is one still, and NaN in a sum of two.
    let mut net = identity();
    net.set("last.weight", &[1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]).unwrap();
    let nan = found(&mut net, [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
    assert_eq!(
        nan.to_string(),
        "the first NaN of the step is in `last output`, in the forward pass; before it, `log output` has an infinity"
    );
    // Without a NaN the infinity is what there is.
    let mut net = identity();
    net.set("last.weight", &[1.0; 9]).unwrap();
    let infinite = net.first_non_finite(&Tensor::from_vec(vec![0.0; 6]).unwrap(), &Tensor::zeros()).unwrap().unwrap();
    assert!(infinite.to_string().contains("`log output`"), "{infinite}");
}

#[test]
fn what_was_not_finite_before_the_step_is_said_so() {
    let mut net = identity();
    net.set("last.bias", &[0.0, f32::NAN, 0.0]).unwrap();
    let nan = found(&mut net, [1.0; 6]).unwrap();
    assert_eq!(nan.to_string(), "`last.bias` has NaN before the step");
    assert_eq!((nan.layer.as_str(), nan.phase), ("last", None));
}

#[test]
fn a_gradient_is_named_as_one_of_the_backward_pass() {
    let mut net = InParts::on(&Cpu::new()).unwrap();
    net.set("first.weight", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
    net.set("first.bias", &[0.0; 3]).unwrap();
    let snapshot = net.snapshot().unwrap();
    // The slope of a root at 0 is infinite: the second part of the batch has a 0.
    let features = Tensor::from_fn(|index| if index == 10 { 0.0 } else { 4.0 });
    let infinite = net.first_non_finite(&features, &Tensor::from_fn(|_| 1.0)).unwrap().unwrap();
    let text = infinite.to_string();
    assert!(text.contains("gradient") && text.contains("in the backward pass"), "{text}");
    assert!(
        text.starts_with("the first infinity of the step") || text.starts_with("the first NaN of the step"),
        "{text}"
    );
    net.restore(&snapshot).unwrap();
    assert_eq!(net.steps().unwrap(), 0);
    assert_eq!(net.snapshot().unwrap(), snapshot);
}

#[test]
fn a_snapshot_of_another_network_is_refused() {
    let snapshot = identity().snapshot().unwrap();
    let mut net = InParts::on(&Cpu::new()).unwrap();
    let before = net.snapshot().unwrap();
    let error = net.restore(&snapshot).unwrap_err().to_string();
    assert!(
        error.contains("the snapshot is of a network with other tensors; restore it to the network it was taken of"),
        "{error}"
    );
    assert_eq!(net.snapshot().unwrap(), before);
}

#[test]
fn tensors_of_the_state_are_read_and_written_by_the_network_they_are_of() {
    let mut net = identity();
    let tensor = net.state_tensors().into_iter().find(|tensor| tensor.name == "first.weight").unwrap();
    let mut bytes = vec![0; tensor.bytes as usize];
    net.read_state(&tensor, &mut bytes).unwrap();
    assert_eq!(bytes[..4], 1.0f32.to_le_bytes());
    let error = net.read_state(&tensor, &mut bytes[..8]).unwrap_err().to_string();
    assert_eq!(error, "`first.weight` in bytes has 36 elements, but 8 were given");
    let mut other = InParts::on(&Cpu::new()).unwrap();
    assert!(other.write_state(&net.state_tensors()[3], &[0; 12]).is_err());
}
