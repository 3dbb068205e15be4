//! First sentences of public items: short, and complete without their neighbours. See CONTRIBUTING.md.

use std::path::{Path, PathBuf};

/// Crates whose items users see.
const CRATES: [&str; 11] = [
    ".",
    "gpumem-core",
    "gpumem-cpu",
    "gpumem-cuda",
    "gpumem-data",
    "gpumem-language",
    "gpumem-macros",
    "gpumem-state",
    "gpumem-train",
    "gpumem-weights",
    "gpumem-zoo",
];

/// Words with which no first sentence begins: it says what the item is or does, not what a reader might ask.
const BANNED: [&str; 26] = [
    "What", "Whether", "Where", "How", "Which", "That", "It", "They", "Their", "There", "In", "By", "With", "This",
    "As", "Only", "Also", "On", "Those", "For", "Not", "Each", "If", "So", "Of", "When",
];

/// Most words of a first sentence.
const MOST: usize = 20;

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            collect(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Returns the documentation of each public item of a file: the line where it begins, and its first paragraph.
fn documented(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut block, mut first): (_, Vec<&str>, _) = (Vec::new(), Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if let Some(comment) = line.strip_prefix("///") {
            if block.is_empty() {
                first = number + 1;
            }
            block.push(comment.trim());
        } else if !line.starts_with("#[") {
            if line.starts_with("pub ") && !block.is_empty() {
                let paragraph: Vec<&str> = block.iter().copied().take_while(|comment| !comment.is_empty()).collect();
                found.push((first, paragraph.join(" ")));
            }
            block.clear();
        }
    }
    found
}

/// Returns the words of the first sentence. Code and the targets of links count as one word, or none.
fn first_sentence(paragraph: &str) -> Vec<String> {
    let (mut plain, mut in_code, mut in_target) = (String::new(), false, false);
    let mut before = ' ';
    for c in paragraph.chars() {
        match c {
            '`' => {
                in_code = !in_code;
                if in_code {
                    plain.push('x');
                }
            }
            '(' if before == ']' => in_target = true,
            ')' if in_target => in_target = false,
            _ if in_code || in_target => {}
            _ => plain.push(c),
        }
        before = c;
    }
    let mut words = Vec::new();
    for word in plain.split_whitespace() {
        if word.chars().any(char::is_alphanumeric) {
            words.push(word.to_string());
        }
        if word.ends_with(['.', ':', ';', '!', '?']) {
            break;
        }
    }
    words
}

/// Returns the mistake of a first sentence, if it has one.
fn mistake(paragraph: &str) -> Option<String> {
    let words = first_sentence(paragraph);
    let first = words.first()?;
    if BANNED.contains(&first.as_str()) || paragraph.starts_with("The same") {
        return Some(format!(
            "begins with `{first}`; begin with a verb, as `Returns`, or with a noun, as `The offset`"
        ));
    }
    (words.len() > MOST).then(|| format!("has {} words in its first sentence; use at most {MOST}", words.len()))
}

#[test]
fn first_sentences_are_short_and_complete() {
    let (mut files, mut items, mut mistakes) = (Vec::new(), 0, Vec::new());
    for name in CRATES {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name).join("src"), &mut files);
    }
    for path in &files {
        for (line, paragraph) in documented(&std::fs::read_to_string(path).unwrap()) {
            items += 1;
            if let Some(mistake) = mistake(&paragraph) {
                mistakes.push(format!("{}:{line}: {mistake}", path.display()));
            }
        }
    }
    assert!(items > 2000, "{items} public items were found");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn mistakes_are_found() {
    let text = "/// Whether it fits.\n#[must_use]\npub fn fits() {}\n\n/// Returns `a b c` of [this](crate::that::other). More.\npub struct A;\n/// Private.\nfn b() {}\n";
    let found = documented(text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 5]);
    assert!(mistake(&found[0].1).unwrap().starts_with("begins with `Whether`"));
    assert_eq!(first_sentence(&found[1].1), ["Returns", "x", "of", "[this]."]);
    assert_eq!(mistake(&found[1].1), None);
    assert!(mistake(&"word ".repeat(21)).unwrap().starts_with("has 21 words"));
}
