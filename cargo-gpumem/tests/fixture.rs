//! A crate of its own that depends on this one: features choose cards, and built artefacts carry the budget.

use gpumem_core::memory::record::read_records;
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex};

/// All tests build in one folder.
static BUILDING: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// The folder of a fixture, with the versions of this workspace: nothing is looked up.
fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("tests/fixtures").join(name);
    std::fs::copy(here.join("../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    folder
}

fn cargo(arguments: &[&str]) -> (Output, PathBuf) {
    let fixture = fixture("app");
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fixture");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--offline")
        .current_dir(&fixture)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("GPUMEM_VRAM")
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    (output, target)
}

fn check(arguments: &[&str], vram: Option<&str>) -> (bool, String) {
    let mut command = Command::new(env!("CARGO"));
    command
        .arg("check")
        .args(arguments)
        .arg("--offline")
        .current_dir(fixture("app"))
        .env("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fixture"))
        .env_remove("GPUMEM_VRAM");
    if let Some(vram) = vram {
        command.env("GPUMEM_VRAM", vram);
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_feature_of_the_users_crate_switches_the_check_on() {
    let _guard = BUILDING.lock();
    let (output, _) = cargo(&["check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let (fits, text) = check(&["--features", "rtx3060"], None);
    assert!(!fits, "4096 images do not fit 12 GB");
    assert!(text.contains("network `App` needs") && text.contains("but an RTX 3060 has 11.63 GiB"), "{text}");
    assert!(text.contains("fits with") && text.contains("batch ") && text.contains("fits on"), "{text}");
    assert_eq!(text.matches("error[E0080]").count(), 1, "one error, no trail of const functions: {text}");

    let (fits, text) = check(&["--features", "h200"], None);
    assert!(fits, "{text}");
    let (fits, text) = check(&["--features", "h200,rtx3060"], None);
    assert!(!fits && !text.contains("H200 has"), "{text}");
    let (fits, text) = check(&[], None);
    assert!(fits, "no card, no check: {text}");

    let (fits, text) = check(&[], Some("8GiB"));
    assert!(!fits && text.contains("8.00 GiB"), "{text}");
    let (fits, text) = check(&[], Some("200GiB"));
    assert!(fits, "{text}");
    let (fits, text) = check(&[], Some("8 gigs"));
    assert!(!fits && text.contains("GPUMEM_VRAM"), "{text}");
}

#[test]
fn the_example_fits_the_card_it_is_aimed_at_and_not_a_smaller_one() {
    let _guard = BUILDING.lock();
    let (fits, text) = check(&["--features", "vgg16,rtx3090"], None);
    assert!(fits, "{text}");
    let (fits, text) = check(&["--features", "vgg16,rtx3060"], None);
    assert!(!fits && text.contains("network `Vgg16` needs 12.15 GiB but an RTX 3060 has 11.63 GiB"), "{text}");
}

#[test]
fn blocks_of_another_crate_are_called_and_named_in_mistakes() {
    let _guard = BUILDING.lock();
    let (sound, text) = check(&["--features", "blocks"], None);
    assert!(sound, "{text}");
    let (sound, text) = check(&["--features", "blocks-misfit"], None);
    assert!(!sound, "a bottleneck of 12 channels is added to 8");
    let message = "layer 14 `Add` joins branches of one shape, but branch 0 produces [8, 16, 16] and branch 1 produces \
                   [12, 16, 16] (in `bottleneck(3)`, at ";
    assert!(text.contains(message), "{text}");
    // The place in the other crate, and the call in this one.
    assert!(text.contains("zoo/src/lib.rs:19:25)"), "{text}");
    assert!(text.contains("resnet::bottleneck(3),\n") && text.contains("^^^^^^^^^^^^^^^^^^^^^\n"), "{text}");
    assert_eq!(text.matches("\nerror: layer").count(), 1, "{text}");
}

/// A card that one member asks for is checked for every network that is built with it, as docs/guide/ci.md says.
#[test]
fn a_workspace_unites_the_cards_of_its_members() {
    let _guard = BUILDING.lock();
    let workspace = fixture("workspace");
    let check = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.arg("check").args(arguments).arg("--offline").current_dir(&workspace);
        command.env("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fixture"));
        for variable in ["GPUMEM_VRAM", "GPUMEM_CARDS", "GPUMEM_HEADROOM", "RUSTFLAGS"] {
            command.env_remove(variable);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = check(&["-p", "b"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&["--workspace"]);
    assert_eq!(code, Some(101), "{text}");
    assert!(text.contains("network `Large` needs") && text.contains("but an RTX 3050 6GB has"), "{text}");
    let origin = text.lines().find(|line| line.contains("aimed by")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(origin.trim(), "aimed by      Cargo feature `rtx3050-6gb` (RTX 3050 6GB)");
}

#[test]
#[ignore = "builds a whole release: run by .ci/run"]
fn a_stripped_release_binary_carries_the_budget() {
    let _guard = BUILDING.lock();
    let (output, target) = cargo(&["build", "--release", "--features", "h200"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let binary = target.join("release").join(format!("app{}", std::env::consts::EXE_SUFFIX));
    let bytes = std::fs::read(&binary).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert!(file.symbols().next().is_none(), "the binary is not stripped");
    let name = if cfg!(target_vendor = "apple") { "__gpumem" } else { ".gpumem" };
    let section = file.section_by_name(name).unwrap().data().unwrap();
    let records: Vec<serde_json::Value> =
        read_records(section).map(|record| serde_json::from_str(record).unwrap()).collect();
    assert_eq!(records.len(), 1);
    assert_eq!((&records[0]["name"], &records[0]["selected"]), (&"App".into(), &serde_json::json!(["h200"])));

    let report = Command::new(&binary).output().unwrap().stdout;
    let mut report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    // What of a step is computed again, and how gradients are clipped at which rate, is read off its program, which the record has not.
    for key in ["checkpoint", "clip", "schedule"] {
        assert!(report["train"].as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    assert_eq!(records[0]["train"], report["train"], "the record says what the program says");
    assert_eq!(records[0]["infer"], report["infer"]);
}
