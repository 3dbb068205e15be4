//! Files that ask for much more memory or time than they have bytes: they are errors, and soon.

mod common;

use common::{Tiny, cpu, peak};
use gpumem_weights::{NetWeights, Weights};
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Writes an archive of `torch.save` with this pickle, and a storage of four numbers.
fn archive(folder: &Path, pickle: &[u8]) -> PathBuf {
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [("w/data.pkl", pickle), ("w/data/0", &[0; 16])] {
        archive.start_file(name, stored).unwrap();
        archive.write_all(bytes).unwrap();
    }
    let path = folder.join("w.pt");
    std::fs::write(&path, archive.finish().unwrap().into_inner()).unwrap();
    path
}

/// A text of a pickle.
fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A tensor of this many dimensions of 1, of the storage `0`.
fn tensor(dimensions: usize) -> Vec<u8> {
    let ones = [&b"("[..], &b"K\x01".repeat(dimensions), b"t"].concat();
    let storage = [&text("storage")[..], b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), b"K\x04"].concat();
    [b"ctorch._utils\n_rebuild_tensor_v2\n((", &storage[..], b"tQK\x00", &ones, &ones, b"\x89NtR"].concat()
}

/// The error of a file, without its path. It takes seconds of a busy machine, where it took many minutes, and little memory.
fn error(path: &Path) -> String {
    let (before, start) = (peak(), Instant::now());
    let error = Weights::open(path).map(drop).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 512 << 20, "{} MiB more", (after - before) >> 20);
    }
    error.strip_prefix(&format!("{}: ", path.display())).expect(&error).to_string()
}

const AGAIN: &str = "copy or download it again, or save it again with `torch.save(model.state_dict(), path)`";

/// One test, for the peak is that of the process.
#[test]
fn small_files_take_little_memory_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let pickled = |pickle: &[u8]| error(&archive(folder.path(), pickle));

    // Each entry of the dict would have its own copy of the dimensions.
    let many = [&tensor(100_000)[..], b"q\x00}(", &[&text("a")[..], b"h\x00"].concat().repeat(50_000), b"u."].concat();
    assert_eq!(pickled(&many), format!("its pickle is damaged: a tensor has more than 64 dimensions; {AGAIN}"));
    let entries = [&tensor(2)[..], b"q\x00}(", &[&text("a")[..], b"h\x00"].concat().repeat(200_001), b"u."].concat();
    assert_eq!(pickled(&entries), "has more than 200000 tensors; save them in several files");

    // A byte each, to be remembered under a number of its own.
    let remembered = [&b"}"[..], &[0x94; 1 << 20], b"."].concat();
    let what = format!("its pickle is damaged: it remembers more values than it makes; {AGAIN}");
    assert_eq!(pickled(&remembered), what);

    // Five bytes each, to name what is not read by two long texts.
    let mut names =
        [text(&"m".repeat(4 << 20)), b"q\x00".to_vec(), text(&"n".repeat(4 << 20)), b"q\x01".to_vec()].concat();
    names.extend(b"h\x00h\x01\x93".repeat(500_000));
    names.push(b'.');
    let refused = pickled(&names);
    assert!(refused.starts_with(&format!("it asks for `{}`, and", "m".repeat(200))), "{refused:.300}");
    let different: Vec<u8> = (0..1000).flat_map(|number| format!("cmodule{number}\nname\n").into_bytes()).collect();
    let refused = pickled(&[&different[..], b"."].concat());
    assert_eq!(refused.matches("`module").count(), 20, "{refused}");

    // Dimensions of 1 before the others, which would be taken away one after the other.
    let mut net = Tiny::on(&cpu()).unwrap();
    let path = folder.path().join("w.safetensors");
    let shape = "1,".repeat(1 << 20) + "5";
    let header = format!(r#"{{"fc.bias":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,20]}}}}"#);
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 20]].concat();
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(
        error(&path),
        "has `fc.bias`, which is damaged: it has 1048577 dimensions, and at most 64 are read; \
        it is cut off or no safetensors file: copy or download it again"
    );
    assert!(net.load_weights(&path).is_err());
}
