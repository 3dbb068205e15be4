//! Weights of a model, as safetensors.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::weights::{Plan, write};
use safetensors::{Dtype, SafeTensors};
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

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weights/small.pt2")
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
    // A shape of another number of elements is not that of this tensor.
    assert_eq!(file.tensor("bn.weight").unwrap().shape(), [4]);
    assert!(file.tensor("factor").is_err());
}

#[test]
fn nothing_is_left_of_what_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.safetensors");
    let message = |model: &Path, output: &Path| write(model, &Plan::default(), output).unwrap_err().to_string();
    let stripped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/alexnet.pt2");
    assert!(message(&stripped, &output).contains("has no weights"));
    let onnx = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/text_cnn.torchscript-train.onnx");
    assert!(message(&onnx, &output).contains("save them in Python"));
    assert!(message(&small(), &folder.path().join("none/out.safetensors")).contains("cannot be written"));
    // A file whose weights are cut off.
    let broken = folder.path().join("broken.pt2");
    let bytes = std::fs::read(small()).unwrap();
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    assert!(message(&broken, &output).contains("damaged"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
