//! Messages about files of safetensors and their indices, as users read them.

mod common;

use common::{Tiny, cpu, file, opens_with, state, text, tiny};
use gpumem_weights::Weights;
use safetensors::tensor::{Dtype as Type, TensorView, serialize};

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
