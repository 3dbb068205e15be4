//! The ways to save memory, each as a change of a network's blueprint.

use super::Failure;
use super::networks::Case;
use gpumem::{Checkpoint, Half, Line, Precision};
use gpumem_core::lower::{Blueprint, Fitted, Sizes, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Budget, pack_at};
use gpumem_core::memory::levels::{Level, budget_room};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::Program;
use gpumem_core::train::optim::{Adafactor, AdamW, AdamW8bit, Optimizer, Sgd};

/// What is written to save memory.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    InPlace,
    Halves,
    Recomputed(Checkpoint),
    Leanest,
    Parts(u64),
    Optimizer(Optimizer),
    Smaller,
    Frozen,
}

/// A line of the table.
pub struct Way {
    pub name: &'static str,
    kind: Kind,
}

/// The lines of the table. The first is what the others are compared with.
pub const WAYS: [Way; 13] = [
    Way { name: "plain: `AdamW`, f32", kind: Kind::Plain },
    Way { name: "`checkpoint: None`", kind: Kind::Recomputed(Checkpoint::None) },
    Way { name: "in place: `Relu(inplace)`, `InplaceAbn`", kind: Kind::InPlace },
    Way { name: "`precision: Mixed(Bf16)`", kind: Kind::Halves },
    Way { name: "`checkpoint: Cheap`", kind: Kind::Recomputed(Checkpoint::Cheap) },
    Way { name: "`checkpoint: Budget(0.6)`", kind: Kind::Recomputed(Checkpoint::Budget(0.6)) },
    Way { name: "leanest level", kind: Kind::Leanest },
    Way { name: "`micro_batches: 4`", kind: Kind::Parts(4) },
    Way { name: "`optimizer: AdamW8bit`", kind: Kind::Optimizer(Optimizer::AdamW8bit(AdamW8bit::DEFAULT)) },
    Way { name: "`optimizer: Adafactor`", kind: Kind::Optimizer(Optimizer::Adafactor(Adafactor::DEFAULT)) },
    Way { name: "`optimizer: Sgd`, no momentum", kind: Kind::Optimizer(Optimizer::Sgd(Sgd::DEFAULT)) },
    Way { name: "half the input", kind: Kind::Smaller },
    Way { name: "`freeze(..)`", kind: Kind::Frozen },
];

/// A step that is planned.
pub struct Step {
    /// The program with its plan.
    pub compiled: Compiled<'static>,
    /// What updates its parameters.
    pub optimizer: Optimizer,
    /// Time beyond that of a step which keeps everything in thousandths of it, by the model of recomputation.
    pub more: Option<u64>,
}

impl Step {
    /// MiB of its arena.
    pub fn mib(&self) -> u64 {
        self.compiled.budget[Line::Arena] >> 20
    }

    /// Whether the CPU computes it as it is planned: it has f32 only.
    pub fn runs(&self) -> bool {
        self.compiled.precision == Precision::F32
    }
}

/// The step of a network in one of the ways, if it has it.
pub fn step(case: &Case, way: &Way) -> Result<Option<Step>, Failure> {
    let bytes = match way.kind {
        Kind::InPlace => case.in_place,
        Kind::Smaller => Some(case.smaller),
        Kind::Frozen => Some(case.frozen),
        _ => Some(case.plain),
    };
    let Some(bytes) = bytes else { return Ok(None) };
    let mut blueprint = Blueprint::decode(bytes).ok_or("a blueprint is damaged")?;
    blueprint.order_for(None);
    let steps = blueprint.training.as_mut().ok_or("a network is not trained")?;
    let optimizer = match way.kind {
        Kind::Optimizer(optimizer) => optimizer.with_lr(1e-4),
        _ => Optimizer::AdamW(AdamW { lr: 1e-4, ..AdamW::DEFAULT }),
    };
    steps.moments = optimizer.moments();
    match way.kind {
        Kind::Recomputed(checkpoint) => steps.checkpoint = checkpoint,
        Kind::Leanest => steps.checkpoint = Checkpoint::Auto,
        Kind::Parts(parts) => steps.descent.micro_batches = parts,
        _ => {}
    }
    let precision = if matches!(way.kind, Kind::Halves) { Precision::Mixed(Half::Bf16) } else { Precision::F32 };
    let setting = Sizes::new(case.batch, precision, Workspaces { product: 32 << 20, convolution: 256 << 20 });
    let (program, more) = match way.kind {
        Kind::Recomputed(Checkpoint::Budget(share)) => {
            leaner(&blueprint, &setting, |plain| budget_room(Checkpoint::Budget(share), plain).unwrap_or(0))?
        }
        Kind::Leanest => leaner(&blueprint, &setting, |_| 0)?,
        _ => (blueprint.trainings(&setting).map_err(said)?.into_iter().next().ok_or("nothing is trained")?, None),
    };
    Ok(Some(Step { compiled: compiled(&program, &setting)?, optimizer, more }))
}

/// The level that the compiler takes for this room, and what it costs.
fn leaner(
    blueprint: &Blueprint,
    setting: &Sizes,
    room: impl FnOnce(&Budget) -> u64,
) -> Result<(Program, Option<u64>), Failure> {
    let Fitted { plain, leaner, .. } = blueprint.fitted(setting, room).map_err(said)?.ok_or("nothing is trained")?;
    Ok(leaner.map_or((plain, None), |leaner| (leaner.program, leaner.more.map(|[_, time]| time))))
}

/// Plans a program as the compiler does.
fn compiled(program: &Program, setting: &Sizes) -> Result<Compiled<'static>, Failure> {
    // Until the process ends, as those of a network are.
    let tables = Box::leak(Box::new(tables(program)));
    let tables = &*Box::leak(Box::new(tables.as_tables().with_workspaces(setting.workspaces)));
    let (budget, offsets) = pack_at(tables, setting.batch, setting.precision).map_err(|error| error.to_string())?;
    Ok(Compiled {
        program: program.encode().leak(),
        tables,
        offsets: offsets.leak(),
        budget,
        batch: setting.batch,
        precision: setting.precision,
        level: Level::ONLY,
    })
}

fn said(error: gpumem_core::lower::LowerError) -> Failure {
    error.message.into()
}
