//! Scratch.
#![allow(missing_docs, long_running_const_eval)]
use gpumem::{Checkpoint, Line, Network, Precision};
use gpumem_core::lower::{Blueprint, Setting, tables};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::train::optim::{AdamW, Optimizer};

const ADAMW: Optimizer = Optimizer::AdamW(AdamW { ..AdamW::DEFAULT });

fn arena<N: Network>(checkpoint: Checkpoint) -> [u64; 2] {
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    let steps = blueprint.training.as_mut().unwrap();
    (steps.checkpoint, steps.moments) = (checkpoint, ADAMW.moments());
    let setting = Setting::new(32, Precision::F32, Workspaces { product: 0, convolution: 0 });
    let program = &blueprint.trainings(&setting).unwrap()[0];
    let tables = tables(program).leak().with_workspaces(setting.workspaces);
    let budget = budget_at(&tables, setting.batch, setting.precision).unwrap();
    [budget[Line::Arena], budget[Line::Activations]]
}

fn line<N: Network>(torch: f64) {
    for checkpoint in [Checkpoint::None, Checkpoint::Norms, Checkpoint::Cheap] {
        let [arena, activations] = arena::<N>(checkpoint).map(|bytes| bytes as f64 / 1048576.0);
        println!(
            "{} {checkpoint:?}: arena {arena:.0} activations {activations:.0} of {torch}: {:.3}",
            N::NAME,
            arena / torch
        );
    }
}

#[test]
fn lines() {
    line::<gpumem_zoo::vit::VitB16<1>>(4886.2);
    line::<gpumem_zoo::convnext::ConvNeXtTiny<1>>(3693.2);
    line::<gpumem_zoo::swin::SwinT<1>>(3613.1);
    line::<gpumem_zoo::ddpm::DdpmCifar10<1>>(1.0);
}
