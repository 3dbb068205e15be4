//! The command on a crate of its own.

mod advise;
mod diagnostics;
mod explain;
mod export;
mod files;
mod import;
mod left_out;
mod models;
mod new;
mod pack;
mod show;
mod timeline;
#[cfg(all(target_os = "linux", feature = "watch"))]
mod watch;
mod workflow;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// A copy of the fixture: what is built there is built once for all tests.
static FIXTURE: LazyLock<PathBuf> = LazyLock::new(|| {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cargo-gpumem");
    std::fs::create_dir_all(to.join("src")).unwrap();
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = manifest.replace("../../..", &root.display().to_string().replace('\\', "/"));
    write(&to.join("Cargo.toml"), &manifest);
    write(&to.join("src/lib.rs"), &std::fs::read_to_string(from.join("src/lib.rs")).unwrap());
    to
});

/// Writes what has changed, so that cargo builds no more than that.
fn write(path: &Path, text: &str) {
    if std::fs::read_to_string(path).ok().as_deref() != Some(text) {
        std::fs::write(path, text).unwrap();
    }
}

/// One build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn clean(command: &mut Command) -> &mut Command {
    for variable in ["GPUMEM_VRAM", "GPUMEM_CARDS", "GPUMEM_HEADROOM", "FIXTURE_BATCH", "RUSTFLAGS", "CARGO_TARGET_DIR"]
    {
        command.env_remove(variable);
    }
    command.current_dir(&*FIXTURE)
}

