//! Training steps planned for any card, batch and precision.

use gpumem::cards::Card;
use gpumem::{Network, Precision, network};
use gpumem_core::lower::{self, Blueprint, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Budget, pack_at};
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_cuda::operations::{LaunchContext, order};

/// What can go wrong.
pub type Failure = Box<dyn std::error::Error>;

network! {
    /// Three convolutions and a linear layer on 8x8 images: the network of `examples/digits.rs`.
    pub struct Digits;

    const TRAIN: Train = Train {
        batch: 32,
        optimizer: AdamW { lr: 2e-3, weight_decay: 0.01 },
        loss: CrossEntropy,
    };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> {
        [conv(32), conv(32), MaxPool2d(2), conv(64), Flatten, Dropout(0.3), Linear(10)]
    }

    fn conv(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
    }
}

/// The network's training step for a card, at any batch and precision: planned as the compiler does.
pub fn training<N: Network>(
    card: &Card,
    precision: Option<Precision>,
    batch: Option<u64>,
    libraries: bool,
) -> Result<(Placed, LaunchContext, Budget), Failure> {
    training_with::<N>(card, precision, batch, libraries, |_| {})
}

/// The same of another blueprint than the network's.
pub fn training_with<N: Network>(
    card: &Card,
    precision: Option<Precision>,
    batch: Option<u64>,
    libraries: bool,
    change: impl FnOnce(&mut Blueprint),
) -> Result<(Placed, LaunchContext, Budget), Failure> {
    let train = N::TRAIN.ok_or("the network is not trained")?;
    let (batch, precision) = (batch.unwrap_or(train.batch as u64), precision.unwrap_or(N::PROGRAM.precision));
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).ok_or("the network's blueprint is damaged")?;
    blueprint.order_for(None);
    change(&mut blueprint);
    let workspaces = Workspaces::of(&TargetCards::at(&[*card]), train.conv_workspace);
    let program = blueprint.training_for(&lower::Sizes::new(batch, precision, workspaces));
    let program = program.transpose().ok_or("the network is not trained")?.map_err(|error| error.message)?;
    let tables = tables(&program);
    let tables = &tables.as_tables().with_workspaces(workspaces);
    let (budget, offsets) = pack_at(tables, batch, precision).map_err(|error| error.to_string())?;
    let mut placed = place(&Compiled {
        program: &program.encode(),
        tables,
        offsets: &offsets,
        budget,
        batch,
        precision,
        level: Level::ONLY,
    })?;
    let (major, minor) = card.compute_capability;
    order(&mut [&mut placed], precision, (major.into(), minor.into()));
    let setting = LaunchContext {
        rank: 0,
        batch,
        precision,
        optimizer: train.optimizer,
        capability: (major.into(), minor.into()),
        multiprocessors: card.multiprocessors.unwrap_or(0),
        tf32: train.tf32,
        deterministic: train.deterministic,
        library: libraries,
        cudnn: libraries,
        operations: N::OPERATIONS,
    };
    Ok((placed, setting, budget))
}
