//! Tensors of a file: types, shapes, numbers, and where their bytes are.

use super::proto::{TensorProto, TypeProto, tensor_shape_proto, type_proto};
use super::wire::HERE;
use crate::model::{Data, Dtype};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The longest tensor whose elements are read, in bytes.
const LONGEST_TENSOR: u64 = 64 << 20;

/// A dimension of a value: a size, or a name that stands for one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dim {
    Size(u64),
    Named(String),
}

/// Returns the type of this number in `TensorProto.DataType`. `None` for texts and unknown ones.
pub(super) fn dtype(code: i32) -> Option<Dtype> {
    Some(match code {
        1 => Dtype::F32,
        2 => Dtype::U8,
        3 => Dtype::I8,
        4 => Dtype::Other(2),
        5 => Dtype::I16,
        6 => Dtype::I32,
        7 => Dtype::I64,
        9 => Dtype::Bool,
        10 => Dtype::F16,
        11 => Dtype::F64,
        12 => Dtype::Other(4),
        13 | 14 => Dtype::Other(8),
        15 => Dtype::Other(16),
        16 => Dtype::Bf16,
        17..=24 => Dtype::Other(1),
        _ => return None,
    })
}

/// Returns the type and the dimensions of a value. `None` if the file does not say, or it is no tensor.
pub(super) fn described(kind: Option<&TypeProto>) -> Option<(Dtype, Vec<Dim>)> {
    let Some(type_proto::Value::TensorType(tensor)) = &kind?.value else { return None };
    let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
        Some(tensor_shape_proto::dimension::Value::DimValue(size)) => u64::try_from(*size).ok().map(Dim::Size),
        Some(tensor_shape_proto::dimension::Value::DimParam(name)) if !name.is_empty() => {
            Some(Dim::Named(name.clone()))
        }
        _ => None,
    });
    Some((dtype(tensor.elem_type?)?, dims.collect::<Option<_>>()?))
}

/// Returns the shape of a tensor. `None` if a dimension is negative, or the tensor has 2^62 bytes or more.
pub(super) fn shape(tensor: &TensorProto) -> Option<(Dtype, Vec<u64>)> {
    let dtype = dtype(tensor.data_type?)?;
    let shape: Vec<u64> = tensor.dims.iter().map(|&dim| u64::try_from(dim).ok()).collect::<Option<_>>()?;
    bytes(&shape, dtype)?;
    Some((dtype, shape))
}

/// Returns the bytes of a tensor. `None` if they are 2^63 or more.
pub(super) fn bytes(shape: &[u64], dtype: Dtype) -> Option<u64> {
    // Sizes of nothing are no licence for the others: products of some dimensions are taken, too.
    let widest = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim.max(1)))?;
    let bytes = widest.checked_mul(dtype.bytes().max(1)).filter(|bytes| *bytes < 1 << 62)?;
    Some(if shape.contains(&0) { 0 } else { bytes })
}

/// The place of the bytes of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// Returns where the bytes of a tensor are outside of the graph. `None` if they are in it.
///
/// # Errors
/// Says what is wrong with a place that lies outside of the file's folder.
pub(super) fn place(tensor: &TensorProto, file: &Path) -> Result<Option<Place>, String> {
    if tensor.data_location != Some(1) {
        return Ok(None);
    }
    let entry = |key: &str| {
        let found = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        found.and_then(|entry| entry.value.as_deref())
    };
    let name = tensor.name.as_deref().unwrap_or("");
    let location = entry("location").ok_or_else(|| format!("the data of `{name}` is in no file"))?;
    let number = |key: &str| entry(key).map(|text| text.parse::<u64>()).transpose();
    let (offset, length) = match (number("offset"), number("length")) {
        (Ok(offset), Ok(length)) => (offset.unwrap_or(0), length),
        _ => return Err(format!("the data of `{name}` has no offset and length that are numbers")),
    };
    let length = match length.or_else(|| shape(tensor).and_then(|(dtype, shape)| bytes(&shape, dtype))) {
        Some(length) => length,
        None => return Err(format!("the data of `{name}` has no length")),
    };
    if location == HERE {
        return Ok(Some(Place { path: file.into(), offset, length }));
    }
    // A path is followed inside of the folder only.
    let relative = Path::new(location);
    if location.is_empty()
        || !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(format!(
            "the data of `{name}` is in `{location}`, outside of the file's folder; put it beside the file"
        ));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok(Some(Place { path: folder.join(relative), offset, length }))
}

impl Place {
    /// Returns the file, links followed. `None` if it is missing, no file, or outside of `folder`.
    pub(super) fn inside(&self, folder: &Path) -> Option<PathBuf> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let (inside, path) = (folder.canonicalize().ok()?, self.path.canonicalize().ok()?);
        (path.starts_with(inside) && path.is_file()).then_some(path)
    }

    /// Reads the bytes. `None` if the file is missing, shorter, or a link to somewhere outside of `folder`.
    pub(super) fn read(&self, folder: &Path) -> Option<Vec<u8>> {
        if self.length > LONGEST_TENSOR {
            return None;
        }
        let mut file = File::open(self.inside(folder)?).ok()?;
        let end = self.offset.checked_add(self.length)?;
        if file.metadata().ok()?.len() < end {
            return None;
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut bytes = Vec::new();
        file.take(self.length).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 == self.length).then_some(bytes)
    }
}

/// Returns the elements of a tensor. `None` if they are not there, too many, or not as many as the shape has.
pub(super) fn data(tensor: &TensorProto, file: &Path) -> Option<Data> {
    let (dtype, shape) = shape(tensor)?;
    let expected = bytes(&shape, dtype).filter(|bytes| *bytes <= LONGEST_TENSOR)?;
    let raw: Vec<u8> = match place(tensor, file).ok()? {
        Some(place) => place.read(file.parent().unwrap_or(Path::new("")))?,
        None => inline(tensor),
    };
    (raw.len() as u64 == expected).then(|| Data(raw.into()))
}

/// Returns the elements that are in the graph itself. Empty if none are.
pub(super) fn inline(tensor: &TensorProto) -> Vec<u8> {
    match (&tensor.raw_data, tensor.data_type.and_then(dtype)) {
        (Some(raw), _) => raw.to_vec(),
        (None, Some(dtype)) => listed(tensor, dtype),
        (None, None) => Vec::new(),
    }
}

/// Returns the elements of a tensor that lists them in a field of their type.
fn listed(tensor: &TensorProto, dtype: Dtype) -> Vec<u8> {
    fn all<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        numbers.iter().flat_map(|&number| bytes(number)).collect()
    }
    match dtype {
        Dtype::F32 => all(&tensor.float_data, f32::to_le_bytes),
        Dtype::F64 => all(&tensor.double_data, f64::to_le_bytes),
        Dtype::I64 => all(&tensor.int64_data, i64::to_le_bytes),
        Dtype::I32 => all(&tensor.int32_data, i32::to_le_bytes),
        Dtype::I16 | Dtype::F16 | Dtype::Bf16 => all(&tensor.int32_data, |number| (number as u16).to_le_bytes()),
        Dtype::I8 | Dtype::U8 | Dtype::Bool => all(&tensor.int32_data, |number| [number as u8]),
        Dtype::Other(_) => Vec::new(),
    }
}
