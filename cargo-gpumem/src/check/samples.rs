//! Recorded inputs and outputs of a model: tensors `input.0`, `output.0` and so on in a file of safetensors.

use super::layout::{batch_first, shape};
use crate::Failure;
use crate::models::read::Imported;
use gpumem_import::model::{Dtype, ValueId};
use gpumem_import::write::Safetensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The way to record samples again, at the end of messages.
const AGAIN: &str = "`scripts/export.py` records every tensor that `forward` takes and returns, in order";

/// A file of samples whose shapes are those of a model.
pub struct Samples {
    path: PathBuf,
    file: Safetensors,
    /// The number of samples.
    pub batch: u64,
    /// Bytes of all inputs, and of the longest output three times: as it is in the file, with its batch outermost, and as the network has it.
    bytes: u64,
}

/// The numbers of an input, with the batch outermost.
pub enum Numbers {
    Floats(Vec<f32>),
    Whole(Vec<i64>),
}

impl Samples {
    /// Opens a file.
    ///
    /// # Errors
    /// Says which tensor is missing, or has another shape than the model's.
    pub fn open(path: &Path, imported: &Imported) -> Result<Samples, Failure> {
        let file = Safetensors::open(path)?;
        let shapes: BTreeMap<String, Vec<u64>> =
            file.tensors().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect();
        let model = &imported.model;
        let refuse = |what: String| Failure::from(format!("{}: {what}; {AGAIN}", path.display()));
        for (kind, values) in [("input", &model.inputs), ("output", &model.outputs)] {
            let found = shapes.keys().filter(|name| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.')));
            let (found, expected) = (found.count(), values.len());
            if found != expected {
                return Err(refuse(format!("it has {found} tensors `{kind}.N`, and the model {expected} {kind}s")));
            }
        }
        let first = shapes.get("input.0").and_then(|shape| shape.first().copied());
        let Some(batch) = first.filter(|batch| *batch > 0) else {
            return Err(refuse("it has no samples in `input.0`".into()));
        };
        let named = |kind: &'static str, values: &'_ [ValueId]| {
            values.iter().enumerate().map(move |(index, &value)| (format!("{kind}.{index}"), value)).collect::<Vec<_>>()
        };
        let mut bytes = [0u64; 2];
        for (at, all) in [named("input", &model.inputs), named("output", &model.outputs)].into_iter().enumerate() {
            for (name, value) in all {
                let expected = shape(model, &imported.batch, value, batch).unwrap_or_default();
                match shapes.get(&name) {
                    Some(found) if *found == expected => {}
                    Some(found) => {
                        return Err(refuse(format!("`{name}` has the shape {found:?}, and the model's {expected:?}")));
                    }
                    None => return Err(refuse(format!("it has no tensor `{name}`"))),
                }
                let size = expected.iter().product::<u64>().saturating_mul(8);
                bytes[at] = if at == 0 { bytes[0].saturating_add(size) } else { bytes[1].max(size.saturating_mul(3)) };
            }
        }
        Ok(Samples { path: path.into(), file, batch, bytes: bytes[0].saturating_add(bytes[1]) })
    }

    /// Returns the bytes that the samples take at once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads an input of the model.
    pub fn input(&mut self, imported: &Imported, index: usize) -> Result<Numbers, Failure> {
        let name = format!("input.{index}");
        let (dtype, raw) = self.file.read(&name)?;
        let value = imported.model.inputs[index];
        let axis = imported.batch.axes[value];
        let shape = shape(&imported.model, &imported.batch, value, self.batch).unwrap_or_default();
        Ok(match floats(dtype, &raw) {
            Some(numbers) => Numbers::Floats(batch_first(&numbers, &shape, axis, self.batch)),
            None => Numbers::Whole(batch_first(&whole(dtype, &raw), &shape, axis, self.batch)),
        })
    }

    /// Reads an output of the model, with the batch outermost.
    pub fn output(&mut self, imported: &Imported, index: usize) -> Result<Vec<f32>, Failure> {
        let (dtype, raw) = self.file.read(&format!("output.{index}"))?;
        let value = imported.model.outputs[index];
        let shape = shape(&imported.model, &imported.batch, value, self.batch).unwrap_or_default();
        let numbers =
            floats(dtype, &raw).unwrap_or_else(|| whole(dtype, &raw).into_iter().map(|number| number as f32).collect());
        Ok(batch_first(&numbers, &shape, imported.batch.axes[value], self.batch))
    }

    /// Returns the name of the file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns numbers of a floating-point type. `None` for other types.
fn floats(dtype: Dtype, raw: &[u8]) -> Option<Vec<f32>> {
    let bytes = gpumem_import::weights::to_f32(dtype, raw)?;
    Some(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
}

/// Returns numbers of an integer type, and truth values as 0 and 1.
fn whole(dtype: Dtype, raw: &[u8]) -> Vec<i64> {
    fn all<const N: usize>(raw: &[u8], number: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        raw.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
    }
    match dtype.bytes() {
        8 => all(raw, i64::from_le_bytes),
        4 => all(raw, |bytes| i32::from_le_bytes(bytes).into()),
        2 => all(raw, |bytes| i16::from_le_bytes(bytes).into()),
        _ if dtype == Dtype::I8 => all(raw, |[byte]: [u8; 1]| i64::from(byte as i8)),
        _ => all(raw, |[byte]: [u8; 1]| byte.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_types_are_read() {
        assert_eq!(whole(Dtype::I64, &(-3i64).to_le_bytes()), [-3]);
        assert_eq!(whole(Dtype::I32, &(1i32 << 20).to_le_bytes()), [1 << 20]);
        assert_eq!(whole(Dtype::I16, &(-300i16).to_le_bytes()), [-300]);
        assert_eq!(
            (whole(Dtype::I8, &[255]), whole(Dtype::U8, &[255]), whole(Dtype::Bool, &[1])),
            (vec![-1], vec![255], vec![1])
        );
        assert_eq!(floats(Dtype::F32, &1.5f32.to_le_bytes()), Some(vec![1.5]));
        assert_eq!(floats(Dtype::F64, &0.25f64.to_le_bytes()), Some(vec![0.25]));
        assert_eq!(floats(Dtype::F16, &0xc100u16.to_le_bytes()), Some(vec![-2.5]));
        assert_eq!(floats(Dtype::Bf16, &0x3fc0u16.to_le_bytes()), Some(vec![1.5]));
        assert_eq!(floats(Dtype::I64, &[0; 8]), None);
    }
}
