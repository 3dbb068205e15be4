//! The terminal: whether output goes to one, its width and its colours.

use std::io::IsTerminal as _;

/// The columns of a terminal that does not say how many it has, and the fewest that pictures use.
pub const LEAST_WIDTH: usize = 80;

/// A terminal that shows pictures in colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// The number of columns: at least [`LEAST_WIDTH`].
    pub width: usize,
}

impl Terminal {
    /// Returns the terminal of standard output. `None` if plain text is wanted: in a pipe or a file, with `NO_COLOR`, and on a dumb terminal.
    ///
    /// `CLICOLOR_FORCE` asks for pictures elsewhere, too, such as in the log of a workflow. Its columns are those in `COLUMNS`.
    pub fn of_output() -> Option<Terminal> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_asked_for = variable("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
        if variable("NO_COLOR").is_some() || !is_asked_for && (is_dumb || !std::io::stdout().is_terminal()) {
            return None;
        }
        let columns = terminal_size::terminal_size().map(|(terminal_size::Width(columns), _)| usize::from(columns));
        let columns = columns.or_else(|| variable("COLUMNS")?.parse().ok());
        Some(Terminal { width: columns.unwrap_or(LEAST_WIDTH).clamp(LEAST_WIDTH, MOST_WIDTH) })
    }
}

/// The most columns that a picture fills: lines that are longer are hard to read.
const MOST_WIDTH: usize = 200;

/// A colour of text, from the sixteen that a terminal's own theme defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

/// Returns a text in a colour. An empty text has none.
pub fn paint(text: &str, colour: Colour) -> String {
    let code = match colour {
        Colour::Bold => 1,
        Colour::Dim => 2,
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Blue => 34,
        Colour::Magenta => 35,
        Colour::Cyan => 36,
    };
    if text.is_empty() { String::new() } else { format!("\x1b[{code}m{text}\x1b[0m") }
}

/// Returns the end of a text that has more than `most` characters, after a mark. Paths of layers differ at their ends.
pub fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.into();
    }
    let end: String = text.chars().skip(count - most.saturating_sub(1)).collect();
    format!("\u{2026}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_end() {
        assert_eq!(shortened("layer4.conv3", 12), "layer4.conv3");
        assert_eq!(shortened("layer4.conv3", 6), "\u{2026}conv3");
        assert_eq!(shortened("\u{e4}\u{f6}\u{fc}", 2), "\u{2026}\u{fc}");
        assert_eq!((paint("", Colour::Red), paint("x", Colour::Red)), (String::new(), "\x1b[31mx\x1b[0m".to_string()));
    }
}
