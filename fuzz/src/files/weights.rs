//! Files of weights, which are loaded into a network.

use super::{READ, archive, assert_names_a_file, keep, write};
use gpumem::prelude::*;
use gpumem::{Cpu, Net};
use gpumem_weights::{Error, Weights};
use std::cell::RefCell;
use std::path::Path;
use zip::CompressionMethod;

network! {
    /// The network of the seeds.
    pub struct Small;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3, name = "a"), Linear(2, name = "b")]
    }
}

thread_local! {
    static NET: RefCell<Net<Small, Cpu>> = RefCell::new(net());
}

/// Returns a new network.
pub fn net() -> Net<Small, Cpu> {
    Small::on(&Cpu::new()).expect("memory")
}

/// Returns the bits of all parameters.
fn state(net: &mut Net<Small, Cpu>) -> Vec<u32> {
    let names: Vec<String> = net.tensors().map(|tensor| tensor.name.to_string()).collect();
    let read = |name: String| net.get(&name).expect("a parameter");
    names.into_iter().flat_map(read).map(f32::to_bits).collect()
}

/// Opens a file and loads it. After an error the network must be unchanged.
fn load(path: &Path, is_strict: bool) {
    NET.with_borrow_mut(|net| {
        let before = state(net);
        let opened = Weights::open(path).map(|weights| weights.strict(is_strict));
        let result = opened.and_then(|weights| weights.load_into(net));
        match result {
            Ok(_) => READ.set(READ.get() + 1),
            Err(error) => {
                assert_names_a_file(&error, file(&error));
                assert_eq!(state(net), before, "an error has changed the network: {error}");
            }
        }
    });
}

fn file(error: &Error) -> Option<&Path> {
    match error {
        Error::File { path, .. } | Error::Refused { path, .. } | Error::Set { path, .. } => Some(path),
        Error::Mismatch(mismatch) => Some(&mismatch.path),
        _ => None,
    }
}

/// Reads a file of safetensors. After an odd first byte, the input is a JSON header and, after a 0, the data.
pub fn safetensors(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let file = if kind & 1 == 0 { rest.to_vec() } else { with_header(rest) };
    load(&write("w.safetensors", &file), kind & 2 == 0);
}

/// Returns a file of a header and data, which a 0 separates in `text`, with the right length of the header.
fn with_header(text: &[u8]) -> Vec<u8> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let data = text.get(end + 1..).unwrap_or_default();
    [&(end as u64).to_le_bytes()[..], &text[..end], data].concat()
}

/// Returns a file of safetensors: zeros of `f32` in these shapes.
fn zeros(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let mut end = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(name, shape)| {
            let start = end;
            end += 4 * shape.iter().product::<usize>();
            format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}")
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; end]].concat()
}

/// Returns one of the two files of the index.
fn part(number: usize) -> Vec<u8> {
    let tensors: [&[(&str, &[usize])]; 2] =
        [&[("a.weight", &[3, 4]), ("a.bias", &[3])], &[("b.weight", &[2, 3]), ("b.bias", &[2])]];
    zeros(tensors[number])
}

/// Returns a file that no index may name: it lies outside of its folder. Its tensor is `[7, 7]`.
fn secret() -> Vec<u8> {
    zeros(&[("a.weight", &[7, 7])])
}

/// Reads an index of files in the same folder, which do not change.
pub fn shards(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    keep("shards/one.safetensors", || part(0));
    keep("shards/two.safetensors", || part(1));
    keep("secret.safetensors", secret);
    let path = write("shards/model.safetensors.index.json", rest);
    if let Ok(weights) = Weights::open(&path) {
        assert!(weights.tensors().all(|(_, shape)| shape != [7, 7]), "a file outside of the folder was read");
    }
    load(&path, kind & 1 == 0);
}

/// Reads a state dict of `torch.save`. After an odd first byte, the input is the pickle alone, and the target adds the archive around it.
pub fn pickle(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let file = if kind & 1 == 0 { rest.to_vec() } else { packed(rest) };
    load(&write("w.pt", &file), kind & 2 == 0);
}

/// Returns an archive of a pickle and of ten storages of 64 bytes.
fn packed(pickle: &[u8]) -> Vec<u8> {
    let storage = [0x3d; 64];
    let names: Vec<String> = (0..10).map(|number| format!("w/data/{number}")).collect();
    let mut members: Vec<(&str, &[u8])> = vec![("w/data.pkl", pickle), ("w/byteorder", b"little")];
    members.extend(names.iter().map(|name| (name.as_str(), &storage[..])));
    archive(CompressionMethod::Stored, &members)
}
