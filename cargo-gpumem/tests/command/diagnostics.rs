//! `cargo gpumem fit --message-format json`: what an editor reads.

use super::{FIXTURE, alone, clean, failure, fits, gpumem, line_of, text, write};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Applicability, Diagnostic, DiagnosticLevel};
use std::path::Path;
use std::process::{Command, Output};

/// The messages of an output, as a reader of cargo's output has them.
fn messages(output: &Output) -> Vec<Message> {
    let parsed = Message::parse_stream(&output.stdout[..]).map(Result::unwrap);
    let is_text = |message: &Message| matches!(message, Message::TextLine(_));
    let all: Vec<Message> = parsed.collect();
    assert!(!all.iter().any(is_text), "{}", text(&output.stdout));
    all
}

/// The diagnostics whose code begins with `gpumem::`, each with the name of its target.
fn own(all: &[Message]) -> Vec<(Diagnostic, String)> {
    let of = |message: &Message| match message {
        Message::CompilerMessage(it) if it.message.code.as_ref()?.code.starts_with("gpumem::") => {
            assert!(it.package_id.repr.contains("/cargo-gpumem") || it.package_id.repr.contains("/one"), "{it:?}");
            Some((it.message.clone(), it.target.name.clone()))
        }
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

fn code(diagnostic: &Diagnostic) -> &str {
    diagnostic.code.as_ref().map(|code| &*code.code).unwrap_or_default()
}

fn ended(all: &[Message]) -> Option<bool> {
    match all.last() {
        Some(Message::BuildFinished(end)) => Some(end.success),
        _ => None,
    }
}

#[test]
fn a_refusal_is_an_error_at_the_batch() {
    let _alone = alone();
    let output = gpumem(&["fit", "--quiet", "Huge", "Wide", "--cards", "t4", "--message-format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let all = messages(&output);
    assert_eq!(ended(&all), Some(false));
    let ends = all.iter().filter(|message| matches!(message, Message::BuildFinished(_))).count();
    let built = all.iter().filter(|message| matches!(message, Message::CompilerArtifact(_))).count();
    assert!(ends == 1 && built > 1, "{}", text(&output.stdout));
    let own = own(&all);
    let of = |name: &str| own.iter().find(|(it, _)| it.message.starts_with(&format!("`{name}`"))).unwrap();
    let (huge, target) = of("Huge");
    assert_eq!((huge.level, code(huge), &**target), (DiagnosticLevel::Error, "gpumem::too_large", "fixture"));
    assert!(
        huge.message.starts_with("`Huge` at batch 4096 needs ") && huge.message.contains(" is over by "),
        "{huge:?}"
    );
    let [span] = &huge.spans[..] else { panic!("{huge:?}") };
    let source = std::fs::read_to_string(FIXTURE.join(&span.file_name)).unwrap();
    assert_eq!(&source[span.byte_start as usize..span.byte_end as usize], "batch: 4096");
    assert_eq!((span.line_start, span.line_end), (line_of("batch: 4096"), line_of("batch: 4096")));
    let line: Vec<char> = span.text[0].text.chars().collect();
    let marked = |from: usize, to: usize| line[from - 1..to - 1].iter().collect::<String>();
    assert_eq!(marked(span.column_start, span.column_end), "batch: 4096");
    assert_eq!(marked(span.text[0].highlight_start, span.text[0].highlight_end), "batch: 4096");

    // An editor offers the largest batch, and shows what else would fit.
    let answer = &fits(&["Huge", "--cards", "t4"])[0];
    let fixes: Vec<_> = huge.children.iter().filter(|child| !child.spans.is_empty()).collect();
    let [fix] = &fixes[..] else { panic!("{huge:?}") };
    assert_eq!(fix.spans[0].suggested_replacement, Some(answer["max_batch"].to_string()));
    assert_eq!(fix.spans[0].suggestion_applicability, Some(Applicability::MaybeIncorrect));
    assert_eq!(&source[fix.spans[0].byte_start as usize..fix.spans[0].byte_end as usize], "4096");
    let others = answer["alternatives"].as_array().unwrap();
    assert!(!others.is_empty(), "{answer}");
    for other in others {
        let change = format!("it fits with {}: ", other["change"].as_str().unwrap());
        assert!(huge.children.iter().any(|child| child.message.starts_with(&change)), "{change}: {huge:?}");
    }
    let rendered = huge.rendered.as_ref().unwrap();
    let place = format!("--> src/lib.rs:{}:{}\n", span.line_start, span.column_start);
    assert!(rendered.starts_with("error[gpumem::too_large]: `Huge`") && rendered.contains(&place), "{rendered}");

    let (wide, _) = of("Wide");
    assert_eq!((wide.level, code(wide)), (DiagnosticLevel::Help, "gpumem::fits"));
    assert!(wide.message.contains(" and fits, ") && wide.message.contains("; the largest batch is "), "{wide:?}");
    assert_eq!(wide.spans[0].line_start, line_of("batch: BATCH"));
    // Its batch is a constant, which an editor cannot replace.
    assert!(wide.children.iter().all(|child| child.spans.is_empty()), "{wide:?}");
}

#[test]
fn networks_without_an_answer_are_warnings() {
    let _alone = alone();
    let output = gpumem(&["fit", "--quiet", "--message-format", "json"]);
    let all = messages(&output);
    let own = own(&all);
    let left_out: Vec<&Diagnostic> = own.iter().map(|(it, _)| it).filter(|it| code(it) == "gpumem::left_out").collect();
    let names: Vec<&str> = left_out.iter().filter_map(|it| it.message.split('`').nth(1)).collect();
    assert_eq!(names, ["Again", "Both", "Writer", "Generic<64>", "Critic"]);
    for it in &left_out {
        assert_eq!((it.level, &*it.children[0].message), (DiagnosticLevel::Warning, NAME_CARDS), "{it:?}");
    }
    assert_eq!(left_out[2].spans[0].line_start, line_of("const INFER: Infer = Infer { batch: 2, cache"));
    // A `fits!` has no batch: its whole line is marked.
    let both = own.iter().find(|(it, _)| it.message.starts_with("`Generator + Serving<Critic>`")).unwrap();
    let span = &both.0.spans[0];
    assert_eq!((span.line_start, &*span.text[0].text), (line_of("fits!(Generator"), FITS));
    assert_eq!(span.column_end - span.column_start, FITS.len());
}

const NAME_CARDS: &str = "name cards in `cards:`, or ask about some with `--cards t4,l4`";
const FITS: &str = "fits!(Generator + Serving<Critic>, T4, L4);";

/// The batch that an editor offers fits all cards of the network.
#[test]
fn the_correction_is_that_of_the_smallest_card() {
    let _alone = alone();
    let own = own(&messages(&gpumem(&["fit", "--quiet", "Shared", "--message-format", "json"])));
    let offered: Vec<_> = own.iter().flat_map(|(it, _)| &it.children).filter(|child| !child.spans.is_empty()).collect();
    let [fix] = &offered[..] else { panic!("{own:?}") };
    let answers = fits(&["Shared"]);
    let least = answers.iter().map(|fit| fit["max_batch"].as_u64().unwrap()).min().unwrap();
    assert!(answers.len() == 2 && fix.spans[0].suggested_replacement == Some(least.to_string()), "{fix:?}");
}

/// All cards are no refusal, and no screen of hints either.
#[test]
fn all_cards_are_one_message() {
    let _alone = alone();
    let output = gpumem(&["fit", "--quiet", "Huge", "--all", "--message-format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let all = messages(&output);
    let own = own(&all);
    let [(huge, _)] = &own[..] else { panic!("{own:?}") };
    assert_eq!((huge.level, ended(&all)), (DiagnosticLevel::Help, Some(true)));
    assert!(huge.message.starts_with("`Huge` at batch 4096 fits ") && huge.message.ends_with(" cards"), "{huge:?}");
    let small = &huge.children[0].message;
    assert!(small.starts_with("too small: ") && small.ends_with(" more") && small.len() < 300, "{small}");
}

/// A mistake is told as the compiler tells it, and a crate that names no card with a warning.
#[test]
fn mistakes_are_the_messages_of_the_compiler() {
    let _alone = alone();
    gpumem(&["fit", "--quiet", "Wide"]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one");
    let manifest = std::fs::read_to_string(FIXTURE.join("Cargo.toml")).unwrap();
    std::fs::create_dir_all(folder.join("src")).unwrap();
    write(&folder.join("Cargo.toml"), &manifest.replace("name = \"fixture\"", "name = \"one\""));
    std::fs::copy(FIXTURE.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let run = |layer: &str| {
        let network = format!(
            "gpumem::network! {{\n    pub struct Net;\n    const TRAIN: Train = Train {{ batch: 4, loss: Mse }};\n    \
             fn forward(x: Features<8>) -> Features<8> {{ [{layer}(8)] }}\n}}\n"
        );
        write(&folder.join("src/lib.rs"), &network);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let command =
            clean(&mut command).current_dir(&folder).args(["gpumem", "fit", "--quiet", "--message-format", "json"]);
        let output = command.env("CARGO_TARGET_DIR", FIXTURE.join("target")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let all = messages(&output);
        assert_eq!(ended(&all), Some(false));
        (all, text(&output.stderr))
    };
    let (all, errors) = run("Lienar");
    let is_mistake = |message: &Message| matches!(message, Message::CompilerMessage(it) if it.message.message.contains("did you mean `Linear`?"));
    assert!(all.iter().any(is_mistake) && errors.contains("the build failed"), "{errors}");
    let (all, errors) = run("Linear");
    let own = own(&all);
    let [(it, target)] = &own[..] else { panic!("{own:?}") };
    assert_eq!((code(it), it.spans[0].line_start, &**target), ("gpumem::left_out", 3, "one"));
    assert!(errors.contains("no card is named"), "{errors}");
}

#[test]
fn a_format_is_for_people_or_for_editors() {
    let _alone = alone();
    let message = failure(&["fit", "--format", "json", "--message-format", "json"]);
    assert!(message.contains("cannot be used with"), "{message}");
    let message = failure(&["fit", "src/lib.rs", "--message-format", "json"]);
    assert!(
        message.contains("`--message-format` is for networks of a build; for files write `--format json`"),
        "{message}"
    );
}
