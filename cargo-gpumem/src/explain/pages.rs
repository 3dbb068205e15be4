//! The pages of the documentation that explain terms, cut into entries.

/// A term with its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The names of the term, the usual one first.
    pub names: Vec<String>,
    /// The kind of term.
    pub kind: &'static str,
    /// The explanation, as plain text with code in backticks.
    pub text: String,
    page: &'static str,
    /// The section of the page.
    anchor: String,
}

impl Entry {
    /// Returns the address of the section that has more.
    pub fn address(&self) -> String {
        format!("https://github.com/gpumem/gpumem/blob/HEAD/docs/{}#{}", self.page, self.anchor)
    }
}

/// A page, and the parts of it that explain terms.
struct Page {
    path: &'static str,
    text: &'static str,
    /// The first heading of each table whose rows are terms, the section that it must be in, and the kind of its terms.
    tables: &'static [(&'static str, Option<&'static str>, &'static str)],
    /// The kind of the page's sections, if these are terms, too.
    sections: Option<&'static str>,
}

const PAGES: [Page; 5] = [
    Page {
        path: "reference/memory-model.md",
        text: include_str!("pages/memory-model.txt"),
        tables: &[("line", None, "line of the budget")],
        sections: None,
    },
    Page {
        path: "reference/settings.md",
        text: include_str!("pages/settings.txt"),
        tables: &[("field", Some("TRAIN"), "field of TRAIN"), ("field", Some("INFER"), "field of INFER")],
        sections: None,
    },
    Page {
        path: "reference/messages.md",
        text: include_str!("pages/messages.txt"),
        tables: &[("line", None, "line of a refusal")],
        sections: None,
    },
    Page {
        path: "reference/environment.md",
        text: include_str!("pages/environment.txt"),
        tables: &[("variable", None, "environment variable")],
        sections: None,
    },
    Page {
        path: "design/glossary.md",
        text: include_str!("pages/glossary.txt"),
        tables: &[("term", None, "glossary")],
        sections: None,
    },
];

/// The sections of the memory model, which are terms of their own.
const MEMORY_MODEL: Page = Page { tables: &[], sections: Some("memory model"), ..PAGES[0] };

/// Returns the entries of all pages, by kind.
pub fn entries() -> Vec<Entry> {
    PAGES.iter().chain([&MEMORY_MODEL]).flat_map(cut).collect()
}

