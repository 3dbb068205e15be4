//! Answers as diagnostics of rustc: the lines of `cargo check --message-format=json`, which editors read.

use super::sentence;
use crate::Failure;
use crate::answer::{Answer, Answers};
use crate::network::LeftOut;
use crate::output::print;
use crate::text::{bytes, name};
use cargo_metadata::{Metadata, Package, Target};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The most cards that one message lists.
const MOST_CARDS: usize = 10;

/// Prints a line for each answer, and one for each network without an answer. If nobody named a card, a line for each program instead.
pub fn print_all(found: &Answers, is_about_all: bool, workspace: &Metadata) -> Result<(), Failure> {
    let root = workspace.workspace_root.as_std_path();
    let mut diagnostics = match is_about_all {
        false => found.answers.iter().map(|answer| of_answer(answer, &found.answers, root)).collect(),
        true => about_all(&found.answers, root),
    };
    diagnostics.extend(found.left_out.iter().map(|it| of_left_out(it, root)));
    diagnostics.iter().try_for_each(|it| print(&it.line(workspace)))
}

/// Prints the line after which a reader of cargo's messages expects no more.
pub fn print_end(success: bool) -> Result<(), Failure> {
    print(&format!("{}\n", json!({ "reason": "build-finished", "success": success })))
}

/// Returns an error for a card that is too small, or else a hint with the memory that is left. `all` has the answers for other cards too.
fn of_answer(answer: &Answer, all: &[Answer], root: &Path) -> Diagnostic {
    let place = Place::find(root, &answer.file, answer.line);
    let is_refused = answer.left().is_err();
    let mut helps: Vec<Help> = Vec::new();
    // A batch that another card of the program does not have room for is no correction.
    let mut others = all.iter().filter(|other| is_one_program(other, answer));
    let is_least = others.all(|other| other.largest_batch >= answer.largest_batch);
    let largest = answer.largest_batch.filter(|&batch| is_least && batch > 0 && Some(batch) != answer.batch);
    if let (Some(largest), Some(span)) = (largest, place.samples()) {
        let text = format!("the largest batch on {}", name(answer.device));
        helps.push(Help { text, replacement: Some((span, largest.to_string())) });
    }
    for it in &answer.alternatives {
        helps.push(Help::of(format!("it fits with {}: {}", it.change, bytes(it.total))));
    }
    if let Some(cheaper) = answer.cheaper {
        let now = cheaper.now.div_ceil(10);
        helps.push(Help::of(format!(
            "recomputation takes +{now} % time; cheaper with {}",
            cheaper.with.text().as_str()
        )));
    }
    let (level, code) = if is_refused { ("error", "gpumem::too_large") } else { ("help", "gpumem::fits") };
    Diagnostic { level, code, message: sentence(answer), place, helps }
}

/// True for answers for one program, on two cards.
fn is_one_program(a: &Answer, b: &Answer) -> bool {
    (&a.label, &a.file, a.line) == (&b.label, &b.file, b.line)
}

