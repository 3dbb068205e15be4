//! Launches of operations that users have declared: kernels of the user's own file, which follows `kernels/common/operation.cuh`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::pieces;
use gpumem_core::error::Error;
use gpumem_core::operation::CudaFile;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Declared;
use gpumem_core::shape::Shape;
use std::fmt::Write as _;

/// Returns the source of a layer's kernels: its constants, then the user's file.
fn text(op: &Declared, file: &CudaFile, batch: u64) -> String {
    let mut text = format!("#include \"operation.cuh\"\nstatic constexpr u64 batch = {batch}ull;\n");
    for (name, value) in &op.sizes {
        let _ = writeln!(text, "static constexpr u64 {name} = {value}ull;");
    }
    for (name, value) in &op.numbers {
        let _ = writeln!(text, "static constexpr double {name} = {value:e};");
    }
    let _ = writeln!(text, "#line 1 \"{}\"", file.name.replace(['\\', '"', '\n'], "_"));
    text + file.text
}

fn kernel(context: &Context<'_>, op: &Declared, entry: &'static str, batch: u64) -> Result<Kernel, Error> {
    let functions = context.setting.operations.find(op)?;
    let file = functions.cuda.ok_or_else(|| functions.missing("CUDA", "cuda", "cuda: \"kernels.cu\""))?;
    Ok(context.kernel(file.name, entry).of(text(op, &file, batch)))
}

/// Returns as many threads as the operation requests for a sample, or one for each element.
fn threads(asked: u64, shape: Shape, batch: u64) -> u64 {
    let each = if asked > 0 { asked } else { shape.elements().unwrap_or(u64::MAX) };
    each.saturating_mul(batch)
}

/// Returns the slots numbered from `first` on, one for each shape.
fn slots(shapes: &[Shape], slot: fn(u8) -> Slot, first: u8) -> impl Iterator<Item = Slot> {
    (first..).take(shapes.len()).map(slot)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Declared) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let batch = context.samples(y);
    let mut arguments = vec![Some(x)];
    for slot in slots(&op.parameters, Slot::Input, 1) {
        arguments.push(Some(context.read(slot)?));
    }
    arguments.push(Some(y));
    arguments.extend(slots(&op.saves, Slot::Saved, 0).map(|slot| context.operation.written(slot)));
    if op.workspace[0] > 0 {
        arguments.push(Some(context.written(Slot::Workspace)?));
    }
    let kernel = kernel(context, op, "forward", batch)?;
    Ok(vec![Launch::elementwise(kernel, threads(op.threads[0], op.output, batch), arguments)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Declared) -> Result<Vec<Launch>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let batch = context.samples(dy);
    let mut arguments = vec![Some(dy)];
    let inputs = [Slot::Input(0)].into_iter().chain(slots(&op.parameters, Slot::Input, 1));
    for (slot, _) in inputs.zip(0..).filter(|(_, input)| op.keeps.contains(input)) {
        arguments.push(Some(context.read(slot)?));
    }
    if op.keeps_output {
        arguments.push(Some(context.read(Slot::Output)?));
    }
    for slot in slots(&op.saves, Slot::Saved, 0) {
        arguments.push(Some(context.read(slot)?));
    }
    let gradients = [Slot::InputGradient(0)].into_iter().chain(slots(&op.parameters, Slot::InputGradient, 1));
    let mut launches = Vec::new();
    for slot in gradients {
        let gradient = context.operation.written(slot);
        arguments.push(gradient);
        // A gradient that kernels add to must begin at 0.
        if let Some(gradient) = gradient.filter(|_| context.adds(slot) == 0) {
            let count = context.elements(gradient);
            let kernel = context.kernel("movement.cu", "clear").with("COUNT", format!("{count}ull"));
            let kernel = kernel.with("BATCH", 1).with("ADD", 0);
            launches.push(Launch::elementwise(kernel, pieces(context, count), vec![Some(gradient)]));
        }
    }
    if op.workspace[1] > 0 {
        arguments.push(Some(context.written(Slot::Workspace)?));
    }
    let kernel = kernel(context, op, "backward", batch)?;
    launches.push(Launch::elementwise(kernel, threads(op.threads[1], op.input, batch), arguments));
    Ok(launches)
}
