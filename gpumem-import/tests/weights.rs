//! Weights of a model, as safetensors.

use gpumem_import::batch::Batch;
use gpumem_import::lift::{Table, lift};
use gpumem_import::weights::{Plan, Tensors};
use gpumem_import::{Error, Pt2, open};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The tensors of `small.pt2`, whose elements count up from 100 times their place here.
const TENSORS: [(&str, &[usize]); 8] = [
    ("factor", &[3]),
    ("conv.weight", &[4, 2, 3, 3]),
    ("conv.bias", &[4]),
    ("bn.weight", &[4]),
    ("bn.bias", &[4]),
    ("embed.weight", &[5, 4]),
    ("bn.running_mean", &[4]),
    ("bn.running_var", &[4]),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weights").join(name)
}

fn small() -> PathBuf {
    file("small.pt2")
}

fn write(model: &Path, plan: &Plan, output: &Path) -> Result<usize, Error> {
    Tensors::open(model, plan, false)?.write(output)
}

/// Every parameter is there row by row, also the convolution's, which lies channels last in the file. The tied table is there once, and
/// buffers that no network loads are not.
#[test]
fn tensors_are_those_of_the_state_dict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.safetensors");
    assert_eq!(write(&small(), &Plan::default(), &path).unwrap(), TENSORS.len());
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), TENSORS.len());
    for (place, (name, shape)) in TENSORS.into_iter().enumerate() {
        let tensor = file.tensor(name).unwrap_or_else(|_| panic!("{name} is missing"));
        assert_eq!(tensor.shape(), shape, "{name}");
        let expected = (0..shape.iter().product::<usize>()).map(|at| (at + 100 * place) as f32);
        let found: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => tensor.data().chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect(),
            Dtype::BF16 => tensor.data().chunks(2).map(|two| f32::from_le_bytes([0, 0, two[0], two[1]])).collect(),
            other => panic!("{name} is {other:?}"),
        };
        assert_eq!(found, expected.collect::<Vec<f32>>(), "{name}");
    }
}

