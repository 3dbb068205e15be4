//! Answers as annotations of GitHub Actions.

use super::sentence;
use crate::answer::{Answer, Answers};
use crate::network::LeftOut;
use crate::text::name;

/// Returns annotations for GitHub Actions at the networks' places.
pub fn annotations(found: &Answers) -> String {
    let line = |answer: &Answer| {
        let kind = if answer.left().is_ok() { "notice" } else { "error" };
        let title = format!("{} on {}", answer.label, name(answer.device));
        annotation(kind, (&answer.file, answer.line), &title, &sentence(answer))
    };
    let left_out = |it: &LeftOut| {
        let title = format!("{} is left out", it.label);
        annotation("warning", (&it.file, it.line), &title, &format!("`{}` is left out: {}", it.label, it.why))
    };
    found.answers.iter().map(line).chain(found.left_out.iter().map(left_out)).collect()
}

fn annotation(kind: &str, (file, line): (&str, u64), title: &str, message: &str) -> String {
    format!("::{kind} file={},line={line},title={}::{}\n", property(file), property(title), escaped(message))
}

/// Escapes the text of an annotation.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of an annotation.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    #[test]
    fn annotations_are_escaped() {
        assert_eq!(super::property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
        assert_eq!(super::escaped("a:b,c%\n"), "a:b,c%25%0A");
    }
}