/// Returns a hint for each program that is asked about on cards that nobody named: how many of them it fits.
fn about_all(answers: &[Answer], root: &Path) -> Vec<Diagnostic> {
    let programs = answers.chunk_by(is_one_program).map(|of_program| {
        let first = &of_program[0];
        let small: Vec<&Answer> = of_program.iter().filter(|answer| answer.left().is_err()).collect();
        let at = first.batch.map(|batch| format!(" at batch {batch}")).unwrap_or_default();
        let (fit, all) = (of_program.len() - small.len(), of_program.len());
        let names: Vec<String> = small.iter().take(MOST_CARDS).map(|answer| name(answer.device)).collect();
        let more = small.len().checked_sub(MOST_CARDS).filter(|&more| more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let too_small = (!names.is_empty()).then(|| Help::of(format!("too small: {}{more}", names.join(", "))));
        Diagnostic {
            level: "help",
            code: "gpumem::fits",
            message: format!("`{}`{at} fits {fit} of {all} cards", first.label),
            place: Place::find(root, &first.file, first.line),
            helps: too_small.into_iter().collect(),
        }
    });
    programs.collect()
}

/// Returns a warning for a network that the check does not cover.
fn of_left_out(it: &LeftOut, root: &Path) -> Diagnostic {
    let advice = it.program.map(|_| Help::of("name cards in `cards:`, or ask about some with `--cards t4,l4`".into()));
    Diagnostic {
        level: "warning",
        code: "gpumem::left_out",
        message: format!("`{}` is left out: {}", it.label, it.why),
        place: Place::find(root, &it.file, it.line),
        helps: advice.into_iter().collect(),
    }
}

/// A message at a place of a source file.
struct Diagnostic {
    level: &'static str,
    code: &'static str,
    message: String,
    place: Place,
    helps: Vec<Help>,
}

/// Advice below a message.
struct Help {
    text: String,
    /// A range of bytes of the line, and the text to put there. `None` for advice that an editor cannot follow by itself.
    replacement: Option<((usize, usize), String)>,
}

impl Help {
    fn of(text: String) -> Help {
        Help { text, replacement: None }
    }
}

impl Diagnostic {
    /// Returns the line of JSON.
    fn line(&self, workspace: &Metadata) -> String {
        let (package, target) = owner(workspace, &self.place.path);
        let child = |help: &Help| {
            let spans = help.replacement.iter().map(|(range, text)| self.place.span(*range, Some(text)));
            json!({
                "message": help.text,
                "code": null,
                "level": "help",
                "spans": spans.collect::<Vec<_>>(),
                "children": [],
                "rendered": null,
            })
        };
        let message = json!({
            "$message_type": "diagnostic",
            "message": self.message,
            "code": { "code": self.code, "explanation": null },
            "level": self.level,
            "spans": [self.place.span(self.place.range, None)],
            "children": self.helps.iter().map(child).collect::<Vec<_>>(),
            "rendered": self.rendered(),
        });
        let line = json!({
            "reason": "compiler-message",
            "package_id": package.map(|package| &package.id),
            "manifest_path": package.map(|package| &package.manifest_path),
            "target": target,
            "message": message,
        });
        format!("{line}\n")
    }

    /// Returns the message as rustc would print it.
    fn rendered(&self) -> String {
        let Place { file, line, text, range: (start, end), .. } = &self.place;
        let number = line.to_string();
        let bar = " ".repeat(number.len());
        let column = self.place.column(*start);
        let mut all = format!("{}[{}]: {}\n{bar}--> {file}:{line}:{column}\n", self.level, self.code, self.message);
        if !text.is_empty() {
            let marks = "^".repeat(self.place.column(*end) - column);
            all += &format!("{bar} |\n{number} | {text}\n{bar} | {}{marks}\n{bar} |\n", " ".repeat(column - 1));
        }
        for help in &self.helps {
            let replacement = help.replacement.as_ref().map(|(_, text)| format!(": `{text}`")).unwrap_or_default();
            all += &format!("{bar} = help: {}{replacement}\n", help.text);
        }
        all
    }
}

/// A line of a source file, and the part of it that a message is about.
struct Place {
    /// The file as the compiler got it: relative to the root of the workspace, if it is inside.
    file: String,
    /// The file on this machine.
    path: PathBuf,
    line: u64,
    /// The bytes of the file before the line.
    before: usize,
    /// The line. Empty if the file cannot be read.
    text: String,
    /// The part, as bytes of the line: the field `batch`, or all but the spaces around it.
    range: (usize, usize),
}

impl Place {
    fn find(root: &Path, file: &str, line: u64) -> Place {
        let path = root.join(file);
        let all = std::fs::read_to_string(&path).unwrap_or_default();
        let index = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        let mut before = 0;
        let mut lines = all.split_inclusive('\n');
        lines.by_ref().take(index).for_each(|line| before += line.len());
        let text = lines.next().unwrap_or_default().trim_end_matches(['\n', '\r']).to_string();
        let range = batch_field(&text).unwrap_or_else(|| {
            let start = text.len() - text.trim_start().len();
            (start, text.trim_end().len().max(start))
        });
        Place { file: file.to_string(), path, line, before, text, range }
    }

    /// Returns the range of the number of samples. `None` if the field `batch` has no number in it.
    fn samples(&self) -> Option<(usize, usize)> {
        let (start, end) = batch_field(&self.text)?;
        let field = &self.text[start..end];
        let at = field.find(':')? + 1;
        let value = field[at..].trim_start();
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        is_number.then(|| (end - value.len(), end))
    }

    /// Returns the column of a byte of the line, counted in characters from 1 on.
    fn column(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }

    fn span(&self, (start, end): (usize, usize), replacement: Option<&String>) -> Value {
        let [first, last] = [start, end].map(|at| self.column(at));
        json!({
            "file_name": self.file,
            "byte_start": self.before + start,
            "byte_end": self.before + end,
            "line_start": self.line,
            "line_end": self.line,
            "column_start": first,
            "column_end": last,
            "is_primary": true,
            "text": [{ "text": self.text, "highlight_start": first, "highlight_end": last }],
            "label": null,
            "suggested_replacement": replacement,
            // Another batch trains in another way, so that no tool may take it unasked.
            "suggestion_applicability": replacement.map(|_| "MaybeIncorrect"),
            "expansion": null,
        })
    }
}

/// Returns the range of `batch: ..` in a line, without the comma after it. `None` if the line has no such field.
fn batch_field(line: &str) -> Option<(usize, usize)> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_field = |&at: &usize| {
        let (before, after) = (&line.as_bytes()[..at], &line[at + "batch".len()..]);
        !before.last().is_some_and(is_name) && after.trim_start().starts_with(':')
    };
    let start = line.match_indices("batch").map(|(at, _)| at).find(is_field)?;
    let end = line[start..].find([',', '}', ';']).map_or(line.len(), |length| start + length);
    Some((start, start + line[start..end].trim_end().len()))
}

