//! Lifts models with faults in them: operations are refused, and nothing panics.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::model::{Argument, Model};
use std::path::Path;

/// Faults of each model.
const FAULTS: u64 = 60;

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    /// Returns an integer as a damaged file may have it.
    fn integer(&mut self) -> i64 {
        let all = [-1, 0, 1, 2, 3, 7, -2, 64, 1 << 31, i64::MAX, i64::MIN, -1000];
        all[self.below(all.len())]
    }
}

/// Makes one fault in a model.
fn damage(model: &mut Model, random: &mut Random) {
    let (values, nodes) = (model.values.len(), model.nodes.len());
    match random.below(6) {
        0 => {
            let value = &mut model.values[random.below(values)];
            let dim = random.below(value.shape.len());
            if let Some(size) = value.shape.get_mut(dim) {
                *size = [0, 1, 2, 3, 5, 1 << 20][random.below(6)];
            }
        }
        1 => {
            let value = &mut model.values[random.below(values)];
            match random.below(2) {
                0 => drop(value.shape.pop()),
                _ => value.shape.push(2),
            }
            value.strides = None;
        }
        2 => drop(model.nodes.remove(random.below(nodes))),
        3 => {
            let node = &mut model.nodes[random.below(nodes)];
            let place = random.below(node.arguments.len());
            if place < node.arguments.len() {
                node.arguments.remove(place);
            }
        }
        4 => {
            let (node, value) = (&mut model.nodes[random.below(nodes)], random.below(values));
            let place = random.below(node.arguments.len());
            if let Some((_, Argument::Tensor(tensor))) = node.arguments.get_mut(place) {
                *tensor = value;
            }
        }
        _ => {
            let node = &mut model.nodes[random.below(nodes)];
            for (_, argument) in &mut node.arguments {
                match argument {
                    Argument::Int(number) if random.below(2) == 0 => *number = random.integer(),
                    Argument::Ints(numbers) if random.below(2) == 0 => match random.below(3) {
                        0 => drop(numbers.pop()),
                        _ => numbers.iter_mut().for_each(|number| *number = random.integer()),
                    },
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn nothing_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/operations");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
    files.sort();
    let mut unknown = 0;
    for (number, file) in files.iter().enumerate() {
        let model = Pt2::open(file).unwrap().model(None, &[]).unwrap();
        for fault in 0..FAULTS {
            let mut random = Random((number as u64) << 32 | fault);
            let mut model = model.clone();
            for _ in 0..=random.below(3) {
                if !model.nodes.is_empty() {
                    damage(&mut model, &mut random);
                }
            }
            let Some(batch) = Batch::follow(&model) else { continue };
            let found = std::panic::catch_unwind(|| lift(&model, &batch));
            match found {
                Ok(lifted) => unknown += usize::from(!lifted.unknown.is_empty()),
                Err(_) => panic!("{}, fault {fault}", file.display()),
            }
        }
    }
    // Most faults are noticed, so that faults are made at all.
    assert!(unknown > files.len());
}
