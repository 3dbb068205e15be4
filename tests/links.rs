//! Links between files of the repository: each leads to a file, and its anchor to a heading of that file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders that are not part of the repository.
const SKIPPED: [&str; 4] = ["target", ".git", "gpu-bundle", "__pycache__"];

/// The beginning of a link to a file of the repository from elsewhere.
const REPOSITORY: &str = "gpumem/gpumem/blob/HEAD/";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Collects all files in a folder and the folders inside.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_file() {
            found.push(path);
        } else if kind.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
            collect(&path, found);
        }
    }
}

/// Returns the files of the repository that are text, with their texts.
fn texts() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    collect(root(), &mut files);
    files.sort();
    files.into_iter().filter_map(|path| std::fs::read_to_string(&path).ok().map(|text| (path, text))).collect()
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

/// Returns the lines of a page that are not in blocks of code, each with its number.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// Returns a heading's anchor, as GitHub makes it: small letters, dashes for spaces, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the anchors of all headings of a page. `-1` is added to the second heading with one text.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading);
        let count: &mut usize = counts.entry(anchor.clone()).or_default();
        found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    found
}

/// Returns why a link leads nowhere. `from` is the folder that it begins in, `page` the file that an anchor alone belongs to.
fn problem(from: &Path, page: &Path, link: &str) -> Option<&'static str> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_path_buf() } else { from.join(path) };
    if !target.exists() {
        return Some("there is no such file");
    }
    let is_missing = || !anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor);
    (!anchor.is_empty() && is_page(&target) && is_missing()).then_some("the file has no such heading")
}

/// Returns the targets of the links in a line of a page. Code in backticks has none.
fn links(line: &str) -> Vec<String> {
    let line: String = line.split('`').step_by(2).collect();
    let inline = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split_once(')'));
    let mut found: Vec<String> = inline.map(|(target, _)| target.to_string()).collect();
    // `[name]: target` defines a link.
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target.trim().to_string());
    }
    found.retain(|target| !target.contains("://") && !target.contains(' ') && !target.starts_with("mailto:"));
    found
}

/// Returns each path in a line that begins with `start`, with its anchor. The first of each pair is the text before it in the same word.
fn paths<'l>(line: &'l str, start: &str) -> Vec<(&'l str, &'l str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices(start) {
        let before = line[..at].rsplit(|c: char| c.is_whitespace() || "\"'`(<".contains(c)).next().unwrap_or("");
        let path = &line[at..];
        let end = path.find(|c: char| !(c.is_alphanumeric() || "/-_.#".contains(c))).unwrap_or(path.len());
        found.push((before, path[..end].trim_end_matches('.')));
    }
    found
}

#[test]
fn links_of_pages_lead_to_files_and_headings() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, text) in texts().iter().filter(|(path, _)| is_page(path)) {
        for (number, line) in prose(text) {
            for link in links(line) {
                count += 1;
                if let Some(problem) = problem(page.parent().unwrap(), page, &link) {
                    wrong.push(format!("{}:{number}: {link}: {problem}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} links were found");
}

/// Sources, scripts and manifests name pages by their paths from the root of the repository.
#[test]
fn paths_of_pages_lead_to_files_and_headings() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, text) in &texts() {
        for (number, line) in text.lines().enumerate() {
            let pages = paths(line, "docs/").into_iter().filter(|(before, path)| {
                let is_ours = !before.contains("://") || before.ends_with(REPOSITORY);
                let is_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '-');
                is_ours && !is_word && path.split('#').next().is_some_and(|path| path.ends_with(".md"))
            });
            let from_elsewhere = paths(line, REPOSITORY).into_iter().map(|(_, path)| &path[REPOSITORY.len()..]);
            // The text that this test looks for is not a link.
            let all = pages.map(|(_, path)| path).chain(from_elsewhere).filter(|path| !path.is_empty());
            for path in all {
                count += 1;
                if let Some(problem) = problem(root(), file, path) {
                    wrong.push(format!("{}:{}: {path}: {problem}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "{count} paths were found");
}

#[test]
fn anchors_are_githubs() {
    let page =
        "# A base of 8 or 4 bits\n## `fits with`: what, and why?\n```sh\n# not one\n```\n## It's new\n## Its new\n";
    let expected = ["a-base-of-8-or-4-bits", "fits-with-what-and-why", "its-new", "its-new-1"];
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(links("[a](b.md#c), `[no](code)` and [`d`](../e.rs)"), ["b.md#c", "../e.rs"]);
    assert_eq!(links("[name]: page.md"), ["page.md"]);
    assert!(links("[here](https://example.org/)").is_empty());
}

/// A link that leaves the folder would be dead in the book.
#[test]
fn links_of_the_documentation_stay_in_it() {
    let docs = root().join("docs");
    let mut wrong = Vec::new();
    for (page, text) in texts().iter().filter(|(path, _)| is_page(path) && path.starts_with(&docs)) {
        for (number, line) in prose(text) {
            for link in links(line) {
                let path = link.split('#').next().unwrap_or("");
                let target = page.parent().unwrap().join(path);
                if !target.canonicalize().is_ok_and(|target| target.starts_with(docs.canonicalize().unwrap())) {
                    wrong.push(format!("{}:{number}: {link}: write https://github.com/{REPOSITORY}..", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_of_the_documentation_is_in_the_book() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = summary.lines().flat_map(links).map(|link| docs.join(link)).collect();
    let mut pages = Vec::new();
    collect(&docs, &mut pages);
    pages.retain(|page| is_page(page) && !page.ends_with("SUMMARY.md"));
    let missing: Vec<_> = pages.iter().filter(|page| !listed.contains(*page)).collect();
    assert!(
        missing.is_empty() && listed.len() == pages.len(),
        "docs/SUMMARY.md lacks {missing:?}, or names a page twice"
    );
}
