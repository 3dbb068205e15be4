//! The sizes that a plan will have, if the macro can read them before const evaluation does.

use super::{Programs, Readings};
use crate::settings::cards::{target_cards, with_environment};
use crate::settings::reading::Reading;
use gpumem_core::lower::Sizes;
use gpumem_core::memory::budget::MANY;
use gpumem_core::memory::tables::{Workspaces, samples};
use gpumem_core::{Precision, Train};

/// Samples per pass, precision and scratch limits at which the macro packs a program.
pub(super) type AssumedSizes = (u64, Precision, Workspaces);

/// Assumed sizes for each program of a network.
pub(super) struct Guesses {
    pub(super) training: Vec<AssumedSizes>,
    /// Sizes for the training step with recomputation.
    pub(super) levels: Vec<AssumedSizes>,
    pub(super) inference: Vec<AssumedSizes>,
    /// Sizes for the forward pass that is loaded with the training step, used if it is a program of its own.
    pub(super) evaluation: Vec<AssumedSizes>,
}

/// Batches at which a network is packed if its batch is not a literal.
///
/// A packing for one of them usually serves other batches too, which then need no packing of their own.
const BATCHES: [u64; 6] = [256, 32, 4, 1, 8, 16];

/// The batch at which orders and recomputation are searched if the batch is not a literal. The result is about as good at other batches.
pub(crate) const NOMINAL: u64 = 32;

impl Guesses {
    pub(super) fn new(readings: &Readings<'_>, programs: &Programs) -> Guesses {
        let [training, inference] = [programs.training.as_ref(), Some(&programs.inference)]
            .map(|program| program.map_or(0, |program| program.transients().count()));
        let found = programs.found.map(|[batch, _]| batch);
        let train = |tensors| readings.train().map_or_else(Vec::new, |train| guesses(train, tensors, found));
        let infer = readings.infer.as_ref().map_or_else(Vec::new, |infer| guesses(infer, inference, None));
        let (training, mut inference, mut evaluation) = (train(training), infer, train(inference));
        if programs.evaluation.is_none() {
            inference.append(&mut evaluation);
        }
        if readings.primary().is_none() {
            inference.push(assumed(&Reading::new("INFER"), 1));
        }
        let Sizes { batch, precision, workspaces, .. } = nominal(readings);
        let at_once = samples(found.unwrap_or(batch), readings.train().map_or(1, |train| train.descent.parts()));
        Guesses { training, levels: vec![(at_once, precision, workspaces)], inference, evaluation }
    }
}

/// Returns the sizes at which recomputation is searched, with the whole batch.
pub(super) fn nominal(readings: &Readings<'_>) -> Sizes {
    training_at(readings, NOMINAL)
}

/// Returns the sizes of the smallest batch that a step may have: one sample if the batch is not a literal.
pub(super) fn least(readings: &Readings<'_>) -> Sizes {
    training_at(readings, 1)
}

/// Returns the sizes of the training step, with this batch if its own is not known.
fn training_at(readings: &Readings<'_>, otherwise: u64) -> Sizes {
    match readings.train() {
        Some(train) => sizes(train, train.known_batch.unwrap_or(otherwise).max(1)),
        None => sizes(&Reading::new("TRAIN"), otherwise),
    }
}

/// Returns the sizes of a constant's program at this batch, for the cards that const evaluation will check.
fn sizes(reading: &Reading<'_>, batch: u64) -> Sizes {
    let convolution = reading.conv_workspace.unwrap_or(Train::DEFAULT.conv_workspace);
    with_environment(reading, |environment| {
        Sizes::of(&target_cards(reading, environment), batch, reading.precision, convolution)
    })
}

fn assumed(reading: &Reading<'_>, samples: u64) -> AssumedSizes {
    let Sizes { batch, precision, workspaces, .. } = sizes(reading, samples);
    (batch, precision, workspaces)
}

/// Returns the sizes at which a program with `tensors` tensors is packed. Its batch is the one that was found or is written.
fn guesses(reading: &Reading<'_>, tensors: usize, found: Option<u64>) -> Vec<AssumedSizes> {
    // Packing many tensors takes long, so one batch is enough for them.
    let most = if tensors > 4 * MANY { 1 } else { BATCHES.len() };
    let batches = found.or(reading.known_batch).map_or(BATCHES[..most].to_vec(), |batch| vec![batch]);
    let parts = reading.descent.parts();
    batches.into_iter().map(|batch| assumed(reading, samples(batch, parts))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::cards::{H100_SXM, RTX_3060};
    use gpumem_core::memory::target_cards::TargetCards;
    use std::process::Command;

    /// Cards of the environment replace those of the constant, as they do when const evaluation checks the step.
    #[test]
    fn scratch_limits_are_those_of_all_target_cards() {
        let mut reading = Reading::new("TRAIN");
        reading.cards = vec![RTX_3060];
        let of = |card| Workspaces::of(&TargetCards::at(&[card]), Train::DEFAULT.conv_workspace);
        assert_ne!(of(RTX_3060), of(H100_SXM));
        let is_replaced = std::env::var_os("GPUMEM_CARDS").is_some();
        assert_eq!(sizes(&reading, 1).workspaces, of(if is_replaced { H100_SXM } else { RTX_3060 }));
        if is_replaced {
            return;
        }
        // A process of its own, since the variable would change other tests.
        let test = "expand::assumed_sizes::tests::scratch_limits_are_those_of_all_target_cards";
        let program = std::env::current_exe().unwrap();
        let run = Command::new(program).args(["--exact", test]).env("GPUMEM_CARDS", "h100-sxm").output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
    }
}
