//! Batches of one sample: layers that normalise over the batch, and losses that compare its samples, refuse them.

use crate::message::Message;

/// Returns the message for a layer with a single value of each channel in a micro-batch. `parts` is the number of micro-batches.
pub const fn single_value<const N: usize>(layer: &str, parts: u64) -> Message<N> {
    let mut text = Message::<N>::new();
    text.text("`").text(layer).text("` normalises over ");
    text.text(if parts > 1 { "a micro-batch of 1 sample" } else { "a batch of 1 sample" });
    text.text(" with a single value of each channel, of which nothing is left; use a batch of at least ");
    text.number(parts.saturating_mul(2));
    if parts > 1 {
        text.text(" or fewer `micro_batches`");
    }
    text
}

/// Fails to compile if each micro-batch is one sample. This layer has a single value of each channel in a sample.
#[track_caller]
pub const fn assert_varies(batch: u64, parts: u64, layer: &str) {
    if batch > 0 && batch == parts {
        panic!("{}", single_value::<512>(layer, parts).as_str())
    }
}

/// Returns the message for a loss that compares samples, and a batch of one.
pub const fn nothing_to_compare<const N: usize>(loss: &str) -> Message<N> {
    let mut text = Message::<N>::new();
    text.text("`").text(loss).text("` compares samples with each other, and there is one; use a batch of at least 2");
    text
}

/// Fails to compile if a batch is one sample: this loss compares samples with each other.
#[track_caller]
pub const fn assert_compares(batch: u64, loss: &str) {
    if batch == 1 {
        panic!("{}", nothing_to_compare::<512>(loss).as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_depends_on_parts() {
        let whole = single_value::<512>("norm", 1);
        let expected = "`norm` normalises over a batch of 1 sample with a single value of each channel, of which nothing is left; \
                        use a batch of at least 2";
        assert_eq!(whole.as_str(), expected);
        let parts = single_value::<512>("norm", 4);
        assert!(parts.as_str().contains("a micro-batch of 1 sample"), "{}", parts.as_str());
        assert!(parts.as_str().ends_with("use a batch of at least 8 or fewer `micro_batches`"), "{}", parts.as_str());
        assert_varies(2, 1, "norm");
        assert_varies(8, 4, "norm");
        let expected = "`Siglip` compares samples with each other, and there is one; use a batch of at least 2";
        assert_eq!(nothing_to_compare::<512>("Siglip").as_str(), expected);
        assert_compares(2, "Siglip");
    }
}
