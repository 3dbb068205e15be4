//! Files from other sources: data sets and weights. An input is written to a file, which is opened and read as in a training run.

mod data;
mod events;
mod models;
pub mod seeds;
mod states;
mod weights;

pub use data::{cifar, csv, idx, images, npy, npz, tokens};
pub use events::events;
pub use models::{onnx, pt2};
pub use states::states;
pub use weights::{pickle, safetensors, shards};

use std::cell::Cell;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

thread_local! {
    /// The folder of a thread's files. It is removed when the thread ends.
    static FOLDER: TempDir = TempDir::with_prefix("gpumem-fuzz-").expect("a folder for temporary files");
    /// The number of batches that were read and files of weights that were loaded. Tests use it to check that a seed is a valid file.
    static READ: Cell<usize> = const { Cell::new(0) };
}

/// Returns the path of this name in the thread's folder.
fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// Writes a file into the thread's folder, and creates the folders around it.
fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for temporary files");
    std::fs::write(&path, bytes).expect("space for temporary files");
    path
}

/// Writes a file that no input changes, unless it exists.
fn keep(name: &str, make: impl FnOnce() -> Vec<u8>) -> PathBuf {
    let path = path(name);
    if path.exists() { path } else { write(name, &make()) }
}

/// Returns an archive of these members.
fn archive(method: CompressionMethod, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(*name, SimpleFileOptions::default().compression_method(method)).expect("memory");
        archive.write_all(bytes).expect("memory");
    }
    archive.finish().expect("memory").into_inner()
}

/// Panics unless the message of an error names a file and says something about it.
fn assert_names_a_file(error: &dyn std::fmt::Display, file: Option<&Path>) {
    let text = error.to_string();
    let file = file.unwrap_or_else(|| panic!("no file is named: {text}"));
    assert!(text.len() > file.as_os_str().len() + 10, "an error without words: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target and its seeds.
    type Case = (fn(&[u8]), Vec<Vec<u8>>);

    /// Training would read each seed without an error, except seeds that name files outside their folders.
    #[test]
    fn seeds_are_good_files() {
        let targets: [Case; 14] = [
            (safetensors, seeds::safetensors()),
            (shards, seeds::shards()),
            (pickle, seeds::pickle()),
            (idx, seeds::idx()),
            (npy, seeds::npy()),
            (npz, seeds::npz()),
            (csv, seeds::csv()),
            (images, seeds::images()),
            (cifar, seeds::cifar()),
            (tokens, seeds::tokens()),
            (states, seeds::states()),
            (events, seeds::events()),
            (pt2, seeds::pt2()),
            (onnx, seeds::onnx()),
        ];
        for (number, (run, seeds)) in targets.into_iter().enumerate() {
            let count = seeds.len();
            let is_read = |seed: &Vec<u8>| {
                let before = READ.get();
                run(seed);
                READ.get() > before
            };
            let read = seeds.iter().filter(|seed| is_read(seed)).count();
            // Whole numbers are no parameter; an index and a list lead out of the folder; a state has no checksum.
            let refused = [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0][number];
            assert_eq!(read + refused, count, "of the files of target {number}");
        }
    }
}
