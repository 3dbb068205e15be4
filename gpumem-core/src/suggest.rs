//! "Did you mean": the known name nearest to what was written.

use alloc::vec::Vec;

/// The name in `known` that differs least from `written`, if it is near enough to be what was meant: equal but for
/// case, or within a third of its length in edits.
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "");
    let target = plain(written);
    known
        .iter()
        .map(|name| (distance(&target, &plain(name)), *name))
        .filter(|(edits, name)| *edits <= name.len().max(written.len()) / 3)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Levenshtein distance, with a swap of neighbours as one edit.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = alloc::vec![i];
        for j in 1..=to.len() {
            let replaced = above[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut above, row);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["Conv2d", "Linear", "BatchNorm2d", "padding", "stride"];
        for (written, expected) in [
            ("Conv2D", Some("Conv2d")),
            ("conv2d", Some("Conv2d")),
            ("Linaer", Some("Linear")),
            ("Batchnorm", Some("BatchNorm2d")),
            ("pading", Some("padding")),
            ("strides", Some("stride")),
            ("Transformer", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, &known), expected, "{written}");
        }
    }
}
