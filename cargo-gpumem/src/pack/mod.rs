//! Implements `cargo gpumem pack`, which places buffers of a file, whichever program they are from.
//!
//! The compiler packs within milliseconds, and the command must agree with it, so that a network has one size. Buffers of a file have no
//! compiler: for these the search may take seconds.

mod buffers;

use crate::Failure;
use crate::options::{Pack, Plain};
use crate::output::{print, say};
use crate::outputs::{Staged, keep, refuse};
use crate::text::{bytes, count, time};
use buffers::Buffers;
use gpumem_core::memory::plan::{PackedSlice, THOROUGH, pack_slice, pack_slice_thoroughly, verify_slice};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// A packing of the buffers, and the time that it took.
struct Answer {
    /// Bytes of the packing that the compiler would take.
    quick: u64,
    packed: PackedSlice,
    milliseconds: f64,
}

pub fn run(arguments: &Pack) -> Result<ExitCode, Failure> {
    let outputs: Vec<_> = arguments.output.as_deref().into_iter().collect();
    refuse(&outputs, &[&arguments.file], arguments.force)?;
    let buffers = Buffers::read(&arguments.file, arguments.alignment)?;
    let answer = packed(&buffers, arguments.quick)?;
    check(&buffers, &answer.packed, arguments.alignment)?;
    if let Some(path) = &arguments.output {
        let staged = Staged::new(path)?;
        staged.write(buffers.placed(&answer.packed.offsets)?)?;
        keep(vec![staged.told(format!("{} offsets", count(buffers.ranges.len() as u64)))], arguments.force)?;
    }
    print(&match arguments.format {
        Plain::Table => table(&buffers, &answer, arguments.capacity),
        Plain::Json => format!("{:#}\n", as_json(&buffers, &answer, arguments.capacity)),
    })?;
    let fits = arguments.capacity.is_none_or(|capacity| answer.packed.size <= capacity);
    Ok(ExitCode::from(u8::from(!fits)))
}

fn packed(buffers: &Buffers, quick: bool) -> Result<Answer, Failure> {
    let too_large = |_| "the sizes of all buffers add up to 2^64 bytes or more";
    let begun = Instant::now();
    let first = pack_slice(&buffers.ranges).map_err(too_large)?;
    let size = first.size;
    let packed = match quick || size == first.lower_bound {
        true => first,
        false => {
            say(&format!("packed into {}; searching on for some seconds", bytes(size)));
            pack_slice_thoroughly(&buffers.ranges, THOROUGH).map_err(too_large)?
        }
    };
    Ok(Answer { quick: size, packed, milliseconds: begun.elapsed().as_secs_f64() * 1000.0 })
}

/// Fails if buffers overlap: offsets that are written may be trusted by other programs.
fn check(buffers: &Buffers, packed: &PackedSlice, alignment: u64) -> Result<(), Failure> {
    match verify_slice(&buffers.ranges, &packed.offsets, packed.size, alignment, &[]) {
        true => Ok(()),
        false => Err("the packing is not valid, which is a mistake in gpumem: please report it with the file".into()),
    }
}

/// Returns how far a size is above the bound.
fn above(size: u64, bound: u64) -> String {
    match size == bound {
        true => "the least possible".into(),
        false => format!("{:.2} % above the bound", 100.0 * (size as f64 / bound as f64 - 1.0)),
    }
}

fn table(buffers: &Buffers, answer: &Answer, capacity: Option<u64>) -> String {
    let Answer { quick, packed, milliseconds } = answer;
    let bound = packed.lower_bound;
    let size = |size: u64| format!("{} ({} bytes)", bytes(size), count(size));
    let mut lines = vec![
        ("buffers", count(buffers.ranges.len() as u64)),
        ("bound", format!("{}: the most that is alive at once", size(bound))),
        ("compiler", format!("{}, {}", size(*quick), above(*quick, bound))),
        ("packed", format!("{}, {}, in {}", size(packed.size), above(packed.size, bound), time(*milliseconds))),
    ];
    if let Some(capacity) = capacity {
        let answer = match (packed.size <= capacity, bound <= capacity) {
            (true, _) => format!("fits, with {} left", bytes(capacity - packed.size)),
            (false, true) => format!("no packing was found for it; {} are missing", bytes(packed.size - capacity)),
            (false, false) => format!("no packing can fit; {} are missing", bytes(bound - capacity)),
        };
        lines.push(("capacity", format!("{}: {answer}", size(capacity))));
    }
    lines.iter().map(|(name, text)| format!("{name:<9} {text}\n")).collect()
}

fn as_json(buffers: &Buffers, answer: &Answer, capacity: Option<u64>) -> serde_json::Value {
    let packed = &answer.packed;
    json!({
        "version": 1,
        "buffers": buffers.ranges.len(),
        "lower_bound": packed.lower_bound,
        "compiler": answer.quick,
        "size": packed.size,
        "milliseconds": answer.milliseconds,
        "capacity": capacity,
        "fits": capacity.map(|capacity| packed.size <= capacity),
        "offsets": packed.offsets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_overlap_are_not_written() {
        let buffers = Buffers::parse(b"lower,upper,size\n0,2,4\n1,3,4\n", 1).unwrap();
        let mut packed = packed(&buffers, true).unwrap().packed;
        assert!(check(&buffers, &packed, 1).is_ok());
        packed.offsets = vec![0, 3];
        let error = check(&buffers, &packed, 1).unwrap_err().to_string();
        assert_eq!(error, "the packing is not valid, which is a mistake in gpumem: please report it with the file");
    }
}