/// Returns the package that a file is in, and one of its targets: that of the file, or with the nearest folder. For other files the first ones.
fn owner<'m>(workspace: &'m Metadata, path: &Path) -> (Option<&'m Package>, Option<&'m Target>) {
    let depth = |folder: Option<&Path>| folder.filter(|it| path.starts_with(it)).map(|it| it.components().count());
    let folder = |package: &&Package| depth(package.manifest_path.as_std_path().parent());
    // Of several with the greatest key, `max_by_key` returns the last one.
    let package = workspace.packages.iter().rev().max_by_key(folder);
    let target = package.and_then(|package| {
        let key = |target: &&Target| (target.src_path == path, depth(target.src_path.as_std_path().parent()));
        package.targets.iter().rev().max_by_key(key)
    });
    (package, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_found_in_its_line() {
        for (line, field) in [
            ("        batch: 32,", "batch: 32"),
            ("const TRAIN: Train = Train { micro_batches: 2, batch: N, loss: Mse };", "batch: N"),
            ("const INFER: Infer = Infer { batch : 1 };", "batch : 1"),
            ("batch: Largest", "batch: Largest"),
        ] {
            let (start, end) = batch_field(line).unwrap();
            assert_eq!(&line[start..end], field);
        }
        for line in ["fits!(Net<64>);", "micro_batches: 2,", "batches: 3,", "batch", ""] {
            assert_eq!(batch_field(line), None, "{line}");
        }
    }

    #[test]
    fn places_count_bytes_and_characters() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("net.rs"), "// é\r\n  /* é */ batch: 4_096, // samples\r\n").unwrap();
        let place = Place::find(folder.path(), "net.rs", 2);
        assert_eq!((place.before, place.range, place.samples()), (7, (11, 23), Some((18, 23))));
        let span = place.span(place.range, None);
        assert_eq!((&span["column_start"], &span["column_end"]), (&11.into(), &23.into()));
        assert_eq!((&span["byte_start"], &span["byte_end"]), (&18.into(), &30.into()));
        // Neither a line after the end nor a file that is not there is a mistake of the user's.
        for (file, line) in [("net.rs", 9), ("none.rs", 1), ("net.rs", 0), ("net.rs", u64::MAX)] {
            let place = Place::find(folder.path(), file, line);
            assert!(place.text.is_empty() || line == 0, "{file}:{line}");
            assert_eq!(place.span(place.range, None)["file_name"], file);
        }
    }

    #[test]
    fn a_message_is_drawn_as_rustc_draws_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("net.rs"), "\n    batch: 64,\n").unwrap();
        let place = Place::find(folder.path(), "net.rs", 2);
        let helps = vec![
            Help { text: "try".into(), replacement: Some((place.samples().unwrap(), "8".into())) },
            Help::of("or not".into()),
        ];
        let it = Diagnostic { level: "error", code: "gpumem::too_large", message: "too large".into(), place, helps };
        let expected = "error[gpumem::too_large]: too large\n --> net.rs:2:5\n  |\n2 |     batch: 64,\n  |     ^^^^^^^^^\n  |\n  \
                        = help: try: `8`\n  = help: or not\n";
        assert_eq!(it.rendered(), expected);
    }
}
