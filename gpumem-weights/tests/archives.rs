//! Messages about archives of `torch.save`, as users read them.

mod common;

use common::{ResNet, cpu, golden, opens_with, state, text};
use gpumem_weights::{NetWeights, Weights};
use std::io::Write;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

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
