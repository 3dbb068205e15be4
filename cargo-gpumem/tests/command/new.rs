//! `new`: the crate builds, its test passes, and its program trains.

use super::{clean, failure, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Makes a crate in a folder, with the gpumem of this repository.
fn made(folder: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    command.args(["gpumem", "new", name, "--gpumem"]).arg(root()).args(arguments).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.join(name)
}

/// Runs cargo in a crate, with the versions that the repository is tested with.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let command = clean(&mut command).current_dir(folder).args(arguments).arg("--offline");
    let output = command.arg("--target-dir").arg(target).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    output
}

#[test]
fn a_crate_has_all_files_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let made = made(folder.path(), "my-net", &["--cards", "t4,l4"]);
    let read = |path: &str| std::fs::read_to_string(made.join(path)).unwrap();
    assert!(read("Cargo.toml").contains("name = \"my-net\"") && read("Cargo.toml").contains("l4 = [\"gpumem/l4\"]"));
    assert!(read(".github/workflows/fit.yml").contains("card: [t4, l4]"));
    assert!(
        read("src/main.rs").contains("use my_net::{Net, batch};") && read("tests/trains.rs").contains("train_step")
    );
    let message = failure(&["new", made.to_str().unwrap()]);
    assert!(message.contains("exists already; name another folder"), "{message}");
    assert!(failure(&["new", "1st"]).contains("`1st` is no name for a crate here"));
    assert!(failure(&["new", "other", "--cards", "1GiB"]).contains("a feature is a card of the table"));
    assert!(failure(&["new", "other", "--gpumem", "/"]).contains("has no gpumem-core"));
    assert!(failure(&["new", "other", "--from", "none.pt2"]).contains("none.pt2"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["my-net"]);
}

#[test]
#[ignore = "builds a crate anew: run by .ci/run"]
fn a_new_crate_trains_and_fits() {
    let folder = tempfile::tempdir().unwrap();
    let small = made(folder.path(), "my-net", &[]);
    cargo(&small, &["test", "--quiet"]);
    cargo(&small, &["check", "--quiet", "--features", "t4"]);
    let printed = text(&cargo(&small, &["run", "--quiet"]).stdout);
    assert!(printed.contains("step 0: loss ") && printed.contains("step 180: loss "), "{printed}");
    let model = root().join("gpumem-import/tests/weights/vision.pt2");
    let from = made(folder.path(), "vision", &["--from", model.to_str().unwrap(), "--batch", "4"]);
    assert!(from.join("model.safetensors").is_file());
    cargo(&from, &["test", "--quiet"]);
}
