//! Networks of files, which are read without a build, beside those of the build.

use super::{FIXTURE, alone, clean, failure, fits, printed, text, write};
use serde_json::Value;
use std::process::Command;

/// The answers of a build, without those that a text alone does not give: a `fits!`, and an instance that it asks for.
fn of_build(options: &[&str], left_out: &[&str]) -> Vec<Value> {
    let is_read = |fit: &Value| {
        let name = fit["network"].as_str().unwrap();
        fit["program"] != "together" && !name.contains('<') && !left_out.contains(&name)
    };
    let mut found: Vec<Value> = fits(options).into_iter().filter(is_read).collect();
    found.iter_mut().for_each(|fit| fit["package"] = Value::Null);
    found
}

/// Every figure is that of the build, to the byte.
#[test]
fn a_file_is_answered_as_its_build_is() {
    let _alone = alone();
    // The batch of `Wide` is a constant of other code.
    for (options, left_out) in [
        (&[][..], &["Wide"][..]),
        (&["--cards", "t4,h100-sxm,1GiB"], &["Wide"]),
        (&["--cards", "l4", "--headroom", "1GiB"], &["Wide"]),
        (&["--cards", "t4", "--batch", "16", "--precision", "Bf16"], &[]),
    ] {
        let read = fits(&[&["src/lib.rs"], options].concat());
        let expected = of_build(options, left_out);
        assert!(read.len() > 4, "{read:?}");
        for (read, expected) in read.iter().zip(&expected) {
            assert_eq!(read, expected);
        }
        assert_eq!(read.len(), expected.len());
    }
}

#[test]
fn a_file_needs_no_build() {
    let _alone = alone();
    let other = FIXTURE.join("net.rs");
    let net = "use gpumem::prelude::*;\n\nnetwork! {\n    pub struct Net;\n\n    fn forward(x: Features<64>) -> Logits<10> {\n        [Linear(256), Relu, Linear(10)]\n    }\n}\n";
    write(&other, net);
    let total = |options: &[&str]| {
        let found = fits(&[&["net.rs", "--cards", "t4"], options].concat());
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0]["program"].clone(), found[0]["total"].as_u64().unwrap())
    };
    let (program, inference) = total(&[]);
    let (trained, sgd) = total(&["--optimizer", "sgd", "--batch", "32"]);
    let (_, adam) = total(&["--optimizer", "AdamW", "--batch", "32"]);
    let (_, checked) = total(&["--checkpoint", "auto", "--batch", "32"]);
    assert_eq!((program, trained), (Value::from("infer"), Value::from("train")));
    assert!(inference < sgd && sgd < adam && checked <= adam, "{inference}, {sgd}, {adam}, {checked}");
    let most = &fits(&["net.rs", "--cards", "t4", "--optimizer", "sgd", "--batch", "largest"])[0];
    assert!(
        most["fits"] == true && most["batch"] == most["max_batch"] && most["batch"].as_u64().unwrap() > 1000,
        "{most}"
    );
    let (printed, _) =
        printed(&["fit", "net.rs", "--cards", "t4,h100-sxm", "--optimizer", "sgd", "--batch", "largest"]);
    assert!(printed.lines().all(|line| !line.contains("over by")), "{printed}");
    assert!(failure(&["show", "--batch", "largest"]).contains("`--batch largest` is for `cargo gpumem fit`"));
    write(&other, &net.replace("Relu", "Relo"));
    let message = failure(&["fit", "net.rs", "--cards", "t4"]);
    assert!(message.contains("net.rs:7:23: no layer or block is called `Relo`; did you mean `Relu`?"), "{message}");
    let message = failure(&["fit", "src/lib.rs", "Wide"]);
    assert!(message.contains("name networks of a build, or files, but not both"), "{message}");
    assert!(failure(&["fit", "none.rs"]).contains("cannot read none.rs: "));
    assert!(failure(&["fit", "--optimizer", "sgd"]).contains("`--optimizer` and `--checkpoint` are for files"));
    assert!(
        failure(&["fit", "net.rs", "--optimizer", "sgdd"]).contains("no optimizer is called sgdd; did you mean Sgd?")
    );
}

/// Networks whose numbers a text alone does not give are left out, and the others have answers.
#[test]
fn networks_of_a_file_without_an_answer() {
    let _alone = alone();
    let (printed, code) = printed(&["fit", "src/lib.rs"]);
    assert_eq!(code, 1, "{printed}");
    let line = printed.lines().find(|line| line.starts_with("Wide ")).unwrap();
    assert!(line.contains("src/lib.rs:") && line.contains("`batch` is an expression"), "{line}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    let command = clean(&mut command).args(["gpumem", "fit", "src/lib.rs"]);
    command.env("GPUMEM_CARDS", "h100-sxm").env("GPUMEM_VRAM", "2GiB").env("GPUMEM_HEADROOM", "1GiB");
    assert_eq!(text(&command.output().unwrap().stdout), printed);
}
