//! Messages about files that do not fit a network, as users read them; and that an error leaves the network as it was.

mod common;

use common::{Alike, Apart, ResNet, Tiny, apart, cpu, file, golden, state, text, tiny};
use gpumem_weights::{Dtype, Error, Mapping, NetWeights, Weights};
use std::path::Path;

#[test]
fn everything_that_does_not_fit_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut net = Tiny::on(&cpu()).unwrap();
    let before = state(&mut net);
    let mut loads = |mut tensors: Vec<(&str, &[usize], f32)>, change: fn(Weights) -> Weights, expected: &str| {
        tensors.sort_by_key(|tensor| tensor.0.to_string());
        std::fs::write(folder.join("w.safetensors"), file(&tensors)).unwrap();
        let error = change(Weights::open(folder.join("w.safetensors")).unwrap()).load_into(&mut net).unwrap_err();
        assert_eq!(text(error, folder), expected);
        assert!(state(&mut net) == before);
    };
    let without = |name: &str| tiny().into_iter().filter(|tensor| tensor.0 != name).collect::<Vec<_>>();
    let mut several = without("fc.weight");
    several.retain(|tensor| tensor.0 != "bn.running_mean" && tensor.0 != "conv.weight");
    several.extend([("fc.wieght", &[5, 2][..], 1.0), ("conv.weight", &[2, 3, 5, 5], 1.0), ("extra", &[7], 0.0)]);
    loads(
        several,
        |weights| weights,
        "w.safetensors does not fit `Tiny`: 2 tensors are missing, 2 are unexpected, 1 has another shape\n  \
         missing     `fc.weight` [5, 2]; the file has `fc.wieght`\n  \
         missing     `bn.running_mean` [2]; the file has `bn.running_var`\n  \
         unexpected  `extra` [7]\n  \
         unexpected  `fc.wieght` [5, 2]; the network has `fc.weight`\n  \
         shape       `conv.weight` is [2, 3, 3, 3] in the network and [2, 3, 5, 5] in the file\n\
         nothing was loaded; `.rename(\"from\", \"to\")` changes the file's names; `.skip(\"conv.*\")` leaves such tensors as they are; \
         `.strict(false)` takes what both have",
    );
    let mut turned = without("fc.weight");
    turned.push(("fc.weight", &[2, 5], 1.0));
    loads(
        turned,
        |weights| weights,
        "w.safetensors does not fit `Tiny`: 1 has another shape\n  \
         shape       `fc.weight` is [5, 2] in the network and [2, 5] in the file; `.transpose(\"fc.weight\")` turns it\n\
         nothing was loaded; `.skip(\"fc.*\")` leaves such tensors as they are",
    );
    let outer: Vec<(String, &[usize], f32)> =
        tiny().into_iter().map(|(name, shape, value)| (format!("backbone.{name}"), shape, value)).collect();
    let outer: Vec<(&str, &[usize], f32)> =
        outer.iter().map(|(name, shape, value)| (name.as_str(), *shape, *value)).collect();
    std::fs::write(folder.join("w.safetensors"), file(&outer)).unwrap();
    let error = text(net_error(&folder.join("w.safetensors")), folder);
    assert!(error.contains("7 tensors are missing, 7 are unexpected"), "{error}");
    assert!(error.contains("missing     `fc.bias` [5]; the file has `backbone.fc.bias`"), "{error}");
    assert!(error.contains("; `.rename(\"backbone.\", \"\")` brings most names together; "), "{error}");

    let rules = "w.safetensors does not fit `Tiny`: 1 further mistake\n  rule        ";
    let nothing = "\nnothing was loaded";
    let rule = |what: &str| format!("{rules}{what}{nothing}");
    loads(
        tiny(),
        |weights| weights.transpose("h.*.weight"),
        &rule("`.transpose(\"h.*.weight\")` is of no tensor; write the file's name, before it is renamed"),
    );
    let mut tied = tiny();
    tied.push(("head.weight", &[5, 2], 1.0));
    loads(
        tied,
        |weights| weights.tied("head.weight", "fc.weight"),
        &rule(
            "`head.weight` and `fc.weight` are tied, but differ in the file; leave out `.tied(..)`, or `.skip` one of them",
        ),
    );
    loads(
        tiny(),
        |weights| weights.join("fc.weight", &["a", "b"]).strict(false),
        &rule("`fc.weight` has 5 rows, which are not the [2, 2] of its parts; use `.join_rows(..)`"),
    );
    let mut twice = tiny();
    twice.push(("old.fc.bias", &[5], 1.0));
    loads(
        twice,
        |weights| weights.rename("old.", ""),
        &rule("`fc.bias` and `old.fc.bias` are both renamed to `fc.bias`; change `.rename(..)`"),
    );
    loads(
        tiny(),
        |weights| weights.split("all.*", &["fc.*", "head.*"]),
        "w.safetensors does not fit `Tiny`: 2 are unexpected, 2 further mistakes\n  \
         unexpected  `fc.bias` [5]; the network has `bn.bias`\n  \
         unexpected  `fc.weight` [5, 2]; the network has `bn.weight`\n  \
         rule        `all.weight` is split into fc.weight, head.weight, which the network has not all\n  \
         rule        `all.bias` is split into fc.bias, head.bias, which the network has not all\n\
         nothing was loaded; `.rename(\"from\", \"to\")` changes the file's names; `.strict(false)` takes what both have",
    );
    // A variance below 0 is found before the first tensor is set.
    let mut negative = without("bn.running_var");
    negative.push(("bn.running_var", &[2], -1.0));
    loads(
        negative,
        |weights| weights,
        "w.safetensors: `bn.running_var` cannot be -1 at position 0: a variance is 0 or more; set what `get` gave for this name",
    );
}

