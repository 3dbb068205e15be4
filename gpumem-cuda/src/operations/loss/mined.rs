//! Launches of losses that mine vectors in a batch: `kernels/loss/mined.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::loss::{gradient, kernel};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Slot, TensorId};

/// Returns the launches of a mined loss: a block for each anchor, the count of anchors that have a positive and a negative, and a block for the
/// gradient of each vector.
pub(super) fn launches(
    context: &Context<'_>,
    criterion: &Criterion,
    divisor: Option<TensorId>,
) -> Result<Vec<Launch>, Error> {
    let (x, ids) = (context.read(Slot::Input(0))?, context.read(Slot::Target)?);
    let (found, terms) = (context.written(criterion.own_saved())?, context.written(Slot::Workspace)?);
    let (dx, add) = gradient(context, 0)?;
    if dx == Some(x) {
        return Err(Error::Damaged("the gradient of a loss of a batch overwrites what others are compared with"));
    }
    let state = context.placed.program.state();
    let too_large = || Error::Unsupported { device: "CUDA", what: "a loss of a batch of 2^31 samples or more".into() };
    let samples = i32::try_from(context.setting.batch).map_err(|_| too_large())?.cast_unsigned();
    let launch = |entry, grid, arguments| {
        let kernel = kernel(context, criterion, "mined.cu", entry)
            .with("SAMPLES", samples)
            .with("LENGTH", format!("{}ull", criterion.classes))
            .with_float("MARGIN", criterion.number())
            .with("MEAN", u8::from(divisor.is_some()))
            .with("ADD", add);
        Launch { kernel, grid: [grid, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }
    };
    let mut launches = vec![launch("mined_terms", samples, vec![Some(x), Some(ids), Some(found), Some(terms)])];
    launches.extend(divisor.map(|divisor| launch("mined_anchors", 1, vec![Some(terms), Some(divisor)])));
    if dx.is_some() {
        launches.push(launch("mined_gradients", samples, vec![Some(x), Some(found), state, divisor, dx]));
    }
    Ok(launches)
}
