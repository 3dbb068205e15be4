//! Finds two networks of one name in one module. Their expansions would conflict item by item, so the second is reported first.
//!
//! A macro sees only its own item, so the text of the file is read for the items before it. Only certain cases are reported here. The compiler
//! reports the others.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;

/// Returns the line of an earlier network with this name in the same module or block. `None` if none is certain.
pub(crate) fn earlier(name: &Ident) -> Option<usize> {
    if !proc_macro::is_available() {
        return None;
    }
    let span: Span = name.span();
    let span = span.unwrap();
    let text = std::fs::read_to_string(span.local_file()?).ok()?;
    earlier_in(&text, &name.unraw().to_string(), (span.line(), span.column()))
}

/// Finds an earlier network in this text. Unlike [`earlier`], takes the line and column of the name, both counted from 1.
fn earlier_in(text: &str, name: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(before..)?;
    let at = before + rest.char_indices().nth(column.checked_sub(1)?)?.0;
    // Almost always no earlier `struct` has this name, and the text need not be split into tokens.
    let is_struct = |before: &str| before.strip_suffix("r#").unwrap_or(before).trim_end().ends_with("struct");
    let is_written = text[..at].match_indices(name).any(|(start, _)| is_struct(&text[..start]));
    is_written.then(|| Reader::new(text).until(name, at)).flatten().map(|start| 1 + text[..start].matches('\n').count())
}

/// The tokens in a pair of braces, brackets or parentheses, or in the file.
#[derive(Default)]
struct Scope {
    /// True for the tokens of `network!`.
    is_network: bool,
    /// True within the tokens of another macro, which may change them in any way.
    is_of_macro: bool,
    /// True if the item that is being read has a `cfg`.
    is_conditional: bool,
    /// The networks that are certainly declared in it, each with the byte at which its name begins.
    networks: Vec<(String, usize)>,
}

/// Splits the text of a file into tokens, and tracks how they are nested.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    scopes: Vec<Scope>,
    /// The last two tokens, the most recent one first.
    last: [&'t str; 2],
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Reader { text, at: 0, scopes: vec![Scope::default()], last: [""; 2] }
    }

    /// Returns the place of an earlier network of this name, if the network whose name begins at `end` has it too.
    fn until(mut self, name: &str, end: usize) -> Option<usize> {
        while self.at <= end {
            let start = self.at;
            let token = self.token()?;
            if token.is_empty() {
                continue;
            }
            if start == end {
                let declared = self.declared(token)?;
                return declared.iter().find(|(known, _)| known == name).map(|(_, at)| *at);
            }
            self.take(token, start)?;
            self.last = [token, self.last[0]];
        }
        None
    }

    /// Returns the networks declared so far around this one, if `token` is certainly the name of a network.
    fn declared(&mut self, token: &str) -> Option<&mut Vec<(String, usize)>> {
        let [.., outer, inner] = self.scopes.as_mut_slice() else { return None };
        let is_certain = inner.is_network && !outer.is_of_macro && !inner.is_conditional && !outer.is_conditional;
        (is_certain && self.last[0] == "struct" && is_word(token)).then_some(&mut outer.networks)
    }

    fn take(&mut self, token: &'t str, start: usize) -> Option<()> {
        match token {
            "{" | "(" | "[" => {
                let is_call = self.last[0] == "!" && is_word(self.last[1]) || self.last[1] == "!";
                let is_network = self.last == ["!", "network"];
                let is_of_macro = self.scopes.last()?.is_of_macro || is_call && !is_network;
                self.scopes.push(Scope { is_network, is_of_macro, ..Scope::default() });
            }
            "}" | ")" | "]" => {
                let inner = self.scopes.pop()?;
                let outer = self.scopes.last_mut()?;
                outer.is_conditional = token != "}" && (outer.is_conditional || inner.is_conditional);
            }
            ";" => self.scopes.last_mut()?.is_conditional = false,
            "cfg" | "cfg_attr" => self.scopes.last_mut()?.is_conditional = true,
            name => {
                if let Some(networks) = self.declared(name) {
                    networks.push((name.trim_start_matches("r#").to_string(), start));
                }
            }
        }
        Some(())
    }

    /// Returns the next token. Empty for a space, a comment, a text or a character literal; `None` at the end.
    fn token(&mut self) -> Option<&'t str> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest)?,
            '"' => quoted(rest)?,
            '\'' => letter(rest),
            _ if is_of_word(first) => {
                let word = rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len());
                match raw(&rest[..word], &rest[word..])? {
                    Text::Word(more) => {
                        self.at += word + more;
                        return Some(&rest[..word + more]);
                    }
                    Text::Quoted(more) => word + more,
                }
            }
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                self.at += first.len_utf8();
                return Some(&rest[..first.len_utf8()]);
            }
        };
        self.at += length;
        Some("")
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The bytes that belong to a token after its first word: the rest of a name, or a text in quotes.
enum Text {
    Word(usize),
    Quoted(usize),
}