/// Two paths of one network that PyTorch would spell alike.
#[test]
fn names_that_files_cannot_tell_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut net = Alike::infer_on(&cpu()).unwrap();
    let both = "`a[0].weight` and `a.0.weight` are both `a.0.weight` in files; give one of the layers another `name`";
    let error = net.save_weights(folder.join("w.safetensors")).unwrap_err();
    assert_eq!(text(error, folder), format!("w.safetensors: `Alike` cannot be saved so: {both}; nothing was written"));
    std::fs::write(folder.join("w.safetensors"), file(&[("a.0.weight", &[4, 4], 1.0), ("a.1.weight", &[4, 4], 1.0)]))
        .unwrap();
    let error = net.load_weights(folder.join("w.safetensors")).unwrap_err();
    assert_eq!(
        text(error, folder),
        format!("w.safetensors does not fit `Alike`: 1 further mistake\n  rule        {both}\nnothing was loaded")
    );
}

fn net_error(path: &Path) -> Error {
    Tiny::on(&cpu()).unwrap().load_weights(path).unwrap_err()
}

#[test]
fn parts_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    // Another number of classes, and a tensor that nobody needs.
    let mut tensors: Vec<(&str, &[usize], f32)> =
        tiny().into_iter().filter(|tensor| !tensor.0.starts_with("fc")).collect();
    tensors.extend([("fc.weight", &[1000, 2][..], 1.0), ("fc.bias", &[1000], 1.0)]);
    std::fs::write(&path, file(&tensors)).unwrap();
    let mut net = Tiny::on(&cpu()).unwrap();
    let head = net.get("fc.weight").unwrap();
    let report = Weights::open(&path).unwrap().skip("fc.*").load_into(&mut net).unwrap();
    assert_eq!(report.to_string(), "5 tensors with 62 elements were loaded; 2 were skipped: fc.bias, fc.weight");
    assert_eq!(net.get("fc.weight").unwrap(), head);
    assert_eq!(net.get("conv.weight").unwrap(), [0.25; 54]);
    // What both have.
    std::fs::write(&path, file(&[("conv.weight", &[2, 3, 3, 3], 0.5), ("other", &[3], 0.0)])).unwrap();
    let report = Weights::open(&path).unwrap().strict(false).load_into(&mut net).unwrap();
    assert_eq!(
        report.to_string(),
        "1 tensor with 54 elements was loaded; 6 are missing: bn.weight, bn.bias, fc.weight, fc.bias, bn.running_mean, bn.running_var; \
         1 is unexpected: other"
    );
    assert_eq!(net.get("conv.weight").unwrap(), [0.5; 54]);
    // Only one of two tied names.
    let mut tensors: Vec<(&str, &[usize], f32)> = tiny().into_iter().filter(|tensor| tensor.0 != "fc.bias").collect();
    tensors.push(("second", &[5], 7.0));
    std::fs::write(&path, file(&tensors)).unwrap();
    Weights::open(&path).unwrap().tied("second", "fc.bias").load_into(&mut net).unwrap();
    assert_eq!(net.get("fc.bias").unwrap(), [7.0; 5]);
}

