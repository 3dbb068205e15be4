//! Requests of other programs: models in files, with settings as texts.

use cargo_gpumem::{Request, bytes, cards};
use serde_json::Value;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpumem-import/tests/models");

fn request() -> Request {
    Request { file: format!("{MODELS}/vae_784.pt2"), ..Request::default() }
}

fn refused(request: Request) -> String {
    request.answer().unwrap_err().to_string()
}

fn text(value: &str) -> Option<String> {
    Some(value.into())
}

#[test]
fn an_answer_has_the_keys_of_the_command_and_another_name() {
    let cards = vec!["t4".to_string(), "16MiB".into()];
    let report = Request { name: text("Vae"), cards, batch: text("8"), ..request() }.answer().unwrap();
    let json: Value = serde_json::from_str(&report.json).unwrap();
    assert!(json["files"][0]["file"] == "Vae" && json["fits"][0]["batch"] == 8, "{json}");
    assert!(json["fits"][0]["fits"] == true && json["fits"][1]["fits"] == false, "{json}");
    assert!(report.table.starts_with("Vae: Vae (torch.export"), "{}", report.table);
}

#[test]
fn a_wrong_value_is_named_with_what_was_meant() {
    let cards = vec!["rtx3061".to_string()];
    let said = refused(Request { cards, card_list: text("`gpumem.cards()`"), ..request() });
    assert_eq!(said, "cards: \"rtx3061\": did you mean rtx3060? `gpumem.cards()` lists them");
    let said = refused(Request { optimizer: text("adamv"), ..request() });
    assert!(said.starts_with("optimizer: no optimizer is called adamv; did you mean Adam"), "{said}");
    let said = refused(Request { precision: text("bf61"), ..request() });
    assert!(said.starts_with("precision: did you mean Bf16? "), "{said}");
    assert_eq!(Request::default().check(), Ok(()));
    assert!(Request { batch: text("-1"), ..Request::default() }.check().is_err());
    assert!(refused(Request { batch: text("0"), ..request() }).starts_with("batch: write a number of samples"));
    assert_eq!(
        refused(Request { pytorch_update: text("forloop"), ..request() }),
        "pytorch_update: did you mean for-loop? write foreach, for-loop, fused"
    );
    assert!(refused(Request { headroom: text("lots"), ..request() }).starts_with("headroom: "));
    assert!(refused(Request { checkpoint: text("all"), ..request() }).starts_with("checkpoint: write None"));
}

#[test]
fn a_file_that_is_no_model_is_refused() {
    let said = refused(Request { file: "net.pt".into(), ..request() });
    assert_eq!(said, "model: `net.pt` is no file of `torch.export.save` (.pt2) or of ONNX (.onnx)");
    assert_eq!(refused(Request { file: "none.pt2".into(), ..request() }), "model: there is no file none.pt2");
}

/// A program that made the file itself has another name for it.
#[test]
fn an_error_has_the_name_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.pt2");
    std::fs::write(&file, "PK").unwrap();
    let said = refused(Request { file: file.display().to_string(), name: text("Net"), ..Request::default() });
    assert!(said.starts_with("Net: ") && !said.contains("model.pt2"), "{said}");
}

/// Memory that is left to others is missing in PyTorch too.
#[test]
fn headroom_is_for_both() {
    let largest = |headroom: Option<String>| {
        let report = Request { cards: vec!["t4".into()], headroom, ..request() }.answer().unwrap();
        let json: Value = serde_json::from_str(&report.json).unwrap();
        let of = |answer: &Value| answer["max_batch"].as_u64().unwrap();
        [of(&json["fits"][0]), of(&json["files"][0]["pytorch"]["cards"][0])]
    };
    let ([ours, theirs], [our_rest, their_rest]) = (largest(None), largest(text("7GiB")));
    assert!(our_rest < ours && their_rest < theirs * 3 / 5, "{our_rest} of {ours}, {their_rest} of {theirs}");
}

#[test]
fn a_card_that_is_too_small_has_changes_that_fit() {
    let gpt2 = || Request { file: format!("{MODELS}/gpt2.pt2"), cards: vec!["rtx3060".into()], ..Request::default() };
    let fits = |request: Request| {
        let json: Value = serde_json::from_str(&request.answer().unwrap().json).unwrap();
        json["fits"][0].clone()
    };
    let refused = fits(Request { batch: text("256"), ..gpt2() });
    let alternatives = refused["alternatives"].as_array().unwrap();
    assert!(refused["fits"] == false && !alternatives.is_empty(), "{refused}");
    for alternative in alternatives {
        assert!(alternative["total"].as_u64() <= refused["usable"].as_u64(), "{alternative}");
    }
    // A change does what it says.
    let change = alternatives.iter().find(|it| it["change"].as_str().unwrap().starts_with("checkpoint: Auto")).unwrap();
    let recomputed = fits(Request { batch: text("256"), checkpoint: text("auto"), ..gpt2() });
    assert!(recomputed["fits"] == true && recomputed["total"] == change["total"], "{recomputed} {change}");
    assert_eq!(recomputed["alternatives"], Value::Array(Vec::new()));
    // All cards at once have none, since they would take long.
    let of_all = Request { cards: Vec::new(), batch: text("4096"), file: format!("{MODELS}/vae_784.pt2"), ..gpt2() };
    let json: Value = serde_json::from_str(&of_all.answer().unwrap().json).unwrap();
    assert!(json["fits"].as_array().unwrap().iter().all(|it| it["alternatives"] == Value::Array(Vec::new())));
}

#[test]
fn cards_and_sizes_are_those_of_the_command() {
    let cards: Value = serde_json::from_str(&cards()).unwrap();
    let t4 = cards["cards"].as_array().unwrap().iter().find(|card| card["slug"] == "t4").unwrap();
    assert_eq!(bytes(t4["usable"].as_u64().unwrap()), "14.56 GiB");
}