/// Returns the rest of `r"..\"`, `br#"..\"#` or `r#name`. For a plain word, nothing is left.
fn raw(word: &str, rest: &str) -> Option<Text> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = &rest[hashes..];
    if matches!(word, "r" | "br" | "cr") && inside.starts_with('"') {
        let end = format!("\"{}", &rest[..hashes]);
        return Some(Text::Quoted(hashes + 1 + inside[1..].find(&end)? + end.len()));
    }
    let name = inside.find(|letter| !is_of_word(letter)).unwrap_or(inside.len());
    Some(Text::Word(if word == "r" && hashes == 1 && name > 0 { 1 + name } else { 0 }))
}

/// Returns the length of a block comment, which may contain others, in bytes.
fn comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = &text[at..];
        let next = rest.find(['/', '*'])?;
        let two = rest.get(next..next + 2);
        depth = match two {
            Some("/*") => depth + 1,
            Some("*/") => depth - 1,
            _ => depth,
        };
        at += next + if matches!(two, Some("/*" | "*/")) { 2 } else { 1 };
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the length of a text in quotes, in bytes.
fn quoted(text: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        let next = at + text[at..].find(['"', '\\'])?;
        if text[next..].starts_with('"') {
            return Some(next + 1);
        }
        at = next + 1 + text[next + 1..].chars().next()?.len_utf8();
    }
}

/// Returns the length of a character literal, or of the quote of a lifetime, in bytes.
fn letter(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        (Some((_, '\\')), Some((after, escaped))) => {
            let after = after + escaped.len_utf8();
            text[after..].find('\'').map_or(1, |end| after + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::earlier_in;

    /// The line of an earlier network of the name of the last one in `text`, which is marked: `struct @Net`.
    fn earlier(text: &str) -> Option<usize> {
        let (before, after) = text.split_once('@').unwrap();
        let name: String = after.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap().chars().count();
        earlier_in(&text.replace('@', ""), &name, (line, column))
    }

    #[test]
    fn networks_of_one_name() {
        for text in [
            "network! { struct Net; fn f() {} }\nnetwork! { struct @Net; }",
            "gpumem::network! { pub struct Net<const B: usize>; }\nuse a::b;\ngpumem::network! { pub(crate) struct @Net; }",
            "network!(struct Net;); network![struct @Net;];",
            "network! { struct r#Net; } fn main() { } network! { struct @Net; }",
            "network! { /// `struct Net` is \"\n struct Net; } network! { /* /* } */ ' \" */ struct @Net; }",
        ] {
            assert!(earlier(text).is_some(), "{text}");
        }
        let in_a_test = "mod tests {\n    #[cfg(test)] use a;\n    fn f<'a>() {\n        let (a, b) = ('{', '\\'');\n        \
                         network! { struct Net; }\n        let c = r#\"}\"#;\n        network! { struct @Net; }\n    }\n}";
        assert_eq!(earlier(in_a_test), Some(5));
        assert_eq!(
            earlier("const A: &str = \"ü\\\"{\"; network! { struct Net; } /* ü */ network! { struct @Net; }"),
            Some(1)
        );
    }

    #[test]
    fn networks_of_other_modules() {
        for text in [
            "network! { struct Net; } mod tests { network! { struct @Net; } }",
            "mod a { network! { struct Net; } } mod b { network! { struct @Net; } }",
            "fn a() { network! { struct Net; } } fn b() { network! { struct @Net; } }",
            "network! { struct Nets; } network! { struct @Net; }",
            "// network! { struct Net; }\nnetwork! { struct @Net; }",
            "const A: &str = \"network! { struct Net; }\"; network! { struct @Net; }",
            "struct Net; network! { struct @Net; }",
        ] {
            assert_eq!(earlier(text), None, "{text}");
        }
    }

    /// Other macros and conditions may change the text in unknown ways.
    #[test]
    fn networks_in_doubt() {
        for text in [
            "#[cfg(a)] network! { struct Net; } #[cfg(not(a))] network! { struct @Net; }",
            "network! { #[cfg(a)] struct Net; } network! { struct @Net; }",
            "network! { struct Net; } #[cfg_attr(a, cfg(b))] network! { struct @Net; }",
            "twice! { network! { struct Net; } network! { struct @Net; } }",
            "macro_rules! nets { () => { network! { struct Net; } network! { struct @Net; } } }",
            "network! { struct Net; } nets!(struct @Net);",
            "network! { struct Net; } // struct @Net",
        ] {
            assert_eq!(earlier(text), None, "{text}");
        }
    }
}
