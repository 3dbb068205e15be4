//! The peak of a training step beside PyTorch's: batch 32, f32, SGD with momentum, without anybody's scratch memory.
//!
//! PyTorch's bytes are the largest sum of storages that are alive after any operation: parameters, gradients, momentum, statistics, input,
//! target and activations. Those of torchvision's networks were found by `peaks.py` beside this file with PyTorch 2 on fake tensors. That of
//! the U-Net is the third `training_step` at batch 32 in `tests/truth/models/unet.json`, where the caller holds the output: 0.14 % of the
//! whole. The arena has the input and target twice.
#![allow(missing_docs)]

use gpumem::{Checkpoint, Line, Network, Precision};
use gpumem_core::lower::{Blueprint, Setting, tables};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::resnet::{ResNet50, ResNet152};
use gpumem_zoo::unet::UNet;

const MOMENTUM: Optimizer = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT });

fn arena<N: Network>(checkpoint: Checkpoint) -> u64 {
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    let steps = blueprint.training.as_mut().unwrap();
    (steps.checkpoint, steps.moments) = (checkpoint, MOMENTUM.moments());
    let setting = Setting::new(32, Precision::F32, Workspaces { product: 0, convolution: 0 });
    let program = blueprint.trainings(&setting).unwrap().remove(0);
    let tables = tables(&program).leak().with_workspaces(setting.workspaces);
    budget_at(&tables, setting.batch, setting.precision).unwrap()[Line::Arena]
}

/// The step takes at most so many thousandths of PyTorch's bytes, and so many with `checkpoint: Cheap`.
fn check<N: Network>(torch: u64, [plain, cheap]: [u64; 2]) {
    for (checkpoint, most) in [(Checkpoint::None, plain), (Checkpoint::Cheap, cheap)] {
        let share = (1000 * arena::<N>(checkpoint)).div_ceil(torch);
        assert!(share <= most && share + 5 > most, "{}, {checkpoint:?}: {share} thousandths", N::NAME);
    }
}

#[test]
fn steps_take_less_than_pytorchs() {
    check::<ResNet50<32>>(2_987_610_000, [951, 619]);
    check::<ResNet152<32>>(6_194_156_224, [976, 570]);
    check::<UNet<32>>(48_600_332_976, [839, 602]);
    check::<DenseNet121<32>>(4_252_878_256, [679, 329]);
}
