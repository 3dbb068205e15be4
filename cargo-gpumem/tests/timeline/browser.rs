//! The page in a browser. Needs Node and Chromium, so it runs only when it is asked for.

use super::{NETWORKS, file, printed, sources, text};
use std::process::Command;

/// `.ci/run browser` runs it.
#[test]
#[ignore = "needs Node and Chromium; `.ci/run browser`"]
fn the_page_works() {
    let folder = sources();
    let mut pages = Vec::new();
    for (name, _) in NETWORKS {
        let page = format!("{name}.html");
        printed(folder.path(), &[&file(name), "-o", &page]);
        printed(folder.path(), &[&file(name), "-o", &format!("{name}.csv")]);
        pages.push(page);
    }
    printed(folder.path(), &["plain.rs", "--against", "batch=32,precision=mixed-bf16", "-o", "two.html"]);
    printed(folder.path(), &["plain.rs", "--against", "batch=64", "-o", "same.html"]);
    let model = format!("{}/../gpumem-import/tests/models/gpt2.pt2", env!("CARGO_MANIFEST_DIR"));
    printed(folder.path(), &[&model, "--card", "rtx3060", "-o", "gpt2.html"]);
    pages.extend(["two.html", "same.html", "gpt2.html"].map(String::from));
    let pictures = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("timeline");
    std::fs::create_dir_all(&pictures).unwrap();
    let script = format!("{}/tests/timeline/page.mjs", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("node");
    command.arg(script).arg(folder.path()).args(pages).env("SCREENSHOTS", &pictures);
    let output = command.output().expect("node is needed");
    let said = text(&output.stdout) + &text(&output.stderr);
    println!("{said}\npictures of the pages are in {}", pictures.display());
    assert!(output.status.success(), "{said}");
}
