//! Where each tensor of a program lies in the arena.

use crate::budget::{Region, padded};
use crate::device::Placed;
use crate::error::Error;
use crate::network::Compiled;
use crate::program::{Class, Program, Tensor};
use crate::role::Precision;
use alloc::vec;

/// Decodes a program and places its tensors: the persistent ones region by region, the transient ones where the plan
/// says.
///
/// # Errors
/// A program that does not match its plan.
pub fn place(compiled: &Compiled) -> Result<Placed, Error> {
    let damaged = || Error::Damaged("the embedded program does not match its plan");
    let program = Program::decode(compiled.program).ok_or_else(damaged)?;
    let budget = &compiled.budget;
    let mut offsets = vec![0; program.tensors.len()];
    let mut masters = vec![None; program.tensors.len()];
    let mut end = 0u64;
    for region in Region::ALL {
        let start = end;
        for (id, tensor) in program.tensors.iter().enumerate() {
            let Some(bytes) = bytes_in(region, tensor, budget.batch_size, budget.precision) else { continue };
            // A master copy lies beside its parameter's own place, which is the one that operations name.
            if region == Region::Master {
                masters[id] = Some(end);
            } else {
                offsets[id] = end;
            }
            end = end.checked_add(padded(bytes)).ok_or_else(damaged)?;
        }
        if region == Region::Batch && program.training {
            end = end.checked_add(end - start).ok_or_else(damaged)?;
        }
    }
    let mut planned = compiled.offsets.iter();
    for (tensor, offset) in program.tensors.iter().zip(&mut offsets) {
        if tensor.class == Class::Transient {
            *offset = planned.next().and_then(|planned| end.checked_add(*planned)).ok_or_else(damaged)?;
        }
    }
    let matches = planned.next().is_none() && end.checked_add(budget.activations) == Some(budget.arena);
    if !matches {
        return Err(damaged());
    }
    let mut placed = Placed::new(program, offsets, budget.batch_size, budget.precision);
    for (tensor, bytes) in placed.program.tensors.iter().zip(&mut placed.bytes) {
        *bytes = compiled.step.workspaces.cap(tensor.role, *bytes);
    }
    placed.masters = masters;
    Ok(placed)
}

/// Bytes that a tensor has in a region, if it is there. Activations are placed by the plan.
fn bytes_in(region: Region, tensor: &Tensor, batch: u64, precision: Precision) -> Option<u64> {
    let each = match (region, tensor.class) {
        (Region::Weights, Class::Parameter)
        | (Region::Gradients, Class::Gradient)
        | (Region::Optimizer, Class::Moment)
        | (Region::Buffers, Class::Buffer | Class::State)
        | (Region::Batch, Class::Input | Class::Target) => tensor.role.bytes(precision),
        (Region::Master, Class::Parameter) if tensor.role.master_bytes(precision) > 0 => {
            tensor.role.master_bytes(precision)
        }
        _ => return None,
    };
    tensor.elements(batch)?.checked_mul(each)
}
