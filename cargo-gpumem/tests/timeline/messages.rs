//! Files that are written, and messages.

use super::{failure, file, printed, sources, text, timeline};
use gpumem_core::memory::budget::Line;

#[test]
fn files_are_written_and_not_replaced() {
    let folder = sources();
    printed(folder.path(), &["plain.rs"]);
    let page = std::fs::read_to_string(folder.path().join("Plain-timeline.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    assert_eq!(failure(folder.path(), &["plain.rs"]), "error: Plain-timeline.html exists; `--force` replaces it\n");
    let output = timeline(folder.path(), &["plain.rs", "--force"]);
    assert_eq!(text(&output.stderr), "wrote the timeline of `Plain` to Plain-timeline.html\n");
    // The place is looked at before the network is.
    let nowhere = failure(folder.path(), &["none.rs", "-o", "none/a.svg"]);
    assert!(nowhere.contains("there is no folder none; create it"), "{nowhere}");
}

#[test]
fn what_cannot_be_drawn_is_told() {
    let folder = sources();
    for (arguments, expected) in [
        (
            &["plain.rs", "-o", "a.png"][..],
            "a PNG is saved from the page: write an .html, open it, and choose Export; or write an .svg",
        ),
        (
            &["plain.rs", "-o", "a.svg", "--against", "batch=2"],
            "`--against` is for pages: write .html or .json, not .svg",
        ),
        (&["plain.rs", "-o", "a.csv", "--open"], "`--open` opens a page or a picture in a file: write .html or .svg"),
        (&["plain.rs", "--against", "micro_batches=7"], "a batch of 64 does not divide into 7 equal micro-batches"),
        (
            &["plain.rs", "--against", "chunks=2"],
            "`chunks` is for losses of classes whose logits a `Linear` makes at the end",
        ),
        (
            &["writer.rs", "--against", "checkpoint=Auto"],
            "`checkpoint=Auto` is a setting of training, and this is inference",
        ),
        (&["plain.rs", "--batch", "largest"], "`--batch largest` is for `cargo gpumem fit`; write a number of samples"),
        (&["none.rs"], "cannot read none.rs: "),
    ] {
        let message = failure(folder.path(), arguments);
        assert!(message.starts_with(&format!("error: {expected}")), "{arguments:?}: {message}");
    }
    for (arguments, expected) in [
        (["plain.rs", "--against", "bach=2"], "no setting is called `bach`; did you mean `batch`?"),
        (["plain.rs", "--against", "precision=F8"], "write F32, Bf16, F16, Mixed(Bf16) or Mixed(F16)"),
        (["plain.rs", "--card", "rtx3061"], "did you mean rtx3060?"),
        (["plain.rs", "--card", "11GB2"], "11GB2"),
    ] {
        let message = failure(folder.path(), &arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

/// One of several networks in a file is named after it.
#[test]
fn a_network_of_a_file_is_chosen() {
    let folder = sources();
    let two = format!("{}\n{}", super::NETWORKS[0].1, super::NETWORKS[3].1);
    std::fs::write(folder.path().join("two.rs"), two).unwrap();
    assert_eq!(super::json(folder.path(), &["two.rs::Writer"])["network"], "Writer");
    assert_eq!(
        failure(folder.path(), &["two.rs"]),
        "error: two.rs has several networks: Plain, Writer; name one, as `two.rs::Plain`\n"
    );
    let message = failure(folder.path(), &["two.rs::writer"]);
    assert_eq!(message, "error: no network is called `writer`; did you mean `Writer`?\n");
}

/// The forward pass of a trained network, on a card that the source does not name.
#[test]
fn inference_and_cards_are_chosen() {
    let folder = sources();
    let plan = super::json(folder.path(), &[&file("Plain"), "--inference", "--card", "t4"]);
    assert_eq!((plan["program"].as_str(), plan["card"]["slug"].as_str()), (Some("infer"), Some("t4")));
    let plan = super::json(folder.path(), &[&file("Writer")]);
    assert_eq!((plan["program"].as_str(), plan["card"].is_null()), (Some("infer"), true));
    assert_eq!(super::number(&plan["least_us"]), 0);
}

/// A size is a card of so many usable bytes: the step recomputes as little as fits, as `fit --cards` plans it.
#[test]
fn a_size_is_a_card() {
    let folder = sources();
    let automatic = super::NETWORKS[0].1.replace("loss: CrossEntropy", "loss: CrossEntropy, checkpoint: Auto");
    std::fs::write(folder.path().join("automatic.rs"), automatic).unwrap();
    let total = |plan: &serde_json::Value| super::number(plan["budget"]["bytes"].as_array().unwrap().last().unwrap());
    let recomputed = |plan: &serde_json::Value| {
        super::column(plan, "operations", "phase").into_iter().filter(|phase| *phase == 4).count()
    };
    let whole = super::json(folder.path(), &["automatic.rs", "--card", "11.5GiB"]);
    assert_eq!((recomputed(&whole), whole["card"]["name"].as_str()), (0, Some("card of 11.50 GiB")));
    assert_eq!(super::number(&whole["card"]["usable"]), 23 << 29);
    // Between the leanest step and the whole one. The reserve of a small size is larger.
    let line = |plan: &serde_json::Value, line: Line| super::number(&plan["budget"]["bytes"][line as usize]);
    let least = super::json(folder.path(), &["automatic.rs", "--card", "600MiB"]);
    let most = line(&whole, Line::Arena) + line(&least, Line::Reserve);
    let size = format!("{}MiB", (total(&least) + most) >> 21);
    let lean = super::json(folder.path(), &["automatic.rs", "--card", &size]);
    assert!(recomputed(&lean) > 0 && total(&lean) <= super::number(&lean["card"]["usable"]), "{size}");
    for (size, plan) in [("11.5GiB", &whole), (&size, &lean)] {
        let fit = super::command(folder.path(), "fit", &["automatic.rs", "--cards", size, "--format", "json"]);
        let fit: serde_json::Value = serde_json::from_str(&text(&fit.stdout)).unwrap();
        assert!(fit.to_string().contains(&format!("\"total\":{}", total(plan))), "{size}: {} in {fit}", total(plan));
        // No rate is known, so no time is told.
        assert_eq!(super::number(&plan["least_us"]), 0);
    }
    let both = super::json(folder.path(), &["automatic.rs", "--card", "11.5GiB", "--against", &format!("card={size}")]);
    assert_eq!(both[1]["tensors"], lean["tensors"]);
    let picture = text(&printed(folder.path(), &["automatic.rs", "--card", &size, "-o", "-", "--format", "svg"]));
    assert!(picture.contains("with the reserve, of ") && !picture.contains("MiB on "), "{picture}");
}

#[cfg(unix)]
#[test]
fn a_browser_is_opened() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = sources();
    let browser = folder.path().join("browser");
    std::fs::write(&browser, "#!/bin/sh\necho \"$1\" > opened.part && mv opened.part opened\n").unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = |browser: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        command.args(["gpumem", "timeline", "plain.rs", "--open", "--force"]).env("BROWSER", browser);
        command.current_dir(folder.path()).output().unwrap()
    };
    assert!(open(browser.to_str().unwrap()).status.success());
    let opened = folder.path().join("opened");
    let waited = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        opened.exists()
    });
    assert!(waited, "nothing was opened");
    let page = folder.path().canonicalize().unwrap().join("Plain-timeline.html");
    assert_eq!(std::fs::read_to_string(opened).unwrap().trim(), page.to_str().unwrap());
    let output = open("/nowhere/browser");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("yourself, or name one in `BROWSER`"), "{}", text(&output.stderr));
}
