//! Networks as files of ONNX.

use super::{FIXTURE, alone, failure, fits, gpumem, text, write};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

const NETWORK: &str = "use gpumem::prelude::*;

network! {
    pub struct Reader;

    const TRAIN: Train = Train { batch: 8, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy };

    fn forward(text: Tokens<16>) -> Logits<4> {
        [Embedding(50, 32), Add([], [LayerNorm, CausalSelfAttention(4)]), Gru(24), Select(-1), Linear(4)]
    }
}
";

/// Parameters of the network, as `state_dict` of PyTorch has them.
const TENSORS: [(&str, &[u64]); 13] = [
    ("embedding.weight", &[50, 32]),
    ("layer_norm.weight", &[32]),
    ("layer_norm.bias", &[32]),
    ("causal_self_attention.qkv.weight", &[96, 32]),
    ("causal_self_attention.qkv.bias", &[96]),
    ("causal_self_attention.proj.weight", &[32, 32]),
    ("causal_self_attention.proj.bias", &[32]),
    ("gru.weight_ih_l0", &[72, 32]),
    ("gru.weight_hh_l0", &[72, 24]),
    ("gru.bias_ih_l0", &[72]),
    ("gru.bias_hh_l0", &[72]),
    ("linear.weight", &[4, 24]),
    ("linear.bias", &[4]),
];

/// Writes tensors as safetensors, and returns the path.
fn safetensors(name: &str, tensors: &[(&str, &[u64])]) -> String {
    let (mut header, mut offset) = (Map::new(), 0);
    for (name, shape) in tensors {
        let end = offset + 4 * shape.iter().product::<u64>();
        header.insert((*name).into(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [offset, end] }));
        offset = end;
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.extend((0..offset / 4).flat_map(|at| (at as f32 / 1e4).to_le_bytes()));
    let path = FIXTURE.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().into()
}

/// Returns a path at which nothing is.
fn free(name: &str) -> PathBuf {
    let path = FIXTURE.join(name);
    for path in [path.clone(), path.with_extension("onnx.data")] {
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    path
}

#[test]
fn a_network_is_written() {
    let _alone = alone();
    write(&FIXTURE.join("reader.rs"), NETWORK);
    let weights = safetensors("reader.safetensors", &TENSORS);
    let file = free("reader.onnx");
    let export = ["export", "reader.rs", "-o", "reader.onnx", "--weights", &weights];
    let output = gpumem(&export);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("wrote `Reader` to reader.onnx"), "{}", text(&output.stderr));
    let whole = std::fs::read(&file).unwrap();
    // A file that exists stays as it is.
    std::fs::write(&file, "mine").unwrap();
    assert!(failure(&export).contains("reader.onnx exists; `--force` replaces it"));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let output = gpumem(&[&export[..], &["--force"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    // A file that may hold long tensors stays, too.
    let data = file.with_extension("onnx.data");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&data, "mine").unwrap();
    assert!(failure(&export).contains("reader.onnx.data exists; `--force` replaces it"));
    assert!(!file.exists());
    std::fs::remove_file(data).unwrap();
    // The file needs the memory that the source needs.
    std::fs::write(&file, whole).unwrap();
    let of = |file: &str| {
        let found = fits(&[file, "--cards", "t4,1GiB", "--batch", "8", "--optimizer", "adamw"]);
        assert_eq!(found.len(), 2, "{found:?}");
        let figures = ["card", "total", "left", "max_batch"].map(|key| found.iter().map(move |fit| fit[key].clone()));
        figures.map(Iterator::collect::<Vec<Value>>)
    };
    assert_eq!(of("reader.onnx"), of("reader.rs"));
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let _alone = alone();
    write(&FIXTURE.join("reader.rs"), NETWORK);
    let file = free("refused.onnx");
    let refusal = |weights: &str| failure(&["export", "reader.rs", "-o", "refused.onnx", "--weights", weights]);
    assert!(refusal("nowhere.safetensors").contains("nowhere.safetensors: cannot be opened"));
    let message = refusal("reader.rs");
    assert!(message.contains("is damaged, or no safetensors file"), "{message}");
    // All that is missing is told at once.
    let message = refusal(&safetensors("lacking.safetensors", &TENSORS[..11]));
    assert!(
        message.contains("has no tensor `linear.weight`") && message.contains("has no tensor `linear.bias`"),
        "{message}"
    );
    let mut other = TENSORS;
    other[7].1 = &[32, 72];
    let message = refusal(&safetensors("other.safetensors", &other));
    assert!(message.contains("has `gru.weight_ih_l0` of shape [32, 72], and the network has [72, 32]"), "{message}");
    let message =
        failure(&["export", "reader.rs", "-o", "other.safetensors", "--weights", "other.safetensors", "--force"]);
    assert!(message.contains("other.safetensors is read by this command; name another file to write"), "{message}");
    assert!(!file.exists());
}

#[test]
fn networks_that_cannot_be_written_are_named() {
    let _alone = alone();
    let weights = safetensors("some.safetensors", &TENSORS);
    let file = free("none.onnx");
    let export = |network: &str| failure(&["export", network, "-o", "none.onnx", "--weights", &weights]);
    let message = failure(&["export", "--quiet", "Wid", "-o", "none.onnx", "--weights", &weights]);
    assert!(message.contains("no network is called `Wid`; did you mean `Wide`?"), "{message}");
    write(&FIXTURE.join("coded.rs"), &NETWORK.replace("Linear(4)]", "lora(2, 4.0, Linear(4), base = Nf4)]"));
    let message = export("coded.rs");
    assert!(message.contains("CodedProduct, once, first in `linear`: its weight is quantized"), "{message}");
    assert!(export("nothing.rs").contains("cannot read nothing.rs"));
    assert!(!file.exists());
}
