//! Every message, as users read it; and that an error leaves the network as it was.

mod common;

use common::{Alike, Apart, ResNet, Tiny, apart, cpu, golden, state};
use gpumem_weights::{Dtype, Error, Mapping, NetWeights, Weights};
use safetensors::tensor::{Dtype as Type, TensorView, serialize};
use std::io::Write;
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The message with the folder left out.
fn text(error: Error, folder: &Path) -> String {
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

#[track_caller]
fn opens_with(folder: &Path, name: &str, expected: &str) {
    let error = Weights::open(folder.join(name)).expect_err(name);
    assert_eq!(text(error, folder), expected);
}

type Tensors<'a> = &'a [(&'a str, &'a [usize], f32)];

/// A file of tensors, each of one value.
fn file(tensors: Tensors<'_>) -> Vec<u8> {
    let data: Vec<(&str, &[usize], Vec<u8>)> = tensors
        .iter()
        .map(|&(name, shape, value)| (name, shape, value.to_le_bytes().repeat(shape.iter().product())))
        .collect();
    let views =
        data.iter().map(|(name, shape, bytes)| (*name, TensorView::new(Type::F32, shape.to_vec(), bytes).unwrap()));
    serialize(views, None).unwrap()
}

const TINY: [(&str, &[usize], f32); 7] = [
    ("bn.bias", &[2], 0.0),
    ("bn.running_mean", &[2], 0.5),
    ("bn.running_var", &[2], 2.0),
    ("bn.weight", &[2], 1.0),
    ("conv.weight", &[2, 3, 3, 3], 0.25),
    ("fc.bias", &[5], 0.125),
    ("fc.weight", &[5, 2], 3.0),
];

fn tiny() -> Vec<(&'static str, &'static [usize], f32)> {
    TINY.to_vec()
}

/// An archive of these records, stored or compressed.
fn archive(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in records {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(CompressionMethod::Stored)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    put("empty.safetensors", b"");
    put("short.safetensors", b"\x01\0\0\0");
    put("huge.safetensors", &(1_u64 << 60).to_le_bytes());
    put("cut.safetensors", &file(&tiny())[..600]);
    put("text.safetensors", b"\x05\0\0\0\0\0\0\0hello");
    let mut long = (40_u64 << 20).to_le_bytes().to_vec();
    long.extend(b"{");
    put("long.safetensors", &long);
    std::fs::File::options().write(true).open(folder.join("long.safetensors")).unwrap().set_len(50 << 20).unwrap();
    let again = "it is cut off or no safetensors file: copy or download it again";
    for (name, expected) in [
        ("none.safetensors", "none.safetensors: cannot be read: No such file or directory (os error 2)".to_string()),
        (
            "folder",
            "folder: is no file; give the path of a `.safetensors`, `.safetensors.index.json`, `.pt` or `.pth` file"
                .into(),
        ),
        ("empty.safetensors", "empty.safetensors: is empty; copy or download it again".into()),
        ("short.safetensors", format!("short.safetensors: has 4 bytes, less than a header; {again}")),
        (
            "huge.safetensors",
            format!(
                "huge.safetensors: says that its header has 1099511627776.0 MiB, but the file has 0.0 MiB; {again}"
            ),
        ),
        (
            "cut.safetensors",
            format!("cut.safetensors: cannot be read: incomplete metadata, file not fully covered; {again}"),
        ),
        (
            "text.safetensors",
            format!(
                "text.safetensors: cannot be read: invalid JSON in header: expected value at line 1 column 1; {again}"
            ),
        ),
        (
            "long.safetensors",
            "long.safetensors: has a header of 40.0 MiB, and at most 32.0 MiB are read; save it in several files"
                .into(),
        ),
    ] {
        opens_with(folder, name, &expected);
    }
}

/// A file with this header and so many bytes after it.
fn headed(header: &[u8], data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, &vec![0; data]].concat()
}

/// Headers that are read, and say what cannot be.
#[test]
fn headers_that_contradict_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tensor = |name: &str, dtype: &str, shape: &str, first: usize, end: usize| {
        format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{first},{end}]}}")
    };
    let (a, most) = (tensor("a", "F32", "[2]", 0, 8), "18446744073709551615");
    let both = |b: String| format!("{{{a},{b}}}");
    for (header, data, expected) in [
        (both(tensor("b", "F32", "[2]", 4, 12)), 12, "invalid offset for tensor `b`"),
        (both(tensor("b", "F32", "[2]", 12, 20)), 20, "invalid offset for tensor `b`"),
        (both(tensor("b", "F32", "[2]", 8, 4)), 8, "invalid offset for tensor `b`"),
        (both(tensor("b", "F32", "[2]", 8, 16)), 12, "incomplete metadata, file not fully covered"),
        (both(tensor("b", "F32", "[2]", 8, 16)), 17, "incomplete metadata, file not fully covered"),
        (both(tensor("b", "F32", "[3]", 8, 16)), 16, "invalid shape, data type, or offset for tensor"),
        (
            both(tensor("b", "F32", &format!("[{most},2]"), 8, 16)),
            16,
            "overflow computing buffer size from shape and/or element type",
        ),
        (both(tensor("a", "F32", "[2]", 0, 8)), 8, "`a` is there twice at line 1 column "),
        (both(tensor("a", "F32", "[1,2]", 0, 8)), 8, "`a` is there twice at line 1 column "),
        (
            both(tensor("b", "F32", "[-2]", 8, 16)),
            16,
            "invalid JSON in header: invalid value: integer `-2`, expected usize",
        ),
    ] {
        std::fs::write(folder.join("w.safetensors"), headed(header.as_bytes(), data)).unwrap();
        let error = text(Weights::open(folder.join("w.safetensors")).unwrap_err(), folder);
        assert!(error.starts_with(&format!("w.safetensors: cannot be read: {expected}")), "{header}: {error}");
        assert!(error.ends_with("; it is cut off or no safetensors file: copy or download it again"), "{error}");
    }
    let mut bytes = headed(format!("{{{a}}}").as_bytes(), 8);
    bytes[10] = 0xff;
    std::fs::write(folder.join("w.safetensors"), bytes).unwrap();
    let error = text(Weights::open(folder.join("w.safetensors")).unwrap_err(), folder);
    assert!(error.starts_with("w.safetensors: cannot be read: invalid UTF-8 in header: "), "{error}");
}

