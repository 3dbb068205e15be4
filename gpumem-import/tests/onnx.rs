//! Reads ONNX files of several exporters, and compares them with exported programs of the same models.

use gpumem_import::batch::Batch;
use gpumem_import::lift::Literal;
use gpumem_import::model::{Model, StateKind};
use gpumem_import::read::onnx::Transform;
use gpumem_import::{Onnx, Pt2};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(format!("{name}.onnx"))
}

fn read(name: &str) -> Model {
    Onnx::open(&file(name)).unwrap().model(None, &[]).unwrap()
}

fn program(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(format!("{name}.pt2"));
    Pt2::open(&path).unwrap().model(None, &[]).unwrap()
}

/// Returns the keys and the shapes of all parameters.
fn parameters(model: &Model) -> BTreeMap<&str, &[u64]> {
    let all = model.state.iter().filter(|state| matches!(state.kind, StateKind::Parameter { .. }));
    all.map(|state| (&state.key[..], &model.values[state.value].shape[..])).collect()
}

fn outputs(model: &Model) -> Vec<&[u64]> {
    model.outputs.iter().map(|&output| &model.values[output].shape[..]).collect()
}

/// Writes an argument with the digits that an f32 has.
fn written(literal: &Literal) -> String {
    match literal {
        Literal::Float(number) => format!("{:.5e}", number),
        other => other.to_string(),
    }
}

/// Returns how often each layer occurs. `dropout` is true if layers of that kind count.
fn layers(model: &Model, dropout: bool) -> BTreeMap<String, usize> {
    let batch = Batch::follow(model).unwrap();
    let mut counts = BTreeMap::new();
    for layer in gpumem_import::lift::lift(model, &batch).layers {
        if !dropout && layer.kind.starts_with("Dropout") {
            continue;
        }
        let arguments: Vec<String> = layer.arguments.iter().map(written).collect();
        // ONNX does not say which row of a table is for padding, nor what is written in place.
        let options =
            layer.options.iter().filter(|(name, _)| *name != "padding_idx" && (dropout || *name != "dropout"));
        let options: Vec<String> = options.map(|(name, value)| format!("{name} = {}", written(value))).collect();
        *counts.entry(format!("{}({} {})", layer.kind, arguments.join(", "), options.join(", "))).or_insert(0) += 1;
    }
    counts
}

#[test]
fn exports_for_training_are_those_of_torch_export() {
    let names = [
        "vae_784",
        "text_cnn",
        "conv_autoencoder",
        "dcgan_generator",
        "timm_vit_small_patch16_224",
        "timm_poolformer_s12",
    ];
    for name in names {
        let (onnx, program) = (read(&format!("{name}.torchscript-train")), program(name));
        assert_eq!(parameters(&onnx), parameters(&program), "{name}");
        assert_eq!(outputs(&onnx), outputs(&program), "{name}");
        assert_eq!(layers(&onnx, true), layers(&program, true), "{name}");
    }
}

#[test]
fn recurrent_layers_are_whole() {
    for (name, export) in
        [("bilstm_tagger", "dynamo-train-raw"), ("bilstm_tagger", "torchscript-eval"), ("lstm_lm", "dynamo-eval")]
    {
        let (onnx, program) = (read(&format!("{name}.{export}")), program(name));
        assert_eq!(outputs(&onnx), outputs(&program), "{name}.{export}");
        let trains = export == "dynamo-train-raw";
        assert_eq!(layers(&onnx, trains), layers(&program, trains), "{name}.{export}");
        for (key, shape) in parameters(&program) {
            assert_eq!(parameters(&onnx).get(key), Some(&shape), "{name}.{export}: {key}");
        }
    }
}

#[test]
fn what_exporters_take_apart_is_put_together() {
    let name = "timm_vit_small_patch16_224";
    let expected = layers(&program(name), false);
    for export in ["torchscript-eval-opset14", "torchscript-eval-dynamic-axes", "dynamo-eval-opset23"] {
        let model = read(&format!("{name}.{export}"));
        assert_eq!(layers(&model, false), expected, "{export}");
        assert_eq!(model.parameters(), program(name).parameters(), "{export}");
        assert!(model.has_symbolic_batch);
    }
}

#[test]
fn files_of_one_sample_are_read_for_any_batch() {
    for name in [
        "timm_vit_small_patch16_224.torchscript-eval-opset14",
        "gru_lm.torchscript-eval",
        "bilstm_tagger.torchscript-eval",
    ] {
        let file = Onnx::open(&file(name)).unwrap();
        for batch in [1, 3, 32] {
            let model = file.model(Some(batch), &[]).unwrap();
            assert_eq!(model.batch, Some(batch), "{name}");
            for output in outputs(&model) {
                assert!(output[0] == batch || output[0] % batch == 0 && batch > 1, "{name}: {output:?} for {batch}");
            }
        }
    }
}

