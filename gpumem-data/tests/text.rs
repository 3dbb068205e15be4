//! From text to tokens and to windows.
#![cfg(feature = "tokenizers")]

use gpumem_data::Place;
use gpumem_data::sets::{Tokens, tokenize_u16, tokenize_u32};
use std::fs;
use std::path::Path;

/// A tokenizer of words, with these ids.
fn tokenizer(words: &[(&str, u32)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, id)| format!("\"{word}\": {id}")).collect();
    format!(
        "{{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {{\"type\": \"WhitespaceSplit\"}},
        \"post_processor\": null, \"decoder\": null, \"truncation\": null, \"padding\": null,
        \"model\": {{\"type\": \"WordLevel\", \"vocab\": {{{}}}, \"unk_token\": \"?\"}}}}",
        words.join(", ")
    )
}

fn message(path: &Path, result: gpumem_data::Result<u64>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.file(), Some(path), "{error}");
    error.to_string().replace(&format!("`{}`", path.display()), "FILE")
}

#[test]
fn text_becomes_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (text, model, out) = (path("a.txt"), path("tokenizer.json"), path("train.bin"));
    fs::write(&model, tokenizer(&[("?", 0), ("a", 1), ("b", 2)])).unwrap();
    fs::write(&text, "a b b\nc a\n".repeat(120_000)).unwrap();
    assert_eq!(tokenize_u16(&text, &model, &out).unwrap(), 600_000);
    let bytes = fs::read(&out).unwrap();
    let period: Vec<u8> = [1_u16, 2, 2, 0, 1].iter().flat_map(|token| token.to_le_bytes()).collect();
    assert!(bytes.chunks(10).all(|chunk| chunk == period));
    assert_eq!(Tokens::u16(&out, 8).unwrap().tokens(), 600_000);

    assert_eq!(tokenize_u32(&text, &model, &out).unwrap(), 600_000);
    assert_eq!(Tokens::u32(&out, 8).unwrap().tokens(), 600_000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn bad_text_and_bad_tokenizers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (text, model, out) = (path("a.txt"), path("tokenizer.json"), path("train.bin"));
    fs::write(&model, tokenizer(&[("?", 0), ("a", 70_000)])).unwrap();
    fs::write(&out, "what was there").unwrap();
    let run = |bytes: &[u8]| {
        fs::write(&text, bytes).unwrap();
        let result = tokenize_u16(&text, &model, &out);
        // Nothing is lost, and nothing incomplete is left.
        assert!(result.is_ok() || fs::read(&out).unwrap() == b"what was there");
        assert!(!path("train.bin.part").exists());
        result
    };
    let error = run(b"b b\nb\n\xff b").unwrap_err();
    assert_eq!(error.place(), Some(Place::Line(3)));
    assert_eq!(message(&text, Err(error)), "FILE, line 3: is not UTF-8; save it in UTF-8");
    let wide = "FILE: makes token 70000, which takes more than two bytes; write it with `tokenize_u32`";
    assert_eq!(message(&model, run(b"b a")), wide);
    let long = [b"b\n", &vec![b'x'; (16 << 20) + 1][..]].concat();
    let error =
        "FILE, line 2: takes more than the 16777216 bytes of memory that are allowed; break the line into several";
    assert_eq!(message(&text, run(&long)), error);

    fs::write(&model, "{}").unwrap();
    let error = message(&model, run(b"b"));
    assert!(
        error.starts_with("FILE: is no `tokenizer.json` (")
            && error.ends_with("download it from the model's page again")
    );
    fs::File::create(&model).unwrap().set_len(257 << 20).unwrap();
    let error =
        "FILE: takes more than the 268435456 bytes of memory that are allowed; give the `tokenizer.json` of a model";
    assert_eq!(message(&model, run(b"b")), error);
    fs::write(&model, tokenizer(&[("?", 0)])).unwrap();
    let nowhere = path("no/train.bin");
    let error = message(&nowhere, tokenize_u16(&text, &model, &nowhere));
    assert!(
        error.starts_with("FILE: cannot be written (No such file") && error.ends_with("the space that is left"),
        "{error}"
    );
    let missing = path("missing.txt");
    assert!(message(&missing, tokenize_u16(&missing, &model, &out)).starts_with("FILE: cannot be read (No such file"));

    // The file that is read is not written over.
    for own in [&text, &model] {
        let error = message(own, tokenize_u16(&text, &model, own));
        assert_eq!(error, "FILE: is read and would be written over; give the tokens a file of their own");
    }
    fs::write(&text, "b").unwrap();
    let words = tokenizer(&[("a", 0)]);
    fs::write(&model, words).unwrap();
    let error = message(&text, tokenize_u16(&text, &model, &out));
    assert!(error.starts_with("FILE, line 1: cannot be encoded ("), "{error}");
    assert!(error.ends_with("); take a tokenizer that knows all characters"), "{error}");
    // A file whose first bytes the system does not give.
    #[cfg(target_os = "linux")]
    {
        let memory = Path::new("/proc/self/mem");
        let error = message(memory, tokenize_u16(memory, &model, &out));
        assert!(error.starts_with("FILE: cannot be read (") && error.ends_with("); copy it again"), "{error}");
    }
}