/// Cuts a page into entries.
fn cut(page: &Page) -> Vec<Entry> {
    let mut found = Vec::new();
    let (mut section, mut kind, mut is_code) = (String::new(), None, false);
    for (at, line) in page.text.lines().enumerate() {
        is_code ^= line.starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            section = heading.trim_start_matches('#').trim().to_string();
            if line.starts_with("##") {
                found.extend(page.sections.and_then(|kind| of_section(page, &section, kind, at)));
            }
        }
        let Some(cells) = cells(line) else {
            kind = None;
            continue;
        };
        match (kind, cells.as_slice()) {
            (None, [first, ..]) => {
                let is_it = |(heading, of, _): &&(&str, Option<&str>, _)| {
                    *heading == first && of.is_none_or(|of| of == section)
                };
                kind = Some(page.tables.iter().find(is_it).map(|(.., kind)| *kind));
            }
            (Some(Some(kind)), [first, rest @ ..]) if !first.starts_with("---") => {
                let names = names(first);
                if !names.is_empty() {
                    found.push(Entry {
                        names,
                        kind,
                        text: explanation(kind, rest),
                        page: page.path,
                        anchor: anchor(&section),
                    });
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the entry of a section: its heading and its first paragraph. `None` if it does not begin with one.
fn of_section(page: &Page, heading: &str, kind: &'static str, at: usize) -> Option<Entry> {
    let paragraph = page.text.lines().skip(at + 1).skip_while(|line| line.is_empty());
    let lines: Vec<&str> = paragraph.take_while(|line| !line.is_empty()).collect();
    let is_prose = lines.first()?.starts_with(char::is_alphabetic) || lines[0].starts_with('`');
    let names = vec![without_links(heading).trim_start_matches("The ").to_string()];
    let entry =
        || Entry { names, kind, text: without_links(&lines.join(" ")), page: page.path, anchor: anchor(heading) };
    is_prose.then(entry)
}

/// Returns the cells of a row of a table; `None` for other lines. A `|` in a cell is written `\|`.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells = row.replace("\\|", "\0");
    Some(cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect())
}

/// Returns the names in the first cell of a row: code, or words between commas.
fn names(cell: &str) -> Vec<String> {
    // A range of lines is no term.
    if cell.contains("` to `") {
        return Vec::new();
    }
    let code: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    let names = if code.is_empty() { cell.split([',', ';']).collect() } else { code };
    // Of a variable with a value, the variable is the name.
    let name = |name: &str| without_links(name.split_once('=').map_or(name, |(name, _)| name).trim());
    // The row about the first line of a refusal names a place rather than a word.
    let found = names.into_iter().map(name).filter(|name| !name.is_empty());
    found.map(|name| if name == "the first" { "first line".into() } else { name }).collect()
}

/// Returns the other cells of a row as one text. Fields have values and a default before their meaning.
fn explanation(kind: &str, cells: &[String]) -> String {
    let text = match cells {
        [values, default, meaning] if kind.starts_with("field") => {
            format!("{meaning}. Values: {values}. Default: {default}")
        }
        cells => cells.join("; "),
    };
    without_links(&text)
}

/// Returns a text with the words of links alone, and without marks for bold.
fn without_links(text: &str) -> String {
    let (mut found, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(words, target)| Some((words, target.split_once(')')?.1)));
        found += before;
        match link.filter(|(words, _)| !words.contains(['[', ']'])) {
            Some((words, after)) => {
                found += words;
                rest = after;
            }
            None => {
                found.push('[');
                rest = after;
            }
        }
    }
    (found + rest).replace("**", "")
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|letter| letter.is_alphanumeric() || ['-', '_'].contains(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::memory::budget::Line;

    #[test]
    fn every_line_of_the_budget_is_explained() {
        let entries = entries();
        for line in Line::ALL {
            let is_it = |entry: &&Entry| entry.kind == "line of the budget" && entry.names == [line.name()];
            assert_eq!(entries.iter().filter(is_it).count(), 1, "{}", line.name());
        }
    }

    #[test]
    fn every_kind_has_terms_with_texts() {
        let entries = entries();
        let kinds = PAGES.iter().flat_map(|page| page.tables).map(|(.., kind)| *kind).chain(["memory model"]);
        for kind in kinds {
            let of_kind = || entries.iter().filter(|entry| entry.kind == kind);
            assert!(of_kind().count() >= 5, "{kind}");
            for entry in of_kind() {
                assert!(entry.text.len() > 8 && !entry.text.contains("]("), "{entry:?}");
            }
        }
        assert!(entries.iter().any(|entry| entry.names == ["live bytes", "peak"]), "two names of a row");
    }

    #[test]
    fn rows_are_read_as_they_are_written() {
        assert_eq!(cells("| a | b \\| c |"), Some(vec!["a".into(), "b | c".into()]));
        assert_eq!(cells("text"), None);
        assert_eq!(names("`CUDA_HOME`, `CUDA_PATH`"), ["CUDA_HOME", "CUDA_PATH"]);
        assert!(names("`weights` to `reserve`").is_empty());
        assert_eq!(names("`GPUMEM_CARDS=t4,l4`"), ["GPUMEM_CARDS"]);
        assert_eq!(names("live bytes, peak"), ["live bytes", "peak"]);
        assert_eq!(names("the first"), ["first line"]);
        assert_eq!(without_links("a [b](c.md#d) and [8, 30]"), "a b and [8, 30]");
        assert_eq!(anchor("Lines of the `budget`"), "lines-of-the-budget");
    }
}