#[test]
fn weights_have_their_names_and_order() {
    let weights = Onnx::open(&file("bilstm_tagger.torchscript-eval")).unwrap().weights(&[]).unwrap();
    let of = |key: &str| weights.iter().find(|weight| weight.key == key).unwrap_or_else(|| panic!("{key}"));
    assert_eq!(of("fc.weight").transform, Transform::Transposed);
    assert_eq!(of("fc.weight").shape, [17, 256]);
    assert_eq!(of("embedding.weight").transform, Transform::AsIs);
    let reverse = of("lstm.weight_hh_l1_reverse");
    assert_eq!(reverse.shape, [512, 128]);
    assert_eq!(reverse.transform, Transform::Gates { first: 512 * 128, order: &[0, 2, 3, 1] });
    let bias = of("lstm.bias_hh_l0");
    assert_eq!(bias.transform, Transform::Gates { first: 512, order: &[0, 2, 3, 1] });
    let place = of("embedding.weight").place.clone().unwrap();
    assert_eq!(place.length, 20000 * 100 * 4);
}

/// Biases that are 0 everywhere are one tensor in the file, and one each in the model.
#[test]
fn merged_biases_are_taken_apart() {
    let model = read("merged_biases.dynamo-eval");
    let own = parameters(&model);
    let mut keys: Vec<&str> = own.keys().copied().collect();
    keys.sort_unstable();
    let layers = ["layers.0.down", "layers.0.norm", "layers.0.up", "layers.1.down", "layers.1.norm", "layers.1.up"];
    let mut expected: Vec<String> = ["head", "norm"]
        .iter()
        .chain(&layers)
        .flat_map(|layer| [format!("{layer}.bias"), format!("{layer}.weight")])
        .collect();
    expected.sort();
    assert_eq!(keys, expected);
    for name in ["layers.0.up", "layers.1.up", "head"] {
        assert_eq!(own[&format!("{name}.weight")[..]], [16, 8], "{name}");
        assert_eq!(own[&format!("{name}.bias")[..]], [16], "{name}");
    }
}

/// A file does not say that a table has a row for padding. Positions that skip a token do.
#[test]
fn positions_skip_padding() {
    let model = read("padded_positions.torchscript-train");
    let lifted = gpumem_import::lift::lift(&model, &Batch::follow(&model).unwrap());
    assert!(lifted.unknown.is_empty(), "{:?}", lifted.unknown);
    let positions = lifted.layers.iter().find(|layer| layer.kind == "PositionEmbedding").unwrap();
    assert_eq!(positions.arguments, [Literal::Int(16), Literal::Int(8)]);
    assert_eq!(positions.options, [("padding_idx", Literal::Int(1))]);
}

#[test]
fn folded_batch_norms_are_named() {
    let file = Onnx::open(&file("mnasnet1_0.dynamo-eval")).unwrap();
    let error = file.model(None, &[]).unwrap_err();
    assert!(error.what.contains("has BatchNorm folded into the convolution `layers.1` and 51 more"), "{error}");
    assert!(error.what.contains("training=torch.onnx.TrainingMode.TRAINING"), "{error}");
    let model = file.for_inference(true).model(None, &[]).unwrap();
    let convolutions = model.nodes.iter().filter(|node| node.op == "conv2d");
    assert_eq!(convolutions.count(), 52);
    assert_eq!(outputs(&model), [[2, 1000]]);
}

#[test]
fn broken_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.onnx");
    let whole = std::fs::read(file("text_cnn.torchscript-train")).unwrap();
    for length in (0..whole.len()).step_by(37) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(Onnx::open(&path).and_then(|file| file.model(None, &[])).is_err(), "{length}");
    }
    // What becomes of a changed byte is one or the other, but never a panic.
    for at in (0..whole.len()).step_by(11) {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= change;
            std::fs::write(&path, &changed).unwrap();
            let _ = Onnx::open(&path).and_then(|file| file.model(Some(3), &[]));
        }
    }
}

#[test]
fn data_outside_of_the_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outside.onnx");
    let whole = std::fs::read(file("text_cnn.torchscript-train")).unwrap();
    // A location of the same length, so that no other byte changes.
    let text: Vec<u8> = whole.windows(8).position(|bytes| bytes == b"stripped").map(|_| whole.clone()).unwrap();
    let places: Vec<usize> = (0..text.len() - 8).filter(|&at| &text[at..at + 8] == b"stripped").collect();
    let mut changed = text;
    for at in places {
        changed[at..at + 8].copy_from_slice(b"../etc/x");
    }
    std::fs::write(&path, &changed).unwrap();
    let error = Onnx::open(&path).unwrap().model(None, &[]).unwrap_err();
    assert!(error.what.contains("outside of the file's folder"), "{error}");
}
