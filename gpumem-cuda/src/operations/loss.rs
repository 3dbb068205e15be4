//! Losses and the gradient that they start from: `kernels/loss.cu`.

use super::context::Context;
use crate::calls::Launch;
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot, TensorId};

/// Threads of the blocks that add up.
const THREADS: u32 = 256;

pub(super) fn launches(context: &Context<'_>, criterion: &Criterion) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let target = match criterion.kind {
        Measure::Mean => None,
        Measure::CrossEntropy | Measure::Mse | Measure::Dot => Some(context.read(Slot::Target)?),
    };
    let (loss, terms) = (context.written(Slot::Loss)?, context.written(Slot::Workspace)?);
    let gradient = context.operation.written(Slot::InputGradient(0));
    let state = context.placed.program.of_class(gpumem_core::program::Class::State).next();
    let (count, rows) = (context.elements(x), context.elements(terms));
    let (entry, divisor) = match criterion.kind {
        Measure::CrossEntropy => ("cross_entropy_rows", rows),
        Measure::Mse => ("mse_partial", count),
        Measure::Mean => ("mean_partial", count),
        Measure::Dot => ("dot_partial", 1),
    };
    let add = context.adds(Slot::InputGradient(0));
    if add == 1 && gradient == Some(x) {
        return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
    }
    let pitch = |id: Option<TensorId>| id.and_then(|id| context.pitch(id)).unwrap_or(criterion.classes);
    let sum = u8::from(context.operation.read(Slot::Loss).is_some());
    let kernel = |entry| {
        let kernel = context.kernel("loss.cu", entry).with("ROWS", format!("{rows}ull"));
        let kernel = kernel
            .with("CLASSES", format!("{}ull", criterion.classes))
            .with("INNER", format!("{}ull", criterion.inner));
        let kernel = kernel.with("PITCH", format!("{}ull", pitch(Some(x))));
        let kernel = kernel.with("GRADIENT_PITCH", format!("{}ull", pitch(gradient)));
        let kernel = kernel.with("COUNT", format!("{count}ull")).with("GRADIENT", u8::from(gradient.is_some()));
        let kernel = kernel.with("ADD", add).with("DIVISOR", format!("{divisor}ull"));
        kernel.with_float("WEIGHT", criterion.weight).with("SUM", sum)
    };
    let launch = |entry, blocks, arguments| Launch {
        kernel: kernel(entry),
        grid: [blocks, 1, 1],
        block: [THREADS, 1, 1],
        arguments,
    };
    let blocks =
        u32::try_from(rows).map_err(|_| Error::Damaged("the loss has more positions than a grid has blocks"))?;
    Ok(vec![
        launch(entry, blocks, vec![Some(x), target, state, gradient, Some(terms)]),
        launch("loss_total", 1, vec![Some(terms), Some(loss)]),
    ])
}
