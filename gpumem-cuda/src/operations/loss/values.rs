//! Launches of losses of several values, each of which has a kernel of its name in `kernels/loss`.

use crate::calls::{Launch, SOURCES};
use crate::operations::context::Context;
use crate::operations::loss::{THREADS, gradient, kernel, threads, weights};
use gpumem_core::error::Error;
use gpumem_core::program::loss::Over;
use gpumem_core::program::{Criterion, Measure, Slot};

/// The constants of the values' gradients, in the order of the values.
const SIDES: [[&str; 2]; 3] = [["GRADIENT_X", "ADD_X"], ["GRADIENT_Y", "ADD_Y"], ["GRADIENT_Z", "ADD_Z"]];

/// Returns the file of a loss's kernel, and the entry point. Both are named like the loss: `triplet_margin.cu` has `triplet_margin`.
fn source(measure: Measure) -> Result<(&'static str, &'static str), Error> {
    let mut files = SOURCES.iter().filter_map(|&(file, _)| Some((file, file.strip_suffix(".cu")?)));
    let found = files.find(|(_, entry)| entry.replace('_', "").eq_ignore_ascii_case(measure.name()));
    found.ok_or(Error::Damaged("a loss of several values has no kernel"))
}

/// Returns a launch with a block for each term, or for each partial sum of elements.
///
/// Its arguments are all values, the target if there is one, the state, all gradients, the factors of the terms, and the terms.
pub(super) fn launch(context: &Context<'_>, criterion: &Criterion, blocks: u32) -> Result<Launch, Error> {
    let (file, entry) = source(criterion.kind)?;
    let is_of_elements = criterion.over() == Over::Rankings;
    let (size, length) = match is_of_elements {
        true => ("COUNT", context.count(context.read(Slot::Input(0))?)),
        false => ("LENGTH", criterion.classes),
    };
    let mut kernel = kernel(context, criterion, file, entry)
        .with(size, format!("{length}ull"))
        .with_float("NUMBER", criterion.number())
        .with_float("SECOND", criterion.second())
        .with("SWAP", u8::from(criterion.options.swap));
    let mut gradients = Vec::new();
    let mut arguments = Vec::new();
    for (number, [gradient_of, add]) in (0..criterion.over().values() as u8).zip(SIDES) {
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
    let block = if is_of_elements { THREADS } else { threads(length, THREADS.into()) };
    Ok(Launch { kernel, grid: [blocks, 1, 1], block: [block, 1, 1], arguments, numbers: Vec::new() })
}