/// Each type that is no number of a parameter is refused by its name, and nothing is set.
#[test]
fn types_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut net = Tiny::on(&cpu()).unwrap();
    let before = state(&mut net);
    for (dtype, bits, name) in [
        ("BOOL", 8, "BOOL"),
        ("U8", 8, "U8"),
        ("I8", 8, "I8"),
        ("I16", 16, "I16"),
        ("U16", 16, "U16"),
        ("I32", 32, "I32"),
        ("U32", 32, "U32"),
        ("I64", 64, "I64"),
        ("U64", 64, "U64"),
        ("C64", 64, "C64"),
        ("F8_E4M3", 8, "F8_E4M3"),
        ("F8_E5M2", 8, "F8_E5M2"),
        ("F8_E8M0", 8, "F8_E8M0"),
        ("F8_E4M3FNUZ", 8, "F8_E4M3FNUZ"),
        ("F8_E5M2FNUZ", 8, "F8_E5M2FNUZ"),
        ("F4", 4, "a type of quantized numbers"),
    ] {
        let bytes = 10 * bits / 8;
        let header =
            format!("{{\"fc.weight\":{{\"dtype\":\"{dtype}\",\"shape\":[5,2],\"data_offsets\":[0,{bytes}]}}}}");
        std::fs::write(folder.join("w.safetensors"), headed(header.as_bytes(), bytes)).unwrap();
        let error = Weights::open(folder.join("w.safetensors")).unwrap().strict(false).load_into(&mut net).unwrap_err();
        assert_eq!(
            text(error, folder),
            format!(
                "w.safetensors does not fit `Tiny`: 1 further mistake\n  rule        `fc.weight` is made of {name}, not of numbers F32, F16, BF16 \
                 or F64; convert it before it is saved\nnothing was loaded"
            )
        );
        assert!(state(&mut net) == before, "{dtype}");
    }
}

