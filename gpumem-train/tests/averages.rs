//! Evaluations of a network that keeps moving averages of its parameters.

mod common;

use common::{points, state};
use gpumem::Cpu;
use gpumem::prelude::*;
use gpumem_data::{Loader, LoaderOf};
use gpumem_train::Trainer;
use gpumem_train::metrics::Accuracy;

network! {
    /// As `Points`, with averages.
    pub struct Averaging;

    const TRAIN: Train = Train {
        batch: 8, optimizer: Adam { lr: 0.02 }, loss: CrossEntropy { ignore_index: -100 }, seed: 3, ema: 0.95,
    };

    fn forward(point: Features<2>) -> Logits<3> {
        [Linear(16), BatchNorm1d, Relu, Linear(3)]
    }
}

#[test]
fn the_averages_are_evaluated() {
    let mut net = Averaging::on(&Cpu::new()).unwrap();
    let mut data = LoaderOf::<Averaging>::new(points(64, 1)).workers(1);
    let report = Trainer::new(&mut net)
        .epochs(2)
        .validate(points(24, 2))
        .metrics(Accuracy::new())
        .quiet()
        .run(&mut data)
        .unwrap();
    let last = report.last.unwrap();
    let before = state(&mut net);
    let mut validation: Loader<_, _> = LoaderOf::<Averaging>::new(points(24, 2)).workers(1);
    let mut losses = [0.0; 2];
    for batch in validation.epoch().unwrap() {
        let batch = batch.unwrap();
        losses[0] += f64::from(net.averaged(|net| net.eval_loss(&batch.input, &batch.target)).unwrap()) / 3.0;
        losses[1] += f64::from(net.eval_loss(&batch.input, &batch.target).unwrap()) / 3.0;
    }
    assert!((last.get("val_loss").unwrap() - losses[0]).abs() < 1e-6, "{last:?} {losses:?}");
    assert!((losses[0] - losses[1]).abs() > 1e-4, "{losses:?}");
    assert!(last.get("val_accuracy").is_some());
    assert_eq!(state(&mut net), before);
}
