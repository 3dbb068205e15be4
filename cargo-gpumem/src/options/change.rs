//! Settings of a plan that differ from those in the source: `batch=64`.

use crate::text::bytes;
use crate::values::{checkpoint as checkpoint_text, device, precision};
use gpumem_core::Precision;
use gpumem_core::report::Device;
use gpumem_core::suggest::nearest;
use gpumem_core::train::{Checkpoint, Offload, Update};
use std::fmt;

/// One setting with another value: `batch=64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Batch(u64),
    Precision(Precision),
    Card(Device),
    Checkpoint(Checkpoint),
    MicroBatches(u64),
    Offload(Offload),
    Update(Update),
    Chunks(u64),
}

/// The names of settings, as `--against` takes them.
const NAMES: [&str; 8] = ["batch", "precision", "card", "checkpoint", "micro_batches", "offload", "update", "chunks"];

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Batch(samples) => write!(f, "batch={samples}"),
            Change::Precision(precision) => write!(f, "precision={}", precision.name()),
            Change::Card(device) => write!(f, "card={}", spelled(*device)),
            Change::Checkpoint(checkpoint) => write!(f, "checkpoint={checkpoint:?}"),
            Change::MicroBatches(parts) => write!(f, "micro_batches={parts}"),
            Change::Offload(offload) => write!(f, "offload={}", offload.name()),
            Change::Update(update) => write!(f, "update={update:?}"),
            Change::Chunks(count) => write!(f, "chunks={count}"),
        }
    }
}

/// Reads a change: a name, `=`, and a value as in `TRAIN`, in any case.
pub fn change(text: &str) -> Result<Change, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("write a setting and its value, as `batch=64`; there are {}", NAMES.join(", ")));
    };
    let value = value.trim();
    let count = || match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("`{name}` is a number from 1 on")),
    };
    Ok(match name.trim() {
        "batch" => Change::Batch(count()?),
        "micro_batches" => Change::MicroBatches(count()?),
        "chunks" => Change::Chunks(count()?),
        "precision" => Change::Precision(precision(value)?),
        "card" => Change::Card(device(value)?),
        "checkpoint" => Change::Checkpoint(checkpoint(value)?),
        "offload" => {
            let found = Offload::ALL.into_iter().find(|offload| offload.name().eq_ignore_ascii_case(value));
            Change::Offload(found.ok_or_else(|| format!("`offload` is one of {}", Offload::NAMES.join(", ")))?)
        }
        "update" => {
            let all = [Update::Fused, Update::Separate];
            let found = all.into_iter().find(|update| format!("{update:?}").eq_ignore_ascii_case(value));
            Change::Update(found.ok_or("`update` is Fused or Separate")?)
        }
        unknown => {
            return Err(match nearest(unknown, &NAMES) {
                Some(near) => format!("no setting is called `{unknown}`; did you mean `{near}`?"),
                None => format!("no setting is called `{unknown}`; there are {}", NAMES.join(", ")),
            });
        }
    })
}

/// Returns a card or a size as options take it.
fn spelled(device: Device) -> String {
    match device {
        Device::Known(card) => card.slug.to_string(),
        Device::Size(size) => bytes(size).replace(' ', ""),
    }
}

fn checkpoint(text: &str) -> Result<Checkpoint, String> {
    let written = checkpoint_text(text)?;
    Ok(match written.as_str() {
        "None" => Checkpoint::None,
        "Norms" => Checkpoint::Norms,
        "Cheap" => Checkpoint::Cheap,
        "Auto" => Checkpoint::Auto,
        budget => {
            let share = budget.strip_prefix("Budget(").and_then(|rest| rest.strip_suffix(')'));
            let share = share.and_then(|share| share.parse().ok()).filter(|share| *share > 0.0 && *share <= 1.0);
            Checkpoint::Budget(share.ok_or("a `Budget` is a share above 0, up to 1: `Budget(0.5)`")?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_are_shown() {
        for text in [
            "batch=64",
            "precision=Mixed(Bf16)",
            "card=rtx3060",
            "card=11.50GiB",
            "checkpoint=Auto",
            "checkpoint=Budget(0.5)",
            "micro_batches=4",
            "offload=OptimizerState",
            "update=Separate",
            "chunks=8",
        ] {
            assert_eq!(change(text).map(|change| change.to_string()), Ok(text.to_string()));
        }
        assert_eq!(change("checkpoint=auto"), Ok(Change::Checkpoint(Checkpoint::Auto)));
    }

    #[test]
    fn changes_that_cannot_be_read_say_what_to_write() {
        let message = |text: &str| change(text).unwrap_err();
        assert_eq!(message("bach=3"), "no setting is called `bach`; did you mean `batch`?");
        assert!(message("colour=3").starts_with("no setting is called `colour`; there are batch, precision"));
        assert!(message("64").starts_with("write a setting and its value, as `batch=64`"));
        assert_eq!(message("batch=0"), "`batch` is a number from 1 on");
        assert_eq!(message("offload=Weights"), "`offload` is one of None, OptimizerState, Activations, All");
        assert!(message("checkpoint=Budget(2)").contains("`Budget(0.5)`"));
        assert!(message("card=rtx3061").contains("did you mean rtx3060?"));
        assert_eq!(message("update=never"), "`update` is Fused or Separate");
    }
}
