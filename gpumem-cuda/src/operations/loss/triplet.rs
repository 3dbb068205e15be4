//! Launches of losses that compare several vectors, or mine vectors in a batch: `kernels/loss/cosine_embedding.cu`, `kernels/loss/triplet.cu` and
//! `kernels/loss/mined.cu`.

use crate::calls::{Argument, Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::loss::{gradient, kernel, threads, weights};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Slot, TensorId};

/// The constants of the values' gradients, in the order of the values.
const SIDES: [[&str; 2]; 3] = [["GRADIENT_X", "ADD_X"], ["GRADIENT_Y", "ADD_Y"], ["GRADIENT_Z", "ADD_Z"]];

/// Returns the kernel of a loss of `values` values, and its arguments: all values, the target if there is one, the state, and all gradients.
fn of_values(
    context: &Context<'_>,
    criterion: &Criterion,
    (file, entry): (&'static str, &'static str),
    values: u8,
) -> Result<(Kernel, Vec<Option<Argument>>), Error> {
    let mut kernel = kernel(context, criterion, file, entry).with_float("MARGIN", criterion.number());
    let mut gradients = Vec::new();
    let mut arguments = Vec::new();
    for (number, [gradient_of, add]) in (0..values).zip(SIDES) {
        let (tensor, adds) = gradient(context, number)?;
        kernel = kernel.with(gradient_of, u8::from(tensor.is_some())).with(add, adds);
        gradients.push(tensor);
        arguments.push(Some(context.read(Slot::Input(number))?));
    }
    arguments.extend(context.operation.read(Slot::Target).map(Some));
    arguments.push(context.placed.program.state());
    arguments.extend(gradients);
    arguments.extend(weights(context, criterion)?);
    arguments.push(Some(context.written(Slot::Workspace)?));
    Ok((kernel, arguments))
}

fn vectors(criterion: &Criterion, kernel: Kernel) -> (Kernel, [u32; 3]) {
    let kernel = kernel.with("LENGTH", format!("{}ull", criterion.classes));
    (kernel, [threads(criterion.classes, 256), 1, 1])
}

/// Returns a launch with a block for each pair of vectors.
pub(in crate::operations) fn cosine_embedding(
    context: &Context<'_>,
    criterion: &Criterion,
    pairs: u32,
) -> Result<Launch, Error> {
    let of = ("cosine_embedding.cu", "cosine_embedding");
    let (kernel, arguments) = of_values(context, criterion, of, 2)?;
    let (kernel, block) = vectors(criterion, kernel);
    Ok(Launch { kernel, grid: [pairs, 1, 1], block, arguments, numbers: Vec::new() })
}

/// Returns a launch with a block for each triple of vectors.
pub(in crate::operations) fn triplet_margin(
    context: &Context<'_>,
    criterion: &Criterion,
    triples: u32,
) -> Result<Launch, Error> {
    let (kernel, arguments) = of_values(context, criterion, ("triplet.cu", "triplet_margin"), 3)?;
    let kernel = kernel.with_float("DEGREE", criterion.second()).with("SWAP", u8::from(criterion.options.swap));
    let (kernel, block) = vectors(criterion, kernel);
    Ok(Launch { kernel, grid: [triples, 1, 1], block, arguments, numbers: Vec::new() })
}

/// Returns a launch of `blocks` blocks, each of which computes a partial sum.
pub(in crate::operations) fn margin_ranking(
    context: &Context<'_>,
    criterion: &Criterion,
    blocks: u32,
) -> Result<Launch, Error> {
    let (kernel, arguments) = of_values(context, criterion, ("triplet.cu", "margin_ranking"), 2)?;
    let kernel = kernel.with("COUNT", format!("{}ull", context.count(context.read(Slot::Input(0))?)));
    Ok(Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() })
}

/// Returns the launches of a mined loss: a block for each anchor, the count of anchors that have a positive and a negative, and a block for the
/// gradient of each vector.
pub(in crate::operations) fn mined(
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
