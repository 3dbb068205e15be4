//! Values of options, read from texts.

use gpumem_core::cards::{self, Card, parse_vram};
use gpumem_core::message::Message;
use gpumem_core::report::Device;
use gpumem_core::suggest::{beginning, nearest};
use gpumem_core::train::Shard;
use gpumem_core::{Half, Precision};
use gpumem_language::source::Overrides;

/// The samples in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    Samples(u64),
    /// The most that fit the cards that are asked about.
    Largest,
}

/// The most cards that a message names.
const MOST_NAMED: usize = 8;

/// Reads a card or a size of the command line.
pub fn device(text: &str) -> Result<Device, String> {
    device_of(text, "`cargo gpumem cards`")
}

/// Reads a card or a size. `list` is the text of messages for what lists all cards.
pub fn device_of(text: &str, list: &str) -> Result<Device, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("no card is named: write slugs with commas, or sizes, as in t4,11.5GiB".into());
    }
    if let Some(card) = cards::find(text) {
        return if card.runs() { Ok(Device::Known(card)) } else { Err(too_old(card)) };
    }
    let slugs: Vec<&str> = cards::ALL.iter().filter(|card| card.runs()).map(|card| card.slug).collect();
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        // A number such as `4090` may mean a card.
        let meant: Vec<&str> = slugs.iter().filter(|slug| slug.contains(text)).copied().collect();
        let meant = if meant.is_empty() { String::new() } else { format!("; as a card, {}", there_is(&meant, list)) };
        return parse_vram(text).map(Device::Size).map_err(|error| format!("{error}{meant}"));
    }
    Err(match (beginning(text, slugs.iter().copied()).as_slice(), nearest(text, &slugs)) {
        (begun @ [_, ..], _) => there_is(begun, list),
        ([], Some(near)) => format!("did you mean {near}? {list} lists them"),
        ([], None) => format!("no such card; {list} lists them, and a size such as 11.5GiB will do"),
    })
}

/// Formats card names: `there is t4, l4`, or the first of many.
fn there_is(slugs: &[&str], list: &str) -> String {
    let (named, more) = slugs.split_at(slugs.len().min(MOST_NAMED));
    let named = named.join(", ");
    match more.len() {
        0 => format!("there is {named}"),
        more => format!("there is {named} and {more} more; {list} lists them"),
    }
}

/// Returns the reason why no network can be planned for this card.
pub fn too_old(card: &Card) -> String {
    let mut text = Message::<256>::new();
    card.append_too_old(&mut text);
    text.as_str().into()
}

/// Returns a value of `checkpoint` as it is written in `TRAIN`.
pub fn checkpoint(text: &str) -> Result<String, String> {
    let mut overrides = Overrides::default();
    overrides.set_checkpoint(text)?;
    Ok(overrides.field("checkpoint").unwrap_or_default().to_string())
}

