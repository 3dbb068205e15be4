//! Folders of training states, which a network is resumed from.

use super::{READ, assert_names_a_file, path, write};
use gpumem::prelude::*;
use gpumem::{Cpu, Net};
use gpumem_state::{Error, SavedState};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::path::Path;

network! {
    /// The network of the seeds.
    pub struct Trained;

    const TRAIN: Train = Train { batch: 2, loss: Mse, optimizer: AdamW { lr: 0.01 } };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(3, name = "a"), BatchNorm1d(name = "n"), Linear(2, name = "b")]
    }
}

thread_local! {
    static NET: RefCell<Net<Trained, Cpu>> = RefCell::new(net());
}

fn net() -> Net<Trained, Cpu> {
    Trained::on(&Cpu::new()).expect("memory")
}

/// Returns the two files of a state after two steps: `state.json` without its first line, and the tensors.
pub fn saved() -> [Vec<u8>; 2] {
    let mut net = net();
    for _ in 0..2 {
        net.train_step(&Tensor::from_fn(|index| index as f32), &Tensor::from_fn(|index| index as f32)).expect("a step");
    }
    let folder = path("saved");
    let state = net.save_state(&folder).expect("a folder for temporary files");
    let read = |name: &str| std::fs::read(state.join(name)).expect("a state");
    let (numbers, tensors) = (read("state.json"), read("state.safetensors"));
    std::fs::remove_dir_all(folder).expect("a folder for temporary files");
    let line = numbers.iter().position(|&byte| byte == b'\n').expect("lines");
    [numbers[line + 1..].to_vec(), tensors]
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Returns the lines of `state.json` with the right checksums of the file of tensors, if they can be parsed.
fn with_checksums(lines: &[u8], tensors: &[u8]) -> Vec<u8> {
    let whole = [b"{\n", lines].concat();
    let Ok(Value::Object(mut numbers)) = serde_json::from_slice::<Value>(&whole) else { return lines.to_vec() };
    let length = tensors.first_chunk().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let end = length.saturating_add(8).min(tensors.len());
    numbers.insert("header".to_string(), checksum(&tensors[..end]).into());
    if let Ok(file) = safetensors::SafeTensors::deserialize(tensors) {
        let sums: Map<String, Value> =
            file.iter().map(|(name, view)| (name.to_string(), checksum(view.data()).into())).collect();
        numbers.insert("tensors".to_string(), sums.into());
    }
    let text = serde_json::to_vec_pretty(&numbers).expect("memory");
    text.strip_prefix(b"{\n").unwrap_or(&text).to_vec()
}

/// Reads the lines of `state.json` and, after a 0, the tensors.
///
/// If the first byte is odd, the checksums of the tensors are corrected. If its second bit is set, so is the first line, which is the checksum of
/// the others.
pub fn states(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (lines, tensors) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let lines = if kind & 1 == 0 { lines.to_vec() } else { with_checksums(lines, tensors) };
    let sum = if kind & 2 == 0 { "00000000".to_string() } else { checksum(&lines) };
    let folder = write("state/state.json", &[format!("{{ \"crc32c\": \"{sum}\",\n").as_bytes(), &lines].concat());
    let folder = folder.parent().expect("a folder");
    write("state/state.safetensors", tensors);
    resume(folder, kind & 4 == 0);
}

/// Resumes a network from all of a state, or from the tensors that match. After an error the network must be unchanged.
fn resume(folder: &Path, is_strict: bool) {
    NET.with_borrow_mut(|net| {
        let before = net.snapshot().expect("memory");
        let opened = SavedState::open(folder);
        let result = opened.and_then(|state| if is_strict { state.resume(net) } else { state.resume_matching(net) });
        match result {
            Ok(_) => READ.set(READ.get() + 1),
            Err(error) => {
                let file = match &error {
                    Error::File { path, .. } | Error::Copy { path, .. } => Some(path.as_path()),
                    Error::Differs(differences) => Some(differences.path.as_path()),
                    _ => None,
                };
                assert_names_a_file(&error, file);
                // Compares bits, because NaN is not equal to itself.
                let after = net.snapshot().expect("memory");
                assert_eq!(format!("{:?}", after.numbers()), format!("{:?}", before.numbers()));
                assert!(after.tensors().eq(before.tensors()), "an error has changed the network: {error}");
            }
        }
    });
}