fn gpumem(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    clean(&mut command).arg("gpumem").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the command prints, with its exit code.
fn printed(arguments: &[&str]) -> (String, i32) {
    let output = gpumem(arguments);
    let code = output.status.code().unwrap();
    assert!(code < 2, "{}{}", text(&output.stdout), text(&output.stderr));
    (text(&output.stdout), code)
}

fn failure(arguments: &[&str]) -> String {
    let output = gpumem(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    text(&output.stderr)
}

fn fits(arguments: &[&str]) -> Vec<Value> {
    let (text, _) = printed(&[&["fit", "--quiet", "--format", "json"], arguments].concat());
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["version"], 1);
    value["fits"].as_array().unwrap().clone()
}

/// Whether the compiler accepts a network, `Wide` at this batch, on this card.
fn accepts(name: &str, batch: u64, card: &str) -> bool {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let command = clean(&mut command).args(["check", "--quiet", "--target-dir", "target/gpumem"]);
    // As the command builds, so that it is built once.
    for setting in ["debug=0", "strip=\"none\"", "lto=\"off\""] {
        command.args(["--config", &format!("profile.dev.{setting}")]);
    }
    let output = command.env("FIXTURE_BATCH", batch.to_string()).env("GPUMEM_CARDS", card).output().unwrap();
    let errors = text(&output.stderr);
    assert!(!errors.contains("error") || errors.contains(" needs "), "{errors}");
    !errors.contains(&format!("network `{name}` needs"))
}

fn compiles(batch: u64, card: &str) -> bool {
    accepts("Wide", batch, card)
}

/// What is computed again depends on the card, in the command as in the compiler.
#[test]
fn recomputation_is_that_of_the_card() {
    let _alone = alone();
    let found = fits(&["Again", "--cards", "t4,h100-sxm,gtx1050ti"]);
    let number = |fit: &Value, key: &str| fit[key].as_u64().unwrap();
    let [t4, h100, small] = &found[..] else { panic!("{found:?}") };
    let arena = |fit: &Value| number(fit, "total") - number(fit, "reserve");
    assert!(t4["fits"] == true && h100["fits"] == true && small["fits"] == false, "{found:?}");
    assert!(arena(t4) < arena(h100) && arena(h100) > number(t4, "usable"), "{found:?}");
    assert!(number(t4, "max_batch") >= 768 && number(small, "max_batch") < 768, "{found:?}");
    assert!(accepts("Again", 8, "t4") && !accepts("Again", 8, "gtx1050ti"));
}

/// One program runs on all cards that are written: the smallest decides for the others, too.
#[test]
fn recomputation_is_that_of_the_smallest_card_that_is_written() {
    let _alone = alone();
    let number = |fit: &Value, key: &str| fit[key].as_u64().unwrap();
    let arena = |fit: &Value| number(fit, "total") - number(fit, "reserve");
    let (text, _) = printed(&["show", "--quiet", "Shared", "--format", "json"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    let written = fits(&["Shared"]);
    let [t4, h100] = &written[..] else { panic!("{written:?}") };
    assert!(arena(t4) == arena(h100) && arena(t4) == number(&shown["budget"], "arena"), "{written:?} beside {shown}");
    assert!(t4["fits"] == true && number(t4, "max_batch") < number(h100, "max_batch"), "{written:?}");
    // Alone, the larger card needs none.
    let alone = &fits(&["Shared", "--cards", "h100-sxm"])[0];
    assert!(arena(alone) > arena(h100), "{alone} beside {h100}");
    assert_eq!(number(h100, "left"), number(h100, "usable") - number(h100, "total"));
}

/// Card by card, the largest batch is accepted by the compiler, and the next is refused.
#[test]
fn it_agrees_with_the_compiler() {
    let _alone = alone();
    for fit in fits(&["Wide", "--cards", "t4,rtx3060,h100-sxm"]) {
        let (card, batch) = (fit["card"].as_str().unwrap(), fit["max_batch"].as_u64().unwrap());
        assert!(batch > 8 && fit["fits"] == true, "{fit}");
        assert!(compiles(batch, card), "{card} at {batch}");
        assert!(!compiles(batch + 1, card), "{card} at {}", batch + 1);
    }
}

#[test]
fn networks_that_a_check_refuses_are_answered_for() {
    let _alone = alone();
    let (text, code) = printed(&["fit", "--quiet"]);
    assert_eq!(code, 1, "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(row("Huge").contains("over by") && row("Huge").contains("T4"), "{text}");
    assert!(row("Wide").contains("fits, ") && row("Wide").contains("RTX 3090"), "{text}");
    assert!(row("Both (inference)").contains(" less 1.0 MiB"), "{text}");
    // No card is written for its training, nor for the generic network.
    let answered = text.split("\nleft out ").next().unwrap();
    assert_eq!(answered.lines().filter(|line| line.starts_with("Both ")).count(), 1, "{text}");
    let (text, code) = printed(&["fit", "--quiet", "Wide"]);
    assert_eq!((code, text.lines().count()), (0, 3), "{text}");
    // With all cards, nothing was named that could refuse.
    assert_eq!(printed(&["fit", "--quiet", "--all", "Huge"]).1, 0);
}

/// What is left after everything else is filled with keys and values: of three layers, two samples, 32 elements each, in 16 bits.
#[test]
fn the_longest_cache() {
    let _alone = alone();
    let number = |fit: &Value, key: &str| fit[key].as_u64().unwrap();
    let step = 3 * 2 * 2 * 32 * 2;
    for fit in fits(&["Writer", "--cards", "t4,1GiB"]) {
        let longest = number(&fit, "max_cache");
        let fixed = number(&fit, "total") - 100 * step;
        let exact = (number(&fit, "usable") - fixed) / step;
        // Parts of queries have a few bytes of their own, and tensors are padded.
        assert!(longest <= exact + 100 && longest + 4000 > exact, "{longest} of {exact}: {fit}");
    }
    let (text, _) = printed(&["fit", "--quiet", "Writer", "Wide", "--cards", "t4"]);
    assert!(text.lines().next().unwrap().ends_with("largest batch  longest cache"), "{text}");
    let (text, _) = printed(&["fit", "--quiet", "Wide", "--cards", "t4"]);
    assert!(!text.contains("longest cache"), "{text}");
    assert_eq!(fits(&["Wide", "--cards", "t4"])[0]["max_cache"], Value::Null);
    // Not even one step.
    assert_eq!(number(&fits(&["Writer", "--cards", "300MiB"])[0], "max_cache"), 0);
}

#[test]
fn another_batch_precision_headroom_and_size() {
    let _alone = alone();
    let total = |arguments: &[&str]| fits(arguments)[0]["total"].as_u64().unwrap();
    let plain = total(&["Wide", "--cards", "t4"]);
    assert!(total(&["Wide", "--cards", "t4", "--batch", "9"]) > plain);
    let half = total(&["Wide", "--cards", "t4", "--precision", "bf16"]);
    assert!(half < plain && total(&["Wide", "--cards", "t4", "--precision", "F16"]) >= half, "F16 holds its gradients");
    // A card that is given by its size has a reserve of its own.
    let reserve = |arguments: &[&str]| fits(arguments)[0]["reserve"].as_u64().unwrap();
    let arena = plain - reserve(&["Wide", "--cards", "t4"]);
    let exact = format!("{}B", arena + reserve(&["Wide", "--cards", "1GiB"]));
    let tight = &fits(&["Wide", "--cards", &exact])[0];
    assert_eq!((tight["fits"].as_bool(), tight["left"].as_u64()), (Some(true), Some(0)), "{tight}");
    let over = &fits(&["Wide", "--cards", &exact, "--headroom", "3B"])[0];
    assert_eq!((over["fits"].as_bool(), over["over"].as_u64()), (Some(false), Some(3)), "{over}");
}

/// The compiler plans once for all cards of a network, with the workspace that suits the newest.
#[test]
fn cards_that_are_written_share_a_plan() {
    let _alone = alone();
    let (text, _) = printed(&["show", "--quiet", "Products", "--format", "json"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    let written = fits(&["Products"]);
    let cards: Vec<&str> = written.iter().map(|fit| fit["card"].as_str().unwrap()).collect();
    assert_eq!(cards, ["t4", "h100-sxm"]);
    let arena = |fit: &Value| fit["total"].as_u64().unwrap() - fit["reserve"].as_u64().unwrap();
    assert!(written.iter().all(|fit| arena(fit) == arena(&shown["budget"])), "{written:?} beside {shown}");
    let alone = &fits(&["Products", "--cards", "t4"])[0];
    assert!(arena(alone) < arena(&written[0]), "{alone}");
}

#[test]
fn generic_networks_have_instances_and_take_a_batch() {
    let _alone = alone();
    let instance = &fits(&["Generic<64>", "--cards", "t4"])[0];
    let given = &fits(&["Generic", "--cards", "t4", "--batch", "64"])[0];
    assert_eq!((&instance["batch"], &instance["total"]), (&given["batch"], &given["total"]));
    let message = failure(&["fit", "--quiet", "Generic", "--cards", "t4"]);
    let expected =
        "`Generic` is generic over its batch: give one with `--batch`, or check an instance with `fits!(Generic<64>);`";
    assert!(message.contains(expected), "{message}");
}

/// The variables are the compiler's: a batch that it finds is that for the cards which are written.
#[test]
fn variables_are_not_looked_at() {
    let _alone = alone();
    let plain = printed(&["fit", "--quiet", "Most"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    let command = clean(&mut command).args(["gpumem", "fit", "--quiet", "Most"]);
    command.env("GPUMEM_CARDS", "h100-sxm").env("GPUMEM_VRAM", "2GiB").env("GPUMEM_HEADROOM", "1GiB");
    let output = command.output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), (plain.0, Some(plain.1)), "{}", text(&output.stderr));
    let fit = &fits(&["Most"])[0];
    assert!(fit["fits"] == true && fit["batch"] == fit["max_batch"], "{fit}");
}

#[test]
fn packages_are_named_as_for_cargo() {
    let _alone = alone();
    let plain = printed(&["fit", "--quiet", "Wide"]);
    for spec in ["fixture", "fixture@0.0", "fix*"] {
        assert_eq!(printed(&["fit", "--quiet", "Wide", "--package", spec]), plain, "{spec}");
    }
}

#[test]
#[ignore = "builds everything in another profile: run by .ci/run"]
fn what_a_profile_decides_is_asked_of_that_profile() {
    let _alone = alone();
    let batch = |arguments: &[&str]| fits(&[&["Wide"], arguments].concat())[0]["batch"].clone();
    assert_eq!((batch(&[]), batch(&["--profile", "quick"])), (8.into(), 64.into()));
}

/// A network that was named has an answer, or there is none at all.
#[test]
fn a_network_that_is_named_needs_a_card() {
    let _alone = alone();
    for networks in [&["Wide", "Writer"][..], &["Writer"]] {
        let message = failure(&[&["fit", "--quiet"], networks].concat());
        let expected = "`Writer` names no card: give some with `--cards t4,l4`, or all with `--all`";
        assert!(message.contains(expected), "{message}");
    }
    // Its training has none, and is left out.
    let (text, _) = printed(&["fit", "--quiet", "Both"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 8 && lines[2].starts_with("Both (inference) "), "{text}");
    assert!(lines[4].starts_with("left out  where") && lines[6].starts_with("Both "), "{text}");
}

/// The line of the fixture that begins so, with this text somewhere.
fn line_of(text: &str) -> usize {
    let source = std::fs::read_to_string(FIXTURE.join("src/lib.rs")).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() + 1
}

#[test]
fn annotations_are_at_the_batch() {
    let _alone = alone();
    let (text, _) = printed(&["fit", "--quiet", "Huge", "Wide", "--cards", "t4", "--format", "github"]);
    let source = std::fs::read_to_string(FIXTURE.join("src/lib.rs")).unwrap();
    let line = source.lines().position(|line| line.contains("batch: 4096")).unwrap() + 1;
    assert!(
        text.contains(&format!("::error file=src/lib.rs,line={line},title=Huge on T4::`Huge` at batch 4096 needs ")),
        "{text}"
    );
    assert!(text.contains("::notice file=src/lib.rs,line="), "{text}");
}

#[test]
fn one_network_from_near() {
    let _alone = alone();
    let (text, _) = printed(&["show", "--quiet", "Wide", "--top", "3"]);
    assert!(text.starts_with("Wide: training, batch 8, F32\n\n"), "{text}");
    for part in ["and 6 more; `--top 9` lists all", "activations", "packed            100.0 %", "alive at the peak, "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let message = failure(&["show", "--quiet", "Narrow"]);
    assert!(
        message.contains(
            "no network is called `Narrow`; there is Wide, Again, Shared, Both, Writer, Generic, Generic<64>, Products, Most, \
             Huge, Generator, Critic, Generic<32>"
        ),
        "{message}"
    );
    let message = failure(&["show", "--quiet", "wide"]);
    assert!(message.contains("no network is called `wide`; did you mean `Wide`?"), "{message}");
    let message = failure(&["show", "--quiet"]);
    assert!(message.contains("name the network to show: there is Wide, Again, "), "{message}");
}

/// Each tensor is padded, and there is nothing else: of bits, eight are a byte, and rows of 16 bits have gaps.
#[test]
fn what_is_alive_at_the_peak_fills_the_activations() {
    let _alone = alone();
    for network in ["Wide", "Again", "Products", "Huge", "Generic<64>"] {
        for precision in ["F32", "Bf16"] {
            let (text, _) = printed(&["show", "--quiet", network, "--precision", precision, "--format", "json"]);
            let shown: Value = serde_json::from_str(&text).unwrap();
            let alive = shown["alive_at_peak"].as_array().unwrap();
            let bytes: u64 = alive.iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
            let activations = shown["budget"]["activations"].as_u64().unwrap();
            let most = bytes + alive.len() as u64 * 255;
            assert!((bytes..=most).contains(&activations), "{network} in {precision}: {bytes} of {activations}");
        }
    }
}

#[test]
fn help_fits_a_screen() {
    for command in ["fit", "show", "advise", "diff", "explain", "pack", "new", "watch", "cards"] {
        let (text, _) = printed(&[command, "--help"]);
        assert!(text.contains("Usage: cargo gpumem") && text.lines().count() <= 40, "{text}");
    }
}

#[test]
fn cards_need_no_build() {
    let (text, _) = printed(&["cards", "rtx3060"]);
    for part in
        ["RTX 3060", "--features gpumem/rtx3060", "gpumem::cards::RTX_3060", "measured: https://", "not counted"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (text, _) = printed(&["cards", "jetson-orin-nano-8gb"]);
    assert!(
        text.contains("stay with the host") && text.contains("34 GB/s to the host and back, shared memory"),
        "{text}"
    );
    assert!(printed(&["cards", "t4"]).0.contains("copies       12.5 GB/s to the host and back, PCIe 3.0 x16\n"));
    let (text, _) = printed(&["cards", "--format", "json"]);
    let cards: Value = serde_json::from_str(&text).unwrap();
    assert!(cards["cards"].as_array().unwrap().len() > 100);
    assert!(failure(&["cards", "toaster"]).contains("no card is called `toaster`"));
}

/// A repository with the fixture as it is and, before that, with a smaller network. It depends on a crate beside it, and needs what a
/// configuration of cargo above it says.
#[test]
#[ignore = "builds everything twice: run by .ci/run"]
fn a_change_costs_what_it_costs() {
    let _alone = alone();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("app");
    for inside in ["app/src", "beside/src", ".cargo"] {
        std::fs::create_dir_all(parent.path().join(inside)).unwrap();
    }
    write(&parent.path().join(".cargo/config.toml"), "[env]\nFIXTURE_BATCH = \"9\"\n");
    write(
        &parent.path().join("beside/Cargo.toml"),
        "[package]\nname = \"beside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
    );
    write(&parent.path().join("beside/src/lib.rs"), "");
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").current_dir(&folder).args(identity).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    git(&["init", "--quiet"]);
    let source = std::fs::read_to_string(FIXTURE.join("src/lib.rs")).unwrap();
    let manifest = std::fs::read_to_string(FIXTURE.join("Cargo.toml")).unwrap() + "beside = { path = \"../beside\" }\n";
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join(".gitignore"), "target\nCargo.lock\n").unwrap();
    let library = folder.join("src/lib.rs");
    std::fs::write(&library, source.replace("Linear(4096), Gelu", "Linear(1024), Gelu")).unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "before"]);
    std::fs::write(&library, source.replace("pub struct Huge", "pub struct Vast")).unwrap();

    let diff = |elsewhere: bool, options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        clean(&mut command).current_dir(&folder).args(["gpumem", "diff", "--quiet", "HEAD"]).args(options);
        if elsewhere {
            // One build folder for everything, and a manifest that is named as it is now.
            command.env("CARGO_TARGET_DIR", folder.join("everything"));
            command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let printed = diff(false, &[]);
    assert_eq!(diff(true, &[]), printed);
    let comment = diff(false, &["--format", "markdown"]);
    for part in [
        "### Memory beside `HEAD`\n",
        "| **Both** | arena | ",
        "| **Vast** | arena |  | ",
        "\nWithout a change: Wide, ",
    ] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    let both = printed.lines().skip_while(|line| !line.starts_with("Both ")).collect::<Vec<_>>();
    assert!(both[0].contains("arena") && both[0].contains('+'), "{printed}");
    let count = |hidden: u64| 64 * hidden + hidden + 8 * hidden + 8;
    let parameters = format!("+{}", count(4096) - count(1024));
    assert!(both.iter().any(|line| line.contains("parameters") && line.contains(&parameters)), "{printed}");
    let row = |name: &str| printed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{printed}"));
    assert!(row("Wide").ends_with('='), "{printed}");
    assert!(row("Vast").ends_with("new") && row("Huge").ends_with("gone"), "{printed}");
    // The worktree is gone, and nothing is left beside the repository.
    let output = Command::new("git").current_dir(&folder).args(["worktree", "list"]).output().unwrap();
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let mut left: Vec<_> = std::fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".cargo", "app", "beside"]);
}