/// Reads a size, which may be 0.
pub fn size(text: &str) -> Result<u64, String> {
    match parse_vram(text) {
        Ok(bytes) => Ok(bytes),
        Err(cards::VramError::Zero) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a number of samples, or `largest`.
pub fn batch(text: &str) -> Result<Batch, String> {
    if text.eq_ignore_ascii_case("largest") {
        return Ok(Batch::Largest);
    }
    match text.parse() {
        Ok(samples) if samples > 0 => Ok(Batch::Samples(samples)),
        _ => Err("write a number of samples from 1 on, or `largest`".into()),
    }
}

/// Reads the tensors of which each rank keeps a shard.
pub fn shard(text: &str) -> Result<Shard, String> {
    let found = Shard::ALL.into_iter().find(|shard| shard.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "write None, Optimizer, Gradients or Parameters".into())
}

/// Other names of precisions: those of PyTorch and of its trainers.
const PRECISIONS: [(&str, Precision); 8] = [
    ("float32", Precision::F32),
    ("fp32", Precision::F32),
    ("bfloat16", Precision::Bf16),
    ("float16", Precision::F16),
    ("fp16", Precision::F16),
    ("bf16mixed", Precision::Mixed(Half::Bf16)),
    ("16mixed", Precision::Mixed(Half::F16)),
    ("f16mixed", Precision::Mixed(Half::F16)),
];

/// Reads a precision: as in `TRAIN`, in any case, or by another name, such as `bf16-mixed`.
pub fn precision(text: &str) -> Result<Precision, String> {
    let plain = |text: &str| text.to_lowercase().replace(['(', ')', '-', '_', ' '], "");
    let wanted = plain(text);
    let own = Precision::ALL.into_iter().find(|precision| plain(precision.name()) == wanted);
    let found = own.or_else(|| PRECISIONS.into_iter().find_map(|(name, it)| (name == wanted).then_some(it)));
    found.ok_or_else(|| {
        let names: Vec<String> = Precision::ALL.iter().map(|it| plain(it.name())).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).chain(PRECISIONS.map(|(name, _)| name)).collect();
        let meant = nearest(&wanted, &all).and_then(|near| precision(near).ok());
        let meant = meant.map(|near| format!("did you mean {}? ", near.name())).unwrap_or_default();
        format!("{meant}write F32, Bf16, F16, Mixed(Bf16) or Mixed(F16)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_named_or_sizes() {
        assert!(matches!(device("RTX_3060"), Ok(Device::Known(card)) if card.slug == "rtx3060"));
        assert!(matches!(device("11.5GiB"), Ok(Device::Size(bytes)) if bytes == 23 << 29));
        assert_eq!(device("rtx3061").err().unwrap(), "did you mean rtx3060? `cargo gpumem cards` lists them");
        let begun = device("rtx-a").err().unwrap();
        assert!(begun.starts_with("there is rtx-a") && begun.contains("rtx-a6000"), "{begun}");
        assert!(device("toaster-oven").err().unwrap().starts_with("no such card"));
        let many = device("r").err().unwrap();
        assert!(many.starts_with("there is rtx") && many.ends_with(" more; `cargo gpumem cards` lists them"), "{many}");
        assert_eq!(many.matches(", ").count(), MOST_NAMED - 1);
    }

    #[test]
    fn no_card_and_no_unit_are_told() {
        for nothing in ["", " "] {
            assert!(device(nothing).err().unwrap().starts_with("no card is named: "));
        }
        let message = |text: &str| device(text).err().unwrap();
        assert_eq!(message("0GiB"), "it is less than one byte: write the memory of the card, as in 11.5GiB");
        let no_unit = "the unit is missing: write B, KiB, MiB, GiB, KB, MB or GB after the number, as in 11.5GiB";
        assert_eq!(message("11.5"), no_unit);
        assert_eq!(message("4090"), format!("{no_unit}; as a card, there is rtx4090-laptop, rtx4090"));
        assert!(
            message("8gigs").starts_with("the unit is unknown: ") && message(".5GiB").contains("begin with a number")
        );
    }

    /// CUDA 12 has nothing for it.
    #[test]
    fn a_card_that_nothing_runs_on_is_refused() {
        let message = device("K80").err().unwrap();
        assert_eq!(
            message,
            "a K80 has compute capability 3.7, and the CUDA backend needs 6.0 or newer: name another card"
        );
        // It is not offered either.
        assert!(!device("k8").err().unwrap().contains("k80"));
    }

    #[test]
    fn precisions_are_read_as_written_and_in_lower_case() {
        for wanted in Precision::ALL {
            assert_eq!(precision(wanted.name()), Ok(wanted));
        }
        assert_eq!(precision("mixed-bf16"), Ok(Precision::Mixed(Half::Bf16)));
        for (name, wanted) in PRECISIONS {
            assert_eq!(precision(name), Ok(wanted));
        }
        assert_eq!(precision("bf16-mixed"), precision("mixed-bf16"));
        let all = "write F32, Bf16, F16, Mixed(Bf16) or Mixed(F16)";
        assert_eq!(precision("bf61"), Err(format!("did you mean Bf16? {all}")));
        assert_eq!(precision("int4"), Err(all.into()));
    }

    #[test]
    fn shards_are_read_in_any_case() {
        for wanted in Shard::ALL {
            assert_eq!(shard(&wanted.name().to_lowercase()), Ok(wanted));
        }
        assert_eq!(shard("weights"), Err("write None, Optimizer, Gradients or Parameters".into()));
    }

    #[test]
    fn a_batch_is_a_number_or_the_largest() {
        assert_eq!(
            ["32", "largest", "Largest"].map(batch),
            [Ok(Batch::Samples(32)), Ok(Batch::Largest), Ok(Batch::Largest)]
        );
        for wrong in ["0", "-1", "1.5", "", "most"] {
            assert!(batch(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_headroom_is_a_size() {
        assert_eq!(size("0B"), Ok(0));
        assert_eq!(size("1.5GiB"), Ok(3 << 29));
        assert!(size("1.5").is_err());
    }
}
