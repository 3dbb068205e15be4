//! Models of torchvision, transformers and timm: loaded strictly, logits as PyTorch's, and saved as PyTorch takes them.

mod common;

use common::{Apart, Gpt2, ResNet, Vit, apart, cpu, floats, golden, indices, io, near, state};
use gpumem::Tensor;
use gpumem_weights::{Dtype, Mapping, NetWeights, Weights};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where saved files go: to `GPUMEM_WEIGHTS_BACK`, from which the script takes them back into PyTorch, or to a temporary folder.
fn folder() -> (PathBuf, Option<tempfile::TempDir>) {
    match std::env::var_os("GPUMEM_WEIGHTS_BACK") {
        Some(folder) => (folder.into(), None),
        None => {
            let folder = tempfile::tempdir().unwrap();
            (folder.path().into(), Some(folder))
        }
    }
}

/// Names, types, shapes and bytes of files.
fn content(paths: &[impl AsRef<Path>]) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for path in paths {
        let bytes = std::fs::read(path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            all.insert(name, (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec()));
        }
    }
    all
}

/// A saved file has the names, shapes and bits of the original.
#[track_caller]
fn is_saved_as(saved: &Path, originals: &[impl AsRef<Path>], except: &[&str]) {
    let (mut saved, mut original) = (content(&[saved]), content(originals));
    for name in except {
        saved.remove(*name);
        original.remove(*name);
    }
    assert_eq!(saved.keys().collect::<Vec<_>>(), original.keys().collect::<Vec<_>>());
    for (name, (dtype, shape, bytes)) in &saved {
        let other = &original[name];
        assert_eq!((dtype, shape), (&other.0, &other.1), "{name}");
        assert!(*bytes == other.2, "{name}");
    }
}

#[test]
fn resnet_loads_strictly_and_saves_what_pytorch_takes() {
    let (input, logits) = io("resnet");
    let images = Tensor::from_vec(floats(input)).unwrap();
    let mut net = ResNet::on(&cpu()).unwrap();
    let report = net.load_weights(golden("resnet.safetensors")).unwrap();
    assert_eq!(report.to_string(), "52 tensors with 11362 elements were loaded");
    near(net.forward(&images).unwrap().as_slice(), &logits, 1e-5);

    let (folder, _kept) = folder();
    let path = folder.join("resnet.saved.safetensors");
    net.save_weights(&path).unwrap();
    let counters: Vec<String> = content(&[golden("resnet.safetensors")])
        .into_keys()
        .filter(|name| name.ends_with("num_batches_tracked"))
        .collect();
    let except: Vec<&str> = counters.iter().map(String::as_str).collect();
    assert_eq!(except.len(), 10);
    is_saved_as(&path, &[golden("resnet.safetensors")], &except);
    // The steps of this training, and no others.
    let steps = |path: &Path| content(&[path])["bn1.num_batches_tracked"].clone();
    assert_eq!(steps(&path), ("I64".into(), vec![], 0_i64.to_le_bytes().to_vec()));
    net.train_step(&images, &[0, 1].into()).unwrap();
    net.save_weights(folder.join("trained.safetensors")).unwrap();
    assert_eq!(steps(&folder.join("trained.safetensors")).2, 1_i64.to_le_bytes());
}