#[test]
fn indices_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.safetensors"), file(&[("w", &[2], 1.0)])).unwrap();
    std::fs::write(folder.join("cut.safetensors"), &file(&[("w", &[2], 1.0)])[..60]).unwrap();
    let index = |map: &str| std::fs::write(folder.join("i.json"), format!("{{\"weight_map\": {{{map}}}}}")).unwrap();
    let opens = |map: &str, expected: &str| {
        index(map);
        opens_with(folder, "i.json", expected);
    };
    let outside = "which may lie outside its folder; put all files beside the index";
    opens(
        r#""a": "../a.safetensors", "b": "/etc/passwd", "c": "sub/a.safetensors", "d": "..", "e": "", "f": "c:\\a", "w": "a.safetensors""#,
        &format!("i.json: names ``, `..`, `../a.safetensors`, `/etc/passwd`, `c:\\a`, `sub/a.safetensors`, {outside}"),
    );
    opens(
        r#""w": "b.safetensors", "v": "c.safetensors""#,
        "i.json: names `b.safetensors`, `c.safetensors`, not found beside it; copy or download them too",
    );
    opens(
        r#""w": "a.safetensors", "v": "a.safetensors", "u": "a.safetensors""#,
        "i.json: says that there are `u` in `a.safetensors`, `v` in `a.safetensors`, but they are not; copy or download the files again",
    );
    opens(
        r#""w": "cut.safetensors""#,
        "cut.safetensors: says that its header has 0.0 MiB, but the file has 0.0 MiB; it is cut off or no safetensors file: copy or \
         download it again",
    );
    let many: Vec<String> = (0..5000).map(|number| format!("\"{number}\": \"{number}\"")).collect();
    opens(
        &many.join(","),
        "i.json: names 5000 files, and at most 4096 are read; write it as `save_pretrained` of transformers does",
    );
    std::fs::write(folder.join("i.json"), "[1").unwrap();
    opens_with(
        folder,
        "i.json",
        "i.json: is no index of safetensors files: invalid type: integer `1`, expected a map at line 1 column 2; write it as `save_pretrained` of \
         transformers does",
    );
    std::fs::File::create(folder.join("i.json")).unwrap().set_len(40 << 20).unwrap();
    opens_with(
        folder,
        "i.json",
        "i.json: has 40.0 MiB, and an index of at most 32.0 MiB is read; write it as `save_pretrained` of transformers does",
    );
}

