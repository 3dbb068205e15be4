//! The search for the first number of a step that is not finite.

use crate::error::Error;
use crate::network::Trains;
use crate::program::{Operation, Part, Phase, Program, TensorId};
use crate::run::device::{Device, Inspected, Runner};
use crate::run::net::Net;
use crate::run::tensor::Give;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// A tensor with a number that is not finite: see [`Net::first_non_finite`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NonFinite {
    /// The tensor: `stem.conv1 output`, `fc.weight`.
    pub tensor: String,
    /// The path of its layer; empty for the input of the network.
    pub layer: String,
    /// The part of the step that computed it. `None` if it was there before the step.
    pub phase: Option<Phase>,
    /// True for NaN, false for an infinity.
    pub is_nan: bool,
    /// The first tensor with an infinity, if there was one before the first NaN.
    pub infinite: Option<String>,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.is_nan { "NaN" } else { "infinity" };
        let NonFinite { tensor, phase, .. } = self;
        match phase {
            None => write!(f, "`{tensor}` has {number} before the step")?,
            Some(phase) => write!(f, "the first {number} of the step is in `{tensor}`, {}", place(*phase))?,
        }
        if let Some(infinite) = &self.infinite {
            write!(f, "; before it, `{infinite}` has an infinity")?;
        }
        Ok(())
    }
}

/// Returns the part of a step in the words of a sentence.
fn place(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "in the forward pass",
        Phase::Again => "in a forward pass that is recomputed",
        Phase::Loss => "in the loss",
        Phase::Backward => "in the backward pass",
        Phase::Update => "in the update",
    }
}

impl<N: Trains, D: Device> Net<N, D> {
    /// Runs one training step operation by operation. Returns the first tensor with NaN, or with an infinity if there is no NaN. `None` if
    /// all numbers are finite.
    ///
    /// Parameters, running statistics and optimizer state are checked first. An infinity alone may be intended, as in an added mask.
    /// Afterwards the network is as after [`Net::train_step`]; take a [`snapshot`](Net::snapshot) first to be able to go back.
    ///
    /// # Errors
    /// As for [`Net::train_step`], and [`Error::Unsupported`] on a device that cannot run a step operation by operation.
    #[doc(alias = "detect_anomaly")]
    pub fn first_non_finite<'i, 't>(
        &mut self,
        input: impl Give<'i, N::Input>,
        target: impl Give<'t, N::Target>,
    ) -> Result<Option<NonFinite>, Error> {
        let before = self.lasting_non_finite()?;
        let mut found = Inspected::default();
        self.step_with::<N::Input, N::Target>(input.give(), target.give(), &mut |runner, part| {
            let Inspected { nan, infinite } = runner.inspect(part)?;
            found.nan = found.nan.or(nan);
            found.infinite = found.infinite.or(infinite);
            Ok(())
        })?;
        let placed = self.main();
        Ok(before.or_else(|| named(&placed.program, found)))
    }

    /// Returns the first tensor that lasts and has a number that is not finite. `None` if there is none.
    fn lasting_non_finite(&mut self) -> Result<Option<NonFinite>, Error> {
        let mut infinite = None;
        for tensor in self.state_tensors() {
            let mut bytes = alloc::vec![0; tensor.bytes as usize];
            self.read_state(&tensor, &mut bytes)?;
            if !tensor.format.is_float() {
                continue;
            }
            let numbers = tensor.format.decode(&bytes);
            let is_nan = numbers.iter().any(|number| number.is_nan());
            if is_nan || (infinite.is_none() && numbers.iter().any(|number| number.is_infinite())) {
                let layer = tensor.name.rsplit_once('.').map_or("", |(layer, _)| layer).to_string();
                let found = NonFinite { tensor: tensor.name, layer, phase: None, is_nan, infinite: None };
                if is_nan {
                    return Ok(Some(found));
                }
                infinite = Some(found);
            }
        }
        Ok(infinite)
    }
}

/// Returns what was found, with the names of the program. `None` if nothing was found.
fn named(program: &Program, Inspected { nan, infinite }: Inspected) -> Option<NonFinite> {
    let (operation, tensor) = nan.or(infinite)?;
    let is_nan = nan.is_some();
    let earlier = infinite.filter(|&(at, _)| is_nan && at <= operation).map(|(_, tensor)| name(program, tensor));
    let phase = program.operations.get(operation).map(Operation::phase);
    let layer = path(program, program.tensor(tensor).row).to_string();
    Some(NonFinite { tensor: name(program, tensor), layer, phase, is_nan, infinite: earlier })
}

fn path(program: &Program, row: u32) -> &str {
    program.paths.get(row as usize).map_or("", String::as_str)
}

fn name(program: &Program, tensor: TensorId) -> String {
    if program.training && program.results.first() == Some(&tensor) {
        return "loss".to_string();
    }
    let tensor = program.tensor(tensor);
    match (tensor.name.as_str(), path(program, tensor.row)) {
        ("", "") => format!("network{}", Part::describe(tensor.part as u8)),
        ("", path) => format!("{path}{}", Part::describe(tensor.part as u8)),
        (name, _) => name.to_string(),
    }
}
