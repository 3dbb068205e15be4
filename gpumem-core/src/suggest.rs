//! "Did you mean": finds the known name nearest to a misspelt one.

use alloc::string::String;
use alloc::vec::Vec;

/// Returns the name in `known` that `written` probably means, or `None` if none is near enough. A name is near if it differs only in
/// case, begins with `written`, needs edits for at most a third of its length, or has the same stem.
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let target = plain(written);
    let plains: Vec<(String, &'a str)> = known.iter().map(|&name| (plain(name), name)).collect();
    if let Some((_, equal)) = plains.iter().find(|(plain, _)| *plain == target) {
        return Some(equal);
    }
    let begins = |(plain, _): &&(String, &str)| target.len() >= 3 && plain.starts_with(&target);
    if let Some((_, beginning)) = plains.iter().filter(begins).min_by_key(|(_, name)| name.len()) {
        return Some(beginning);
    }
    let near = |(plain, name): &(String, &'a str)| {
        let most = name.len().max(written.len()) / 3;
        // Each edit changes the length by one at most.
        let is_long = plain.chars().count().abs_diff(target.chars().count()) > most;
        let edits = if is_long { usize::MAX } else { distance(&target, plain) };
        (edits <= most).then_some((edits, *name))
    };
    let by_edits = plains.iter().filter_map(near).min_by_key(|(edits, _)| *edits);
    by_edits.map(|(_, name)| name).or_else(|| same_stem(&target, known))
}

/// Returns the names in `known` that begin with `written`, ignoring case and `_`. If one is equal, returns that one alone.
pub fn beginning<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let target = plain(written);
    let found: Vec<&str> = known.into_iter().filter(|name| plain(name).starts_with(&target)).collect();
    match found.iter().find(|name| plain(name) == target) {
        Some(equal) => alloc::vec![*equal],
        None => found,
    }
}

/// Returns the name with the longest prefix in common with `target`: at least four letters and two thirds of the shorter name.
fn same_stem<'a>(target: &str, known: &[&'a str]) -> Option<&'a str> {
    let stem = |name: &&'a str| {
        let plain = plain(name);
        let length = plain.chars().zip(target.chars()).take_while(|(a, b)| a == b).count();
        (length, plain.chars().count().min(target.chars().count()), *name)
    };
    let is_near = |(length, shorter, _): &(usize, usize, &str)| *length >= 4 && 3 * length >= 2 * shorter;
    // Of names with equally long prefixes, the first one wins.
    let longest = known.iter().rev().map(stem).filter(is_near).max_by_key(|(length, ..)| *length);
    longest.map(|(.., name)| name)
}

/// Returns a name in lower case, without `_`.
pub fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', "")
}

/// Returns the Levenshtein distance, in which a swap of neighbours is one edit.
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
    use super::{beginning, nearest};

    #[test]
    fn suggests_only_what_is_near() {
        let known = [
            "ConvTranspose2d",
            "Conv2d",
            "Linear",
            "BatchNorm2d",
            "LayerNorm",
            "Softmax",
            "padding",
            "stride",
            "dilation",
            "kernel_size",
            "in_channels",
            "A10",
            "A100_40GB",
            "A100_PCIE_80GB",
        ];
        for (written, expected) in [
            ("Conv2D", Some("Conv2d")),
            ("conv2d", Some("Conv2d")),
            ("Linaer", Some("Linear")),
            ("Batchnorm", Some("BatchNorm2d")),
            ("pading", Some("padding")),
            ("strides", Some("stride")),
            ("Transformer", None),
            ("x", None),
            ("Conv", Some("Conv2d")),
            ("Convolution", Some("Conv2d")),
            ("stride_", Some("stride")),
            ("dilate", Some("dilation")),
            ("kernel", Some("kernel_size")),
            ("pad", Some("padding")),
            ("LayerScale", None),
            ("Softplus", None),
            ("A100", Some("A100_40GB")),
            ("in", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &known), expected, "{written}");
        }
    }

    #[test]
    fn beginnings_ignore_case_and_underscores() {
        let known = ["A10", "A100_40GB", "A100_80GB", "RTX_3060", "RTX_3060_TI"];
        for (written, expected) in [
            ("A100", &["A100_40GB", "A100_80GB"][..]),
            ("a1", &["A10", "A100_40GB", "A100_80GB"]),
            ("A10_", &["A10"]),
            ("rtx3060", &["RTX_3060"]),
            ("RTX_3060_T", &["RTX_3060_TI"]),
            ("RTX_3070", &[]),
        ] {
            assert_eq!(beginning(written, known), expected, "{written}");
        }
    }
}