#[test]
fn halves_are_read_and_written() {
    let mut net = ResNet::on(&cpu()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (dtype, name) in [(Dtype::F16, "f16"), (Dtype::Bf16, "bf16")] {
        // Each f32 is rounded as PyTorch rounds it.
        net.load_weights(golden("resnet.safetensors")).unwrap();
        let (path, original) = (folder.path().join(name), golden(&format!("resnet.{name}.safetensors")));
        net.save_weights_as(&path, &Mapping::new().dtype(dtype).skip("*.num_batches_tracked")).unwrap();
        let counters: Vec<String> =
            content(&[&original]).into_keys().filter(|name| name.ends_with("num_batches_tracked")).collect();
        is_saved_as(&path, &[&original], &counters.iter().map(String::as_str).collect::<Vec<_>>());
        // And each half is exact in f32.
        net.load_weights(original).unwrap();
        let first = state(&mut net);
        net.load_weights(&path).unwrap();
        assert!(state(&mut net) == first);
    }
}

#[test]
fn gpt2_loads_from_shards_and_saves_with_its_head() {
    let (input, logits) = io("gpt2");
    let tokens = Tensor::from_vec(indices(input)).unwrap();
    let index = golden("gpt2/model.safetensors.index.json");
    // Of a folder, the index in it.
    for path in [index.clone(), golden("gpt2")] {
        let mut net = Gpt2::infer_on(&cpu()).unwrap();
        Weights::open(path).unwrap().mapping(Mapping::gpt2()).load_into(&mut net).unwrap();
        near(net.forward(&tokens).unwrap().as_slice(), &logits, 1e-5);
    }
    // Without transposed layers, and with queries, keys and values apart.
    let mut net = Apart::infer_on(&cpu()).unwrap();
    Weights::open(&index).unwrap().mapping(apart()).load_into(&mut net).unwrap();
    near(net.forward(&tokens).unwrap().as_slice(), &logits, 1e-5);

    let (folder, _kept) = folder();
    let shards: Vec<PathBuf> =
        (1..=4).map(|number| golden(&format!("gpt2/model-0000{number}-of-00004.safetensors"))).collect();
    let path = folder.join("gpt2.saved.safetensors");
    net.save_weights_as(&path, &apart()).unwrap();
    is_saved_as(&path, &shards, &["lm_head.weight"]);
    let saved = content(&[path]);
    assert!(saved["lm_head.weight"] == saved["transformer.wte.weight"]);

    // In several files, as they were: `shard` counts bytes of tensors.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors.index.json");
    net.save_weights_as(&path, &apart().shard(20_000)).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = (1..=4).map(|number| format!("model-0000{number}-of-00004.safetensors"));
    assert_eq!(names, expected.chain(["model.safetensors.index.json".to_string()]).collect::<Vec<_>>());
    let mut other = Gpt2::infer_on(&cpu()).unwrap();
    Weights::open(folder.path()).unwrap().mapping(Mapping::gpt2()).load_into(&mut other).unwrap();
    near(other.forward(&tokens).unwrap().as_slice(), &logits, 1e-5);
}

#[test]
fn vit_loads_strictly_and_saves_what_timm_takes() {
    let (input, logits) = io("vit");
    let images = Tensor::from_vec(floats(input)).unwrap();
    let mut net = Vit::infer_on(&cpu()).unwrap();
    Weights::open(golden("vit.safetensors")).unwrap().mapping(Mapping::vit()).load_into(&mut net).unwrap();
    near(net.forward(&images).unwrap().as_slice(), &logits, 1e-5);

    let (folder, _kept) = folder();
    let path = folder.join("vit.saved.safetensors");
    net.save_weights_as(&path, &Mapping::vit()).unwrap();
    is_saved_as(&path, &[golden("vit.safetensors")], &[]);
    let path = folder.join("vit.parts.safetensors");

    // As separate queries, keys and values, of different sizes: a file for a network that has them so.
    let joined = Mapping::vit().join_rows(
        "blocks.*.attn.qkv.*",
        &[("blocks.*.attn.q.*", 40), ("blocks.*.attn.k.*", 16), ("blocks.*.attn.v.*", 16)],
    );
    net.save_weights_as(&path, &joined).unwrap();
    let saved = content(&[&path]);
    assert_eq!(saved["blocks.1.attn.q.weight"].1, [40, 24]);
    assert_eq!(saved["blocks.1.attn.v.bias"].1, [16]);
    let mut other = Vit::infer_on(&cpu()).unwrap();
    Weights::open(&path).unwrap().mapping(joined).load_into(&mut other).unwrap();
    assert!(state(&mut other) == state(&mut net));
    let equal =
        Mapping::vit().join("blocks.*.attn.qkv.*", &["blocks.*.attn.q.*", "blocks.*.attn.k.*", "blocks.*.attn.v.*"]);
    net.save_weights_as(&path, &equal).unwrap();
    assert_eq!(content(&[&path])["blocks.0.attn.k.weight"].1, [24, 24]);
    Weights::open(&path).unwrap().mapping(equal).load_into(&mut other).unwrap();
    assert!(state(&mut other) == state(&mut net));
}

#[test]
fn state_dicts_of_torch_save_are_those_of_safetensors() {
    let mut net = ResNet::on(&cpu()).unwrap();
    net.load_weights(golden("resnet.safetensors")).unwrap();
    let expected = state(&mut net);
    net.reset().unwrap();
    net.load_weights(golden("resnet.pt")).unwrap();
    assert!(state(&mut net) == expected);
    // Inside a checkpoint, in bf16, behind `module.` and `_orig_mod.`.
    net.load_weights(golden("resnet.bf16.safetensors")).unwrap();
    let expected = state(&mut net);
    net.reset().unwrap();
    net.load_weights(golden("training.pt")).unwrap();
    assert!(state(&mut net) == expected);
    Weights::open_at(golden("training.pt"), "state_dict").unwrap().load_into(&mut net).unwrap();
    // The head is tied in the file.
    let (input, logits) = io("gpt2");
    let mut net = Gpt2::infer_on(&cpu()).unwrap();
    Weights::open(golden("gpt2.pt")).unwrap().mapping(Mapping::gpt2()).load_into(&mut net).unwrap();
    near(net.forward(&Tensor::from_vec(indices(input)).unwrap()).unwrap().as_slice(), &logits, 1e-5);
}
