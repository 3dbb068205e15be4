//! `explain`, with the text of the documentation.

use super::{failure, printed};
use serde_json::Value;

#[test]
fn terms_are_explained_as_the_pages_do() {
    let (text, code) = printed(&["explain", "reserve"]);
    assert_eq!(code, 0);
    assert!(
        text.starts_with("reserve (line of the budget)\n  what context, modules and library handles take"),
        "{text}"
    );
    assert!(
        text.contains("docs/reference/memory-model.md#lines-of-the-budget") && text.contains("reserve (glossary)"),
        "{text}"
    );
    assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 120), "{text}");
    let (text, _) = printed(&["explain", "peak", "at"]);
    assert!(
        text.starts_with("peak at (line of a refusal)\n  the operation during which the most bytes are alive\n"),
        "{text}"
    );
}

#[test]
fn all_terms_are_listed_and_wrong_ones_corrected() {
    let (text, _) = printed(&["explain"]);
    for part in [
        "line of the budget\n  weights, master,",
        "field of TRAIN\n  batch, optimizer,",
        "glossary\n",
        "live bytes, peak",
        "GPUMEM_CARDS",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(failure(&["explain", "checkpint"]).contains("no page explains `checkpint`; did you mean `checkpoint`?"));
    let (text, _) = printed(&["explain", "arena", "--format", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["entries"][0]["names"][0], "arena");
}
