//! Damaged files: whatever bytes they have, opening and loading them ends with a result, in little memory, and an error changes nothing.

mod common;

use common::{ResNet, Tiny, cpu, golden, peak, state};
use gpumem::{Device, Net, Network};
use gpumem_weights::{NetWeights, Weights};
use std::fs::write;
use std::path::Path;

/// SplitMix64: the same damage in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Flips bits, writes other bytes, cuts the end off, or doubles a part; mostly near one of `places`.
fn damaged(good: &[u8], places: &[usize], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        let near = places[random.below(places.len())] + random.below(200);
        let at = if random.below(4) == 0 { random.below(bytes.len()) } else { near.min(bytes.len().saturating_sub(1)) };
        let Some(byte) = bytes.get_mut(at) else { break };
        match random.below(8) {
            0 => *byte = [0, 0xff, b'{', b'.', b'9', 0x80, b'(', b'R'][random.below(8)],
            1 => bytes.truncate(at),
            2 => {
                let end = (at + random.below(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            _ => *byte ^= 1 << random.below(8),
        }
    }
    bytes
}

/// Loads a damaged file. After an error the network is as before; returns whether there was none.
fn survives<N: Network, D: Device>(net: &mut Net<N, D>, path: &Path, strict: bool) -> bool {
    let before = state(net);
    let result = Weights::open(path).and_then(|weights| weights.strict(strict).load_into(net));
    if let Err(error) = &result {
        assert!(error.to_string().contains(path.parent().and_then(Path::to_str).unwrap()), "{error}");
        assert!(same(&state(net), &before), "{error}");
    }
    result.is_ok()
}

/// Equal to the bit: a damaged number may be NaN.
fn same(a: &[(String, Vec<f32>)], b: &[(String, Vec<f32>)]) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    a.iter().zip(b).all(|(a, b)| bits(&a.1) == bits(&b.1))
}

/// One test, for the peak is that of the process.
#[test]
fn damaged_files_end_in_results_and_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut random = Random(1);
    let mut tiny = Tiny::on(&cpu()).unwrap();
    let mut resnet = ResNet::on(&cpu()).unwrap();
    let path = folder.join("good.safetensors");
    tiny.save_weights(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let before = peak();
    let mut loaded = [0; 3];

    let path = folder.join("w.safetensors");
    for round in 0..2500 {
        write(&path, damaged(&good, &[0, 0, 200, 400, 600], &mut random)).unwrap();
        loaded[0] += usize::from(survives(&mut tiny, &path, round % 2 == 0));
    }
    // Each header length that there may be.
    for shift in 0..64 {
        let mut bytes = good.clone();
        bytes[..8].copy_from_slice(&(1_u64 << shift).to_le_bytes());
        write(&path, bytes).unwrap();
        assert!(!survives(&mut tiny, &path, true));
    }

    let index = std::fs::read(golden("gpt2/model.safetensors.index.json")).unwrap();
    for number in 1..=4 {
        let name = format!("model-0000{number}-of-00004.safetensors");
        std::fs::copy(golden("gpt2").join(&name), folder.join(&name)).unwrap();
    }
    let path = folder.join("i.json");
    for _ in 0..800 {
        write(&path, damaged(&index, &[0, 100, 500, 1500], &mut random)).unwrap();
        if let Ok(weights) = Weights::open(&path) {
            loaded[1] += 1;
            assert!(weights.tensors().count() <= 30);
        }
    }

    let good = std::fs::read(golden("resnet.pt")).unwrap();
    let places: Vec<usize> = (0..12_000).step_by(200).chain((good.len() - 9_000..good.len()).step_by(200)).collect();
    let path = folder.join("w.pt");
    for round in 0..800 {
        write(&path, damaged(&good, &places, &mut random)).unwrap();
        loaded[2] += usize::from(survives(&mut resnet, &path, round % 2 == 0));
    }
    // The files that are not damaged where it matters load.
    assert!(loaded.iter().all(|count| *count > 2), "{loaded:?}");

    // A tensor of 2^60 elements with a stride of 0 is refused by its shape, and nothing is reserved for it.
    let views = std::fs::read(golden("views.pt")).unwrap();
    let places: Vec<usize> = (0..2_000).step_by(100).collect();
    for _ in 0..800 {
        write(&path, damaged(&views, &places, &mut random)).unwrap();
        survives(&mut tiny, &path, false);
    }
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 64 << 20, "{} MiB more", (after - before) >> 20);
    }
}