#[test]
fn state_dicts_that_cannot_be_opened() {
    let goldens = golden("");
    let opens_golden = |name: &str, expected: &str| {
        let error = Weights::open(golden(name)).expect_err(name).to_string();
        assert_eq!(error.replace(&goldens.display().to_string(), ""), expected);
    };
    let alone = "and this reader runs no code of a file; save the tensors alone, with `torch.save(model.state_dict(), path)` or \
                 `safetensors.torch.save_file`";
    opens_golden(
        "refused.pt",
        &format!(
            "refused.pt: it asks for `_codecs.encode`, `numpy._core.multiarray._reconstruct`, `numpy.dtype`, `numpy.ndarray`, \
             `pathlib.PurePosixPath`, {alone}"
        ),
    );
    opens_golden(
        "module.pt",
        &format!("module.pt: it asks for `__builtin__.set`, `torch.nn.modules.linear.Linear`, {alone}"),
    );
    opens_golden(
        "legacy.pt",
        "legacy.pt: was written by PyTorch before 1.6, or in its old format; load it there and save it again with \
         `torch.save(state, path)`",
    );
    let error = Weights::open_at(golden("training.pt"), "ema").unwrap_err().to_string();
    assert!(error.ends_with("training.pt: has no dict `ema`; there are `state_dict`, `optimizer`"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let save = "save it again with `torch.save(model.state_dict(), path)`";
    let opens = |records: &[(&str, &[u8])], expected: &str| {
        std::fs::write(folder.join("a.pt"), archive(records)).unwrap();
        opens_with(folder, "a.pt", &format!("a.pt: {expected}"));
    };
    opens(&[("a/b/data.pkl", b".")], &format!("is an archive without `data.pkl`, so not one of `torch.save`; {save}"));
    opens(
        &[("a/data.pkl", &vec![b'.'; 33 << 20])],
        &format!("has a pickle of 33.0 MiB, and at most 32.0 MiB are read; {save}"),
    );
    opens(
        &[("a/data.pkl", b"}."), ("a/byteorder", b"big")],
        &format!("was written with the big end first; {save} on another machine"),
    );
    opens(
        &[("a/data.pkl", b"K\x01.")],
        "holds no dict; save the tensors alone, with `torch.save(model.state_dict(), path)`",
    );
    opens(&[("a/data.pkl", b"}.")], "has no tensors; save them with `torch.save(model.state_dict(), path)`");
    opens(
        &[("a/data.pkl", b"}(X\x01\0\0\0a}X\x01\0\0\0b}u.")],
        "has several dicts, `a`, `b`; say which is the model, as `Weights::open_at(path, \"model\")`",
    );
    // One storage of 4 elements, and one tensor in it.
    let dict =
        |tensor: &[u8]| [b"}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" as &[u8], tensor, b"tRs."].concat();
    let storage: &[u8] = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ";
    let tensor = |rest: &[u8]| dict(&[storage, rest].concat());
    let good = tensor(b"K\x00K\x04\x85K\x01\x85");
    let data: &[u8] = &[0; 16];
    std::fs::write(folder.join("good.pt"), archive(&[("a/data.pkl", &good), ("a/data/0", data)])).unwrap();
    assert_eq!(Weights::open(folder.join("good.pt")).unwrap().tensors().collect::<Vec<_>>(), [("w", &[4][..])]);
    let damaged = |pickle: &[u8], data: &[u8], expected: &str| {
        let expected = format!("its pickle is damaged: {expected}; copy or download it again, or {save}");
        opens(&[("a/data.pkl", pickle), ("a/data/0", data)], &expected);
    };
    damaged(&good, &[0; 12], "the storage of `w` says that it has 4 elements, and has fewer");
    for (rest, expected) in [
        (&b"J\xff\xff\xff\xffK\x04\x85K\x01\x85"[..], "a tensor has a negative size, stride or offset"),
        (b"K\x00)K\x01\x85", "of `w`, it has 0 dimensions and 1 strides"),
        (
            b"K\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85",
            "of `w`, its shape exceeds 64 bits",
        ),
        (b"K\x00X\0\0\0\0K\x01\x85", "a tensor is not described as PyTorch does"),
    ] {
        damaged(&tensor(rest), data, expected);
    }
    for (pickle, expected) in [
        (&b"\x80"[..], "it ends in the middle of a value"),
        (b"ctorch", "it ends in the middle of a name"),
        (b"X\x02\0\0\0\xff\xff.", "a text is not UTF-8"),
        (b"h\x07.", "it recalls a value that it has not made"),
        (b".", "it takes a value where there is none"),
        (b"u.", "a mark is missing"),
        (b"K\x01K\x02a.", "it adds to something that holds nothing"),
        (b"K\x01K\x02\x93.", "a global has no name"),
        (b"K\x01Q.", "a storage is not described as PyTorch does"),
        (
            b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000NJ\xff\xff\xff\xfftQ.",
            "a storage has a negative size",
        ),
        (b"K\x01)R.", "it calls something in a way that no state dict does"),
        (b"I1\n.", "a state dict has no need of the operation 0x49"),
    ] {
        damaged(pickle, data, expected);
    }
    let many = [b"]".repeat((4 << 20) + 1), b".".to_vec()].concat();
    damaged(&many, data, "it makes more than 4194304 values");
    opens(
        &[("a/data.pkl", &good)],
        &format!("its pickle is damaged: `w` has no data in the file; copy or download it again, or {save}"),
    );

    std::fs::write(folder.join("cut.pt"), &archive(&[("a/data.pkl", &good)])[..50]).unwrap();
    let error = text(Weights::open(folder.join("cut.pt")).unwrap_err(), folder);
    assert!(error.starts_with("cut.pt: is no archive of `torch.save`, or is cut off: "), "{error}");
    assert!(error.ends_with("; copy or download it again"), "{error}");
    // A record longer than the file.
    let mut long = archive(&[("a/data.pkl", &good)]);
    let central = long.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    for at in [18, 22, central + 20, central + 24] {
        long[at..at + 4].copy_from_slice(&9_000_u32.to_le_bytes());
    }
    std::fs::write(folder.join("long.pt"), &long).unwrap();
    opens_with(folder, "long.pt", "long.pt: has the record `a/data.pkl` cut off; copy or download it again");
    // Compressed, as its method in both headers says: a zip bomb.
    let mut bomb = archive(&[("a/data.pkl", &good)]);
    let central = bomb.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    (bomb[8], bomb[central + 10]) = (8, 8);
    std::fs::write(folder.join("bomb.pt"), &bomb).unwrap();
    opens_with(
        folder,
        "bomb.pt",
        "bomb.pt: has the record `a/data.pkl` compressed or encrypted, as `torch.save` never writes it; unpack the archive and pack it \
         with `zip -0`",
    );
}

/// One bit in a value, in the pickle, and in what says the order of bytes.
#[test]
fn bits_that_flipped_in_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut net = ResNet::on(&cpu()).unwrap();
    let before = state(&mut net);
    let good = std::fs::read(golden("resnet.pt")).unwrap();
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(&good)).unwrap();
    let mut start = |record: &str| archive.by_name(record).unwrap().data_start().unwrap() as usize;
    let (value, pickle) = (start("resnet/data/6"), start("resnet/data.pkl"));
    let path = folder.join("w.pt");
    let mut flip = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let result = net.load_weights(&path);
        assert!(state(&mut net) == before);
        text(result.unwrap_err(), folder)
    };
    let found = flip(value + 5);
    assert_eq!(
        found,
        "w.pt: `layer1.0.conv1.weight` is damaged: its checksum is e690e38e, and be9740d4 in the archive; copy or download it again"
    );
    let found = flip(pickle + 40);
    let end = "in the archive; copy or download it again, or save it again with `torch.save(model.state_dict(), path)`";
    assert!(found.starts_with("w.pt: its pickle is damaged: its checksum is ") && found.ends_with(end), "{found}");
    // A checksum of 0 is none: `torch.serialization.set_crc32_options(False)`.
    let mut bytes = good.clone();
    bytes[value + 5] ^= 1;
    for header in [&b"PK\x03\x04"[..], b"PK\x01\x02"] {
        let at: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..].starts_with(header)).collect();
        at.into_iter().for_each(|at| bytes[at + if header[2] == 3 { 14 } else { 16 }..][..4].fill(0));
    }
    std::fs::write(&path, bytes).unwrap();
    net.load_weights(&path).unwrap();
}

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
fn types_that_no_parameter_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("w.safetensors");
    let bytes = [0; 40];
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("fc.bias", view(Type::I64, &[5], &bytes)),
        ("fc.weight", view(Type::U8, &[5, 2], &bytes[..10])),
        ("bn.num_batches_tracked", view(Type::F32, &[2], &bytes[..8])),
    ];
    std::fs::write(&path, serialize(tensors, None).unwrap()).unwrap();
    let mut net = Tiny::on(&cpu()).unwrap();
    let error = Weights::open(&path).unwrap().strict(false).load_into(&mut net).unwrap_err();
    let numbers = "not of numbers F32, F16, BF16 or F64; convert it before it is saved";
    assert_eq!(
        text(error, folder),
        format!(
            "w.safetensors does not fit `Tiny`: 3 further mistakes\n  rule        `fc.weight` is made of U8, {numbers}\n  \
             rule        `fc.bias` is made of I64, {numbers}\n  \
             rule        `bn.num_batches_tracked` is [2] of F32, not one I64; save the model again\nnothing was loaded"
        )
    );
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

/// Tied tensors of a type that no network has are refused for it. Their bytes are not compared.
#[test]
fn tied_tensors_of_eight_bits() {
    let header = r#"{"fc.weight":{"dtype":"F8_E4M3","shape":[5,2],"data_offsets":[0,10]},
        "head.weight":{"dtype":"F8_E4M3","shape":[5,2],"data_offsets":[10,20]}}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tied.safetensors");
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[7; 20]].concat()).unwrap();
    let weights = Weights::open(&path).unwrap().tied("head.weight", "fc.weight").strict(false);
    let error = weights.load_into(&mut Tiny::on(&cpu()).unwrap()).unwrap_err();
    let expected =
        "`fc.weight` is made of F8_E4M3, not of numbers F32, F16, BF16 or F64; convert it before it is saved";
    assert!(text(error, folder.path()).contains(expected));
}
