//! Moving averages of parameters as weights of a file.

use gpumem::Cpu;
use gpumem::prelude::*;
use gpumem_weights::NetWeights;

network! {
    pub struct Averaging;

    const TRAIN: Train = Train { batch: 4, loss: Mse, optimizer: AdamW { lr: 0.1 }, ema: 0.5 };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3, name = "body"), BatchNorm1d(name = "bn"), freeze(Linear(3, name = "frozen")), Linear(2, name = "head")]
    }
}

network! {
    pub struct Plain;

    const TRAIN: Train = Train { batch: 4, loss: Mse };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3, name = "body"), BatchNorm1d(name = "bn"), freeze(Linear(3, name = "frozen")), Linear(2, name = "head")]
    }
}

#[test]
fn averages_are_saved_under_the_names_of_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("averages.safetensors");
    let mut net = Averaging::on(&Cpu::new()).unwrap();
    // Before the first average they are the parameters.
    net.set("head.bias", &[1.0, 2.0]).unwrap();
    net.save_averages(&path).unwrap();
    let mut other = Plain::on(&Cpu::new()).unwrap();
    other.load_weights(&path).unwrap();
    assert_eq!(other.get("head.bias").unwrap(), [1.0, 2.0]);
    for step in 0..4 {
        let x = Tensor::from_fn(move |index| ((index * 7 + step * 3) % 11) as f32 / 5.0);
        net.train_step(&x, &Tensor::from_fn(|index| index as f32)).unwrap();
    }
    net.save_averages(&path).unwrap();
    other.load_weights(&path).unwrap();
    for name in ["body.weight", "body.bias", "bn.weight", "bn.bias", "head.weight", "head.bias"] {
        assert_eq!(other.get(name).unwrap(), net.get(&format!("{name}.average")).unwrap(), "{name}");
        assert_ne!(other.get(name).unwrap(), net.get(name).unwrap(), "{name}");
    }
    for name in ["frozen.weight", "frozen.bias", "bn.running_mean", "bn.running_var"] {
        assert_eq!(other.get(name).unwrap(), net.get(name).unwrap(), "{name}");
    }
    // A file of parameters has no averages, and is loaded without.
    net.save_weights(&path).unwrap();
    other.load_weights(&path).unwrap();
    assert_eq!(other.get("head.weight").unwrap(), net.get("head.weight").unwrap());
}

#[test]
fn a_network_without_averages_saves_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("averages.safetensors");
    let error = Plain::on(&Cpu::new()).unwrap().save_averages(&path).unwrap_err().to_string();
    assert!(error.ends_with("`Plain` keeps no moving averages to save; write `ema: 0.999` in `TRAIN`"), "{error}");
    assert!(!path.exists());
}
