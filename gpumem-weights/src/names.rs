//! Patterns over names.

/// Returns the text that each `*` of `pattern` stands for in `name`; `None` if the pattern does not match. A `*` stands for any number of
/// characters, and the first one for as few as possible.
pub(crate) fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let mut texts = pattern.split('*');
    let mut rest = name.strip_prefix(texts.next()?)?;
    let mut found = Vec::new();
    let mut texts = texts.peekable();
    while let Some(text) = texts.next() {
        let at = if texts.peek().is_none() { rest.strip_suffix(text)?.len() } else { rest.find(text)? };
        found.push(&rest[..at]);
        rest = &rest[at + text.len()..];
    }
    rest.is_empty().then_some(found)
}

/// Replaces each `*` by a captured text. Texts without a `*` are left out.
pub(crate) fn filled(pattern: &str, captured: &[&str]) -> String {
    let mut texts = pattern.split('*');
    let mut name = texts.next().unwrap_or_default().to_string();
    for (text, captured) in texts.zip(captured.iter().chain(std::iter::repeat(&""))) {
        name.push_str(captured);
        name.push_str(text);
    }
    name
}

/// True if one of the patterns matches.
pub(crate) fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| captures(pattern, name).is_some())
}

/// Renames by a pattern, or by a prefix if `from` has no `*`. `None` if the rule does not match the name.
pub(crate) fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    if from.contains('*') {
        return Some(filled(to, &captures(from, name)?));
    }
    name.strip_prefix(from).map(|rest| format!("{to}{rest}"))
}

/// Returns the name in `known` that is nearest to `name`: with the most segments in common, or else the fewest edits.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let segments: Vec<&str> = name.split('.').collect();
    let common = |other: &&&str| {
        let others: Vec<&str> = other.split('.').collect();
        let last = segments.iter().rev().zip(others.iter().rev()).take_while(|(a, b)| a == b).count();
        let first = segments.iter().zip(&others).take_while(|(a, b)| a == b).count();
        (last + first, last)
    };
    let best = known.iter().max_by_key(common)?;
    // At least two of three segments of `a.b.weight` must agree, since any two tensors may end in `weight`.
    if segments.len() > 1 && 3 * common(&best).0 >= 2 * segments.len() {
        return Some(best);
    }
    gpumem_core::suggest::nearest(name, &known[..known.len().min(MOST_COMPARED)])
}

/// The most names whose edit distance is computed: each costs the product of both lengths.
const MOST_COMPARED: usize = 200;

#[cfg(test)]
mod tests {
    use super::{captures, filled, nearest, renamed};

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("fc.*", "fc.weight", Some(&["weight"][..])),
            ("fc.*", "fc2.weight", None),
            ("h.*.attn.*.weight", "h.11.attn.c_attn.weight", Some(&["11", "c_attn"])),
            ("*", "", Some(&[""])),
            ("*a", "banana", Some(&["banan"])),
            ("a*a", "a", None),
            ("", "a", None),
            ("a", "a", Some(&[])),
            ("é*é", "éàé", Some(&["à"])),
        ] {
            assert_eq!(captures(pattern, name).as_deref(), expected, "{pattern} {name}");
        }
        assert_eq!(filled("x.*.y.*", &["1", "2"]), "x.1.y.2");
        assert_eq!(filled("x.*.y.*", &["1"]), "x.1.y.");
        assert_eq!(renamed("model.fc.bias", "model.", ""), Some("fc.bias".into()));
        assert_eq!(renamed("fc.bias", "", "model."), Some("model.fc.bias".into()));
        assert_eq!(renamed("a.0.b", "a.*.b", "c.*"), Some("c.0".into()));
        assert_eq!(renamed("a.0.c", "a.*.b", "c.*"), None);
    }

    #[test]
    fn the_nearest_name_shares_segments_or_letters() {
        let known = ["layer1.0.conv1.weight", "layer1.1.conv1.weight", "head.bias", "classifier.weight"];
        for (name, expected) in [
            ("model.layer1.1.conv1.weight", Some("layer1.1.conv1.weight")),
            ("layer1.0.conv1.wieght", Some("layer1.0.conv1.weight")),
            ("heed.bias", Some("head.bias")),
            ("fc.weight", None),
            ("xyz", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
    }
}
