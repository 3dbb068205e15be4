//! Checkpoints of the originals load strictly into the zoo's networks, under their own names.

use gpumem::prelude::*;
use gpumem::weights::{Mapping, Weights};
use gpumem::{Cpu, Tensor};
use gpumem_zoo::resnet::ResNet18;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names and shapes of torchvision's `resnet18().state_dict()`: see `scripts/goldens/weights.py`.
const RESNET18: &str = include_str!("names/resnet18.json");

/// Names, types and shapes of a file.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u64>> {
    let weights = Weights::open(path).unwrap();
    weights.tensors().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
}

/// A file that torchvision's module would have written, of numbers made here.
fn write(path: &Path) -> BTreeMap<String, Vec<u64>> {
    let names: BTreeMap<String, Vec<usize>> = serde_json::from_str::<BTreeMap<String, Value>>(RESNET18)
        .unwrap()
        .into_iter()
        .map(|(name, shape)| (name, serde_json::from_value(shape).unwrap()))
        .collect();
    let data: Vec<(Dtype, Vec<u8>)> = names
        .iter()
        .map(|(name, shape)| {
            let elements: usize = shape.iter().product();
            match name.ends_with("num_batches_tracked") {
                true => (Dtype::I64, vec![0; 8]),
                false => (Dtype::F32, (0..elements).flat_map(|at| ((at % 97) as f32 / 97.0).to_le_bytes()).collect()),
            }
        })
        .collect();
    let views = names
        .iter()
        .zip(&data)
        .map(|((name, shape), (dtype, bytes))| (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, path).unwrap();
    names.into_iter().map(|(name, shape)| (name, shape.into_iter().map(|dim| dim as u64).collect())).collect()
}

#[test]
fn resnet18_has_the_state_dict_of_torchvision() {
    let folder = tempfile::tempdir().unwrap();
    let (path, saved) = (folder.path().join("resnet18.safetensors"), folder.path().join("saved.safetensors"));
    let names = write(&path);
    assert_eq!(names.len(), 122);
    let mut net = ResNet18::<1>::infer_on(&Cpu::new()).unwrap();
    let report = net.load_weights(&path).unwrap();
    // Without the counters of 20 batch norms.
    assert_eq!((report.loaded.len(), report.elements), (102, 11_689_512 + 2 * 4_800));
    net.save_weights(&saved).unwrap();
    assert_eq!(tensors(&saved), names);
    assert_eq!(std::fs::metadata(&saved).unwrap().len() >> 10, std::fs::metadata(&path).unwrap().len() >> 10);

    // The file that `scripts/goldens/weights.py --whole` wrote, where there is one: logits as PyTorch's.
    let Some(whole) = std::env::var_os("GPUMEM_WEIGHTS_WHOLE").map(PathBuf::from) else { return };
    net.load_weights(whole.join("resnet18.safetensors")).unwrap();
    let bytes = std::fs::read(whole.join("resnet18.io.safetensors")).unwrap();
    let io = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        io.tensor(name).unwrap().data().as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    };
    let logits = net.forward(&Tensor::from_vec(floats("input")).unwrap()).unwrap();
    for (found, expected) in logits.as_slice().iter().zip(floats("logits")) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} {expected}");
    }
    net.save_weights(whole.join("resnet18.saved.safetensors")).unwrap();
}
