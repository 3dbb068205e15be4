//! `cargo fmt` sees every source file: rustfmt follows `mod` lines, but does not look for them inside a macro.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATES: [&str; 6] = [".", "gpumem-core", "gpumem-language", "gpumem-macros", "gpumem-cpu", "gpumem-cuda"];

/// The files below a folder, without those that are not modules of the crate.
fn sources(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path);
        }
    }
}

/// `None` where rustfmt is not installed.
fn rustfmt(arguments: &[&str], root: &Path) -> Option<Output> {
    let output = Command::new("rustfmt").args(arguments).args(["--edition", "2024"]).arg(root).output().ok()?;
    let installed = !String::from_utf8_lossy(&output.stderr).contains("is not installed");
    installed.then_some(output)
}

fn root(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of).canonicalize().unwrap()
}

#[test]
fn every_source_file_is_formatted() {
    for name in CRATES {
        let source = root(name).join("src");
        let Some(output) = rustfmt(&["--check", "--verbose"], &source.join("lib.rs")) else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let seen: BTreeSet<PathBuf> =
            text.lines().filter_map(|line| line.strip_prefix("Formatting ")).map(PathBuf::from).collect();
        let mut expected = BTreeSet::new();
        sources(&source, &mut expected);
        // A script writes it.
        expected.remove(&source.join("cards/table.rs"));
        let unseen: Vec<_> = expected.difference(&seen).collect();
        assert!(unseen.is_empty(), "rustfmt does not see {unseen:?}");
    }
}

/// A layer's file with a blank too many fails the check of the whole crate, which names it.
#[test]
fn unformatted_layers_fail_the_check() {
    let folder = std::env::temp_dir().join(format!("gpumem-format-{}", std::process::id()));
    let source = root("gpumem-core").join("src");
    let mut files = BTreeSet::new();
    sources(&source, &mut files);
    for file in &files {
        let copy = folder.join(file.strip_prefix(&source).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(file, copy).unwrap();
    }
    std::fs::copy(root(".").join("rustfmt.toml"), folder.join("rustfmt.toml")).unwrap();
    let folder = folder.canonicalize().unwrap();
    let check = || rustfmt(&["--check"], &folder.join("lib.rs"));
    let Some(before) = check() else { return std::fs::remove_dir_all(&folder).unwrap() };
    assert!(before.status.success() && before.stdout.is_empty(), "the crate is formatted");
    let mut layers = BTreeSet::new();
    sources(&folder.join("layers"), &mut layers);
    layers.retain(|path| path.file_name().is_some_and(|name| name != "mod.rs"));
    assert!(layers.len() > 20, "only {} layers were looked at", layers.len());
    for file in &layers {
        let text = std::fs::read_to_string(file).unwrap();
        std::fs::write(file, format!("{text}\nfn  unformatted( ) {{ }}\n")).unwrap();
    }
    let after = check().unwrap();
    assert!(!after.status.success());
    let text = String::from_utf8_lossy(&after.stdout).into_owned();
    let unseen: Vec<_> = layers.iter().filter(|file| !text.contains(&file.display().to_string())).collect();
    assert!(unseen.is_empty(), "rustfmt does not see {unseen:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
