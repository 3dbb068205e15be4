//! Words: identifiers, numbers in paths, and classes that are lists.

use gpumem_core::language::KEYWORDS;
use std::collections::{HashMap, HashSet};

/// Words of Rust, and of signatures, that no name may be. Nor may one be among [`KEYWORDS`].
const TAKEN: [&str; 54] = [
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "abstract",
    "name",
    "parameter",
    "forward",
];

/// Returns a text as an identifier in snake case. Empty if nothing of it can be one.
pub(super) fn identifier(text: &str) -> String {
    let mut name = String::new();
    let mut before = '_';
    for letter in text.chars() {
        match letter {
            'A'..='Z' => {
                if before.is_ascii_lowercase() || before.is_ascii_digit() {
                    name.push('_');
                }
                name.push(letter.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' => name.push(letter),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
        before = letter;
    }
    let name = name.trim_matches('_');
    let begins = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    match begins {
        false => String::new(),
        true if TAKEN.contains(&name) || KEYWORDS.contains(&name) => format!("{name}_"),
        true => name.to_string(),
    }
}

/// Names that are all different.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// The next number to try after each name.
    next: HashMap<String, usize>,
}

impl Names {
    /// Returns names of which these are taken.
    pub(super) fn with(taken: impl IntoIterator<Item = String>) -> Names {
        Names { taken: taken.into_iter().collect(), next: HashMap::new() }
    }

    /// Adds a name: with a number after it if it is taken.
    pub(super) fn add(&mut self, wanted: String) -> String {
        let next = self.next.entry(wanted.clone()).or_insert(1);
        let mut name = wanted.clone();
        while self.taken.contains(&name) {
            *next += 1;
            let ends_in_digit = wanted.ends_with(|last: char| last.is_ascii_digit());
            name = format!("{wanted}{}{next}", if ends_in_digit { "_" } else { "" });
        }
        self.taken.insert(name.clone());
        name
    }
}

/// Splits the number off a path: `layer1.0` is `layer1` and 0, and `3` is `[]` and 3.
pub(super) fn numbered(path: &str) -> Option<(&str, usize)> {
    let (base, number) = path.rsplit_once('.').unwrap_or(("[]", path));
    let is_plain = number == "0" || !number.starts_with('0') && number.bytes().all(|digit| digit.is_ascii_digit());
    if !is_plain || number.is_empty() {
        return None;
    }
    Some((base, number.parse().ok()?))
}

/// True if a class only lists other modules.
pub(super) fn is_container(class: &str) -> bool {
    ["Sequential", "ModuleList", "ModuleDict"].contains(&class)
}

/// Returns the segment of a layer without a name: `batch_norm2d` for `BatchNorm2d`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let identifiers =
            ["Conv2dNormActivation", "block1-0", "self", "layer_norm", "3", "ResNet50", "größe"].map(identifier);
        assert_eq!(identifiers, ["conv2d_norm_activation", "block1_0", "self_", "layer_norm", "", "res_net50", "gr_e"]);
        assert_eq!(numbered("layer1.0.conv.3"), Some(("layer1.0.conv", 3)));
        assert_eq!(numbered("12"), Some(("[]", 12)));
        assert_eq!([numbered("a"), numbered("a.01"), numbered("a."), numbered("")], [None; 4]);
        let mut names = Names::with(["a".to_string()]);
        assert_eq!(["a", "a", "b1", "b1", "a2"].map(|name| names.add(name.into())), ["a2", "a3", "b1", "b1_2", "a2_2"]);
        assert_eq!(snake_case("BatchNorm2d"), "batch_norm2d");
    }
}
