//! Checkpoints of the originals load strictly into the zoo's networks, and what these save has the originals' names and shapes.

use gpumem::prelude::*;
use gpumem::weights::{Mapping, Weights};
use gpumem::{Cpu, Device, Net, Tensor};
use gpumem_zoo::gpt2::Gpt2;
use gpumem_zoo::resnet::ResNet18;
use gpumem_zoo::vit::VitS16;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names and shapes of torchvision's `resnet18().state_dict()`: see `scripts/goldens/weights.py`.
const RESNET18: &str = include_str!("names/resnet18.json");
/// Those of timm's `vit_small_patch16_224`.
const VIT: &str = include_str!("names/vit_small_patch16_224.json");
/// Those of `GPT2LMHeadModel(GPT2Config())` of transformers.
const GPT2: &str = include_str!("names/gpt2.json");

type Shapes = BTreeMap<String, Vec<u64>>;

/// Names and shapes of a file.
fn tensors(path: &Path) -> Shapes {
    let weights = Weights::open(path).unwrap();
    weights.tensors().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
}

fn shapes(names: &str) -> Shapes {
    let shapes: BTreeMap<String, Value> = serde_json::from_str(names).unwrap();
    shapes.into_iter().map(|(name, shape)| (name, serde_json::from_value(shape).unwrap())).collect()
}

/// A file that the original's module would have written, of numbers made here.
fn write(path: &Path, shapes: &Shapes) {
    let data: Vec<(Dtype, Vec<usize>, Vec<u8>)> = shapes
        .iter()
        .map(|(name, shape)| {
            let shape: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
            let elements: usize = shape.iter().product();
            match name.ends_with("num_batches_tracked") {
                true => (Dtype::I64, shape, vec![0; 8]),
                false => {
                    (Dtype::F32, shape, (0..elements).flat_map(|at| ((at % 97) as f32 / 97.0).to_le_bytes()).collect())
                }
            }
        })
        .collect();
    let views = shapes
        .keys()
        .zip(&data)
        .map(|(name, (dtype, shape, bytes))| (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, path).unwrap();
}

/// Loads a file of these names strictly, and saves one of the same names, shapes and size. Returns what was loaded.
fn goes_there_and_back<N: Network, D: Device>(net: &mut Net<N, D>, names: &str, mapping: &Mapping) -> (usize, u64) {
    let folder = tempfile::tempdir().unwrap();
    let (path, saved) = (folder.path().join("original.safetensors"), folder.path().join("saved.safetensors"));
    let shapes = shapes(names);
    write(&path, &shapes);
    // The plain call reads what the mapping reads.
    let report = net.load_weights(&path).unwrap();
    assert_eq!(Weights::open(&path).unwrap().mapping(mapping.clone()).load_into(net).unwrap(), report);
    net.save_weights_as(&saved, mapping).unwrap();
    assert_eq!(tensors(&saved), shapes);
    let kib = |path: &Path| std::fs::metadata(path).unwrap().len() >> 10;
    assert_eq!(kib(&saved), kib(&path));
    (report.loaded.len(), report.elements)
}

#[test]
fn resnet18_has_the_state_dict_of_torchvision() {
    let mut net = ResNet18::<1>::infer_on(&Cpu::new()).unwrap();
    // Without the counters of 20 batch norms.
    assert_eq!(goes_there_and_back(&mut net, RESNET18, &Mapping::new()), (102, 11_689_512 + 2 * 4_800));
}

#[test]
fn vit_has_the_state_dict_of_timm() {
    let mut net = VitS16::<1>::infer_on(&Cpu::new()).unwrap();
    assert_eq!(goes_there_and_back(&mut net, VIT, &Mapping::vit()), (152, 22_050_664));
}

/// Names alone: the whole network has half a gigabyte, and is loaded below.
#[test]
fn gpt2_has_the_names_of_transformers() {
    let own = Gpt2::<1>::LAYERS.iter().filter(|layer| layer.parameters > 0);
    let mut own: Vec<String> =
        own.map(|layer| format!("transformer.{}", gpumem::weights::torch_name(layer.path))).collect();
    let mut modules: Vec<String> =
        shapes(GPT2).into_keys().filter_map(|name| Some(name.rsplit_once('.')?.0.into())).collect();
    modules.dedup();
    modules.retain(|module| module != "lm_head");
    own.sort();
    modules.sort();
    assert_eq!(own, modules);
}

/// The files that `scripts/goldens/weights.py --whole` wrote, where there are some. What is saved is for `--back`.
#[test]
fn whole_models_give_the_logits_of_pytorch() {
    let Some(folder) = std::env::var_os("GPUMEM_WEIGHTS_WHOLE").map(PathBuf::from) else { return };
    macro_rules! check {
        ($network:ident, $name:literal, $mapping:expr, $number:path) => {
            let mut net = $network::<1>::infer_on(&Cpu::new()).unwrap();
            let file = |kind: &str| folder.join(format!("{}.{kind}safetensors", $name));
            Weights::open(file("")).unwrap().mapping($mapping).load_into(&mut net).unwrap();
            net.save_weights_as(file("saved."), &$mapping).unwrap();
            let bytes = std::fs::read(file("io.")).unwrap();
            let io = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let words = |name: &str| io.tensor(name).unwrap().data().as_chunks().0.to_vec();
            let input = Tensor::from_vec(words("input").into_iter().map($number).collect()).unwrap();
            let logits = net.forward(&input).unwrap();
            let expected = words("logits").into_iter().map(f32::from_le_bytes);
            let difference = |(found, expected): (&f32, f32)| (found - expected).abs() / expected.abs().max(1.0);
            let largest = logits.as_slice().iter().zip(expected).map(difference).fold(0.0, f32::max);
            println!("{}: largest difference {largest}", $name);
            assert!(largest <= 1e-4, "{} {largest}", $name);
        };
    }
    check!(ResNet18, "resnet18", Mapping::new(), f32::from_le_bytes);
    check!(VitS16, "vit_small_patch16_224", Mapping::vit(), f32::from_le_bytes);
    check!(Gpt2, "gpt2", Mapping::gpt2(), u32::from_le_bytes);
}