/// Tensors that the network names or shapes in another way are written in that way.
#[test]
fn tensors_are_written_as_the_network_has_them() {
    let model = Pt2::open(&small()).unwrap().model(None, &[]).unwrap();
    let lifted = lift(&model, &Batch::follow(&model).unwrap());
    let renamed = [("scale[0].weight".to_string(), "factor".to_string())];
    let shapes = [("scale[0].weight", &[1, 3][..]), ("bn.weight", &[5])];
    let plan = Plan::new(&lifted, &renamed, shapes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.safetensors");
    write(&small(), &plan, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("scale.0.weight").unwrap().shape(), [1, 3]);
    // A name that the network does not have, as that of a bias whose layer is tied, is no name.
    let plan = Plan::new(&lifted, &renamed, [("factor", &[3][..])]);
    assert!(Tensors::open(&small(), &plan, false).unwrap().all().iter().any(|tensor| tensor.name == "factor"));
    // A shape of another number of elements is not that of this tensor.
    assert_eq!(file.tensor("bn.weight").unwrap().shape(), [4]);
    assert!(file.tensor("factor").is_err());
}

/// Example inputs are an archive inside of the archive, which is not taken for the whole: that depends on the length of the name.
#[test]
fn an_archive_inside_of_another_is_a_record() {
    let model = Pt2::open(&file("in_parts.pt2")).unwrap().model(None, &[]).unwrap();
    assert_eq!(model.outputs.len(), 2);
}

/// A network may have a tied tensor under another of its names.
#[test]
fn tied_tensors_have_the_name_of_the_network() {
    let model = Pt2::open(&small()).unwrap().model(None, &[]).unwrap();
    let lifted = lift(&model, &Batch::follow(&model).unwrap());
    let named = |shapes: &[(&str, &[u64])]| {
        let tensors = Tensors::open(&small(), &Plan::new(&lifted, &[], shapes.iter().copied()), false).unwrap();
        let names = tensors.all().iter().map(|tensor| tensor.name.clone());
        names.filter(|name| ["embed.weight", "head.weight"].contains(&&name[..])).collect::<Vec<_>>()
    };
    assert_eq!(named(&[("head.weight", &[5, 4])]), ["head.weight"]);
    assert_eq!(named(&[("embed.weight", &[5, 4])]), ["embed.weight"]);
    assert_eq!(named(&[("embed.weight", &[5, 4]), ("head.weight", &[5, 4])]), ["embed.weight"]);
}

/// A buffer that the network has as a table is written once, with the numbers of the table; as a parameter, it needs numbers that are loaded.
#[test]
fn buffers_of_the_network_are_written_once() {
    let model = Pt2::open(&small()).unwrap().model(None, &[]).unwrap();
    let mut lifted = lift(&model, &Batch::follow(&model).unwrap());
    let shapes = [("steps", &[2][..])];
    let open = |plan: &Plan| Tensors::open(&small(), plan, false);
    let message = open(&Plan::new(&lifted, &[], shapes)).err().unwrap().to_string();
    assert!(message.contains("has `steps` as i64; only floating-point weights are loaded"), "{message}");
    lifted.tables.push(Table { key: "steps".into(), shape: vec![2], numbers: vec![3.0, 4.0] });
    let mut tensors = open(&Plan::new(&lifted, &[], shapes)).unwrap();
    assert_eq!(tensors.all().iter().filter(|tensor| tensor.name == "steps").count(), 1);
    assert_eq!(tensors.read_f32("steps", &[2]).unwrap(), [3f32, 4.0].map(f32::to_le_bytes).concat());
    let message = tensors.read_f32("steps", &[3]).unwrap_err().to_string();
    assert!(message.contains("has `steps` of shape [2], and the network has [3]"), "{message}");
    assert!(tensors.read_f32("none", &[3]).unwrap_err().to_string().contains("has no tensor for `none`"));
}

#[test]
fn nothing_is_left_of_what_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.safetensors");
    let message = |model: &Path, output: &Path| write(model, &Plan::default(), output).unwrap_err().to_string();
    let stripped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/alexnet.pt2");
    assert!(message(&stripped, &output).contains("has no weights"));
    let onnx = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/text_cnn.torchscript-train.onnx");
    assert!(
        message(&onnx, &output)
            .contains("in `stripped`, which is missing, or outside of its folder; put that file beside it")
    );
    assert!(message(&small(), &folder.path().join("none/out.safetensors")).contains("cannot be written"));
    // A file whose weights are cut off.
    let broken = folder.path().join("broken.pt2");
    let bytes = std::fs::read(small()).unwrap();
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    assert!(message(&broken, &output).contains("damaged"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The shape and the bits of each tensor, as f32.
type Loaded = BTreeMap<String, (Vec<u64>, Vec<u8>)>;

/// Returns the tensors that a network loads.
fn loaded(model: &Path, is_for_inference: bool) -> Result<Loaded, Error> {
    let read = open(model, is_for_inference)?;
    let lifted = lift(&read, &Batch::follow(&read).unwrap());
    let mut tensors = Tensors::open(model, &Plan::new(&lifted, &[], []), is_for_inference)?;
    let all: Vec<(String, Vec<u64>)> =
        tensors.all().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect();
    all.into_iter().map(|(name, shape)| Ok((name.clone(), (shape.clone(), tensors.read_f32(&name, &shape)?)))).collect()
}

/// Matrices that an exporter has transposed, and gates in another order, come out as PyTorch has them.
#[test]
fn weights_of_onnx_are_those_of_the_program() {
    for name in ["vision", "tagger"] {
        let expected = loaded(&file(&format!("{name}.pt2")), false).unwrap();
        assert!(expected.len() > 8, "{name}: {:?}", expected.keys());
        for form in ["onnx", "external.onnx"] {
            let found = loaded(&file(&format!("{name}.{form}")), false).unwrap();
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}.{form}");
            for (key, tensor) in &expected {
                assert_eq!(&found[key], tensor, "{name}.{form}: {key}");
            }
        }
    }
    // An export for inference has recurrent layers as they are.
    assert_eq!(loaded(&file("tagger.eval.onnx"), true).unwrap(), loaded(&file("tagger.pt2"), false).unwrap());
}

/// BatchNorm that is part of a convolution changes its weights, and leaves all others.
#[test]
fn weights_of_an_export_for_inference_are_its_own() {
    let (found, expected) =
        (loaded(&file("vision.eval.onnx"), true).unwrap(), loaded(&file("vision.pt2"), false).unwrap());
    let numbers =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect() };
    let of = |key: &str| numbers(&expected[key].1);
    let (factor, variance) = (of("bn.weight"), of("bn.running_var"));
    let folded = numbers(&found["conv.weight"].1);
    for (at, (folded, plain)) in folded.iter().zip(of("conv.weight")).enumerate() {
        let channel = at / 18;
        let number = plain * factor[channel] / (variance[channel] + 1e-5).sqrt();
        assert!((folded - number).abs() < 1e-5, "{at}: {folded} beside {number}");
    }
    assert!(found.contains_key("conv.bias") && !found.contains_key("bn.weight"), "{:?}", found.keys());
    for key in ["fc.weight", "fc.bias", "mix.bias"] {
        assert_eq!(found[key], expected[key], "{key}");
    }
}

/// Every length in a file beside the model is checked before memory is taken.
#[test]
fn damaged_data_of_onnx_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = (folder.path().join("vision.external.onnx"), folder.path().join("vision.external.data"));
    let output = folder.path().join("out.safetensors");
    let whole = std::fs::read(file("vision.external.onnx")).unwrap();
    std::fs::write(&model, &whole).unwrap();
    let message = || write(&model, &Plan::default(), &output).unwrap_err().to_string();
    assert!(message().contains("in `vision.external.data`, which is missing"), "{}", message());
    let bytes = std::fs::read(file("vision.external.data")).unwrap();
    for length in 0..bytes.len() {
        std::fs::write(&data, &bytes[..length]).unwrap();
        assert!(message().contains("beyond the end of `vision.external.data`, which has"), "{length}: {}", message());
    }
    std::fs::write(&data, &bytes).unwrap();
    // The length of the first tensor: that of the convolution, of 4 * 2 * 3 * 3 elements.
    let at = whole.windows(3).position(|three| three == b"288").unwrap();
    let mut changed = whole.clone();
    changed[at..at + 3].copy_from_slice(b"284");
    std::fs::write(&model, &changed).unwrap();
    assert!(message().contains("has 284 bytes for `conv.weight`, whose shape needs 288"), "{}", message());
    for at in (0..whole.len()).step_by(3) {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= change;
            std::fs::write(&model, &changed).unwrap();
            let _ = write(&model, &Plan::default(), &output);
        }
    }
    // A model in one piece, cut anywhere.
    let whole = std::fs::read(file("vision.onnx")).unwrap();
    let _ = std::fs::remove_file(&output);
    for length in 0..whole.len() {
        std::fs::write(&model, &whole[..length]).unwrap();
        assert!(write(&model, &Plan::default(), &output).is_err() || length > whole.len() - 8, "{length}");
    }
}