#[test]
fn what_cannot_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("w.safetensors");
    let mut net = Tiny::on(&cpu()).unwrap();
    net.save_weights(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut saves = |path: &Path, mapping: Mapping, expected: &str| {
        let error = net.save_weights_as(path, &mapping).unwrap_err();
        assert_eq!(text(error, folder), expected);
        assert_eq!(std::fs::read(folder.join("w.safetensors")).unwrap(), before);
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    };
    let wrong = |what: &str| format!("w.safetensors: `Tiny` cannot be saved so: {what}; nothing was written");
    saves(
        &path,
        Mapping::new().join("fc.weight", &["a", "b"]),
        &wrong("`fc.weight` has 5 rows, which are not the [2, 2] of its parts; use `.join_rows(..)`"),
    );
    saves(
        &path,
        Mapping::new().split("all.*", &["fc.*", "head.*"]),
        &wrong(
            "`all.bias` is split into fc.bias, head.bias, which the network has not all; `all.weight` is split into fc.weight, head.weight, \
             which the network has not all",
        ),
    );
    saves(
        &path,
        Mapping::new().split("all", &["fc.weight", "conv.weight"]),
        &wrong("fc.weight, conv.weight have other shapes than in rows and cannot be the one `all`"),
    );
    saves(
        &path,
        Mapping::new().tied("fc.bias", "fc.weight"),
        &wrong("`fc.bias` would be there twice; change `.rename(..)`"),
    );
    saves(
        &path,
        Mapping::new().transpose("fc"),
        &wrong("`.transpose(\"fc\")` is of no tensor; write the file's name, before it is renamed"),
    );
    let none = folder.join("none").join("x");
    let error = net.save_weights(&none).unwrap_err();
    let error = text(error, folder);
    assert!(error.starts_with("none/x: cannot be written: No such file or directory"), "{error}");
    assert!(error.ends_with("; what was there stays as it is"), "{error}");
    net.set("fc.bias", &[0.0, 1e5, 0.0, 0.0, 0.0]).unwrap();
    let error = net.save_weights_as(&path, &Mapping::new().dtype(Dtype::F16)).unwrap_err();
    assert_eq!(
        text(error, folder),
        "w.safetensors: cannot be written: `fc.bias` has the value 100000, too large for F16; save it as Bf16 or F32; what was there stays \
         as it is"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o600, 0o600);
    }
}

/// A square matrix loads as it is if nobody says that it is transposed: so the mapping is what decides.
#[test]
fn nothing_is_transposed_by_its_shape() {
    let mut net = Apart::infer_on(&cpu()).unwrap();
    let folder = golden("gpt2");
    let error = Weights::open(&folder).unwrap().mapping(Mapping::gpt2()).load_into(&mut net).unwrap_err();
    let Error::Mismatch(mismatch) = error else { panic!("{error}") };
    let turned: Vec<&str> = mismatch.shapes.iter().map(|shapes| shapes.name.as_str()).collect();
    // `attn.c_proj.weight` is square, and no one can tell.
    assert_eq!(turned.len(), 4, "{turned:?}");
    Weights::open(&folder).unwrap().mapping(apart()).load_into(&mut net).unwrap();
    // Its values lie in columns.
    let mut plain = ResNet::on(&cpu()).unwrap();
    assert!(Weights::open(&folder).unwrap().load_into(&mut plain).is_err());
}
