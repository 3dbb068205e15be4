//! Operations that the user declared. Their functions get slices of their tensors.

use crate::DEVICE;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, Target, count};
use gpumem_core::error::Error;
use gpumem_core::operation::{Backward, CpuFunctions, Forward, Numbers};
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Declared;
use gpumem_core::shape::Shape;

/// Returns the elements of a shape in `samples` samples.
fn elements(shape: Shape, samples: u64) -> usize {
    count(&[samples, count(shape.dims()) as u64])
}

fn functions(op: &Declared, operands: &Operands<'_>) -> Result<CpuFunctions, Error> {
    let functions = operands.operations().find(op)?;
    functions.cpu.ok_or_else(|| functions.missing(DEVICE, "cpu", "cpu: path"))
}

fn numbers(op: &Declared) -> Numbers<'_> {
    Numbers { sizes: &op.sizes, fractions: &op.numbers }
}

/// Calls `make` for each shape, with slots that are numbered from `first` on, and collects the results.
fn numbered<T>(
    shapes: &[Shape],
    slot: fn(u8) -> Slot,
    first: u8,
    mut make: impl FnMut(Slot, Shape) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    shapes.iter().zip(first..).map(|(&shape, number)| make(slot(number), shape)).collect()
}

fn elements_of(source: &Option<Source>) -> &[f32] {
    source.as_ref().map_or(&[], Source::get)
}

/// Returns scratch memory of `each` elements for a sample. `None` if that is 0.
fn scratch(operands: &mut Operands<'_>, each: u64) -> Result<Option<Target>, Error> {
    let length = count(&[operands.batch(), each]);
    if each > 0 { operands.target(Slot::Workspace, length).map(Some) } else { Ok(None) }
}

fn room(target: &mut Option<Target>) -> &mut [f32] {
    target.as_mut().map_or(&mut [], Target::get)
}

pub(in crate::kernels) fn forward(op: &Declared, operands: &mut Operands<'_>) -> Bound {
    let (run, batch, op) = (functions(op, operands)?.forward, operands.batch(), op.clone());
    let x = operands.source(Slot::Input(0), elements(op.input, batch))?;
    let parameters = numbered(&op.parameters, Slot::Input, 1, |slot, shape| operands.source(slot, elements(shape, 1)))?;
    let mut y = operands.target(Slot::Output, elements(op.output, batch))?;
    let mut saves =
        numbered(&op.saves, Slot::Saved, 0, |slot, shape| operands.target_if_any(slot, elements(shape, batch)))?;
    let mut workspace = scratch(operands, op.workspace[0])?;
    kernel(move |_| {
        run(&mut Forward {
            batch: count(&[batch]),
            numbers: numbers(&op),
            x: x.get(),
            parameters: parameters.iter().map(Source::get).collect(),
            y: y.get(),
            saves: saves.iter_mut().map(room).collect(),
            workspace: room(&mut workspace),
        });
    })
}

pub(in crate::kernels) fn backward(op: &Declared, operands: &mut Operands<'_>) -> Bound {
    let (run, batch, op) = (functions(op, operands)?.backward, operands.batch(), op.clone());
    let dy = operands.source(Slot::Gradient, elements(op.output, batch))?;
    let keeps = |input: u64| op.keeps.contains(&input);
    let x = operands.source_if(keeps(0), Slot::Input(0), elements(op.input, batch))?;
    let mut number = 0;
    let parameters = numbered(&op.parameters, Slot::Input, 1, |slot, shape| {
        number += 1;
        operands.source_if(keeps(number), slot, elements(shape, 1))
    })?;
    let y = operands.source_if(op.keeps_output, Slot::Output, elements(op.output, batch))?;
    let saves = numbered(&op.saves, Slot::Saved, 0, |slot, shape| operands.source(slot, elements(shape, batch)))?;
    let mut dx = operands.gradient(Slot::InputGradient(0), elements(op.input, batch))?;
    let mut dparameters =
        numbered(&op.parameters, Slot::InputGradient, 1, |slot, shape| operands.gradient(slot, elements(shape, 1)))?;
    let mut workspace = scratch(operands, op.workspace[1])?;
    kernel(move |_| {
        // Gradients that are not added to existing ones begin at 0, because the user's function always adds.
        for gradient in dx.iter_mut().chain(dparameters.iter_mut().flatten()).filter(|gradient| !gradient.accumulate) {
            gradient.target.get().fill(0.0);
        }
        run(&mut Backward {
            batch: count(&[batch]),
            numbers: numbers(&op),
            dy: dy.get(),
            x: elements_of(&x),
            parameters: parameters.iter().map(elements_of).collect(),
            y: elements_of(&y),
            saves: saves.iter().map(Source::get).collect(),
            dx: dx.as_mut().map(|gradient| gradient.target.get()),
            dparameters: dparameters
                .iter_mut()
                .map(|gradient| gradient.as_mut().map(|gradient| gradient.target.get()))
                .collect(),
            workspace: room(&mut workspace),
        });
    })
}
