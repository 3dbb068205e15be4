//! Saves a network to a file of safetensors, one tensor at a time. The complete file replaces an older one.

use crate::error::Error;
use crate::load::{Own, counters};
use crate::mapping::{Dtype, Mapping};
use gpumem_core::network::Network;
use gpumem_core::number::Half;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use tempfile::NamedTempFile;

/// A tensor of the file.
#[derive(Clone)]
struct Written {
    name: String,
    shape: Vec<u64>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// Tensors of the network, one after the other: `take` elements of them after the first `skip`.
    Tensors { paths: Vec<String>, skip: usize, take: usize, is_transposed: bool },
    /// A counter of steps.
    Steps,
}

/// The most axes of PyTorch's tensors.
const MOST_AXES: usize = 64;

/// The end of the name of an index.
const INDEX: &str = ".safetensors.index.json";

/// Saves parameters and running statistics by a mapping: to one file, or if `path` is an index, to several in its folder. `own` are the
/// tensors, and `wrong` the reasons why some cannot be saved.
pub(crate) fn save<N: Network, D: Device>(
    net: &mut Net<N, D>,
    (own, mut wrong): (Vec<Own>, Vec<String>),
    mapping: &Mapping,
    path: &Path,
) -> Result<(), Error> {
    let all = written(&own, mapping, &mut wrong);
    if !wrong.is_empty() {
        let what = format!("`{}` cannot be saved so: {}; nothing was written", N::NAME, wrong.join("; "));
        return Err(Error::file(path, what));
    }
    // The counter of a network without training is 0, like the counter of a new module.
    let steps = if N::TRAIN.is_some() { net.steps().map_err(|error| Error::net(path, error))? } else { 0 };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let target = Target { path, folder, mapping, steps };
    let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(INDEX));
    let Some(stem) = stem else {
        return target.file(net, &all)?.persist(path).map(drop).map_err(|error| target.failed(&error.error));
    };
    let shards = shards(&all, mapping);
    let name = |number: usize| format!("{stem}-{:05}-of-{:05}.safetensors", number + 1, shards.len());
    let mut weight_map = BTreeMap::new();
    let mut files = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.as_str(), name(number))));
        files.push(target.file(net, shard)?);
    }
    let total: u64 = all.iter().map(|tensor| tensor.bytes(mapping.dtype)).sum();
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    let mut file = target.temporary()?;
    let text = serde_json::to_vec_pretty(&index).map_err(|error| target.failed(&error))?;
    file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(|error| target.failed(&error))?;
    // All files are complete before the first is renamed, and the index is renamed last.
    for (number, file) in files.into_iter().enumerate() {
        file.persist(folder.join(name(number))).map_err(|error| target.failed(&error.error))?;
    }
    file.persist(path).map(drop).map_err(|error| target.failed(&error.error))
}

/// Splits the tensors into files of at most the mapping's bytes, or of a single larger tensor.
fn shards<'w>(all: &'w [Written], mapping: &Mapping) -> Vec<&'w [Written]> {
    let (mut shards, mut first, mut bytes) = (Vec::new(), 0, 0_u64);
    for (number, tensor) in all.iter().enumerate() {
        let more = tensor.bytes(mapping.dtype);
        if number > first && bytes.saturating_add(more) > mapping.shard {
            shards.push(&all[first..number]);
            (first, bytes) = (number, 0);
        }
        bytes = bytes.saturating_add(more);
    }
    shards.push(&all[first..]);
    shards
}

/// The place to which files are written, with data that all of them share.
struct Target<'t> {
    path: &'t Path,
    folder: &'t Path,
    mapping: &'t Mapping,
    steps: u64,
}

impl Target<'_> {
    fn failed(&self, what: &dyn std::fmt::Display) -> Error {
        Error::file(self.path, format!("cannot be written: {what}; what was there stays as it is"))
    }

    /// Creates a temporary file in the folder. It is removed unless it is renamed.
    fn temporary(&self) -> Result<NamedTempFile, Error> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".weights");
        #[cfg(unix)]
        {
            // The usual permissions of a file. A temporary file would be accessible to its owner alone.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        builder.tempfile_in(self.folder).map_err(|error| self.failed(&error))
    }

    /// Writes these tensors into a temporary file, one after the other.
    fn file<N: Network, D: Device>(&self, net: &mut Net<N, D>, tensors: &[Written]) -> Result<NamedTempFile, Error> {
        let dtype = self.mapping.dtype;
        let header = header(tensors, dtype).map_err(|what| self.failed(&what))?;
        let mut file = self.temporary()?;
        let mut to = BufWriter::with_capacity(1 << 20, file.as_file_mut());
        to.write_all(&header).map_err(|error| self.failed(&error))?;
        let mut bytes = Vec::new();
        for tensor in tensors {
            self.tensor(net, tensor, &mut to, &mut bytes)?;
        }
        to.flush().map_err(|error| self.failed(&error))?;
        drop(to);
        file.as_file().sync_all().map_err(|error| self.failed(&error))?;
        Ok(file)
    }

    /// Writes a tensor, in parts unless it is transposed. `bytes` is a scratch buffer.
    fn tensor<N: Network, D: Device>(
        &self,
        net: &mut Net<N, D>,
        tensor: &Written,
        to: &mut impl Write,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let failed = |error| Error::net(self.path, error);
        let (paths, mut skip, mut take) = match &tensor.content {
            Content::Steps => {
                let steps = self.steps.to_le_bytes();
                return to.write_all(&steps).map_err(|error| self.failed(&error));
            }
            Content::Tensors { is_transposed: true, .. } => {
                return self.put(tensor, &transposed(net, tensor).map_err(failed)?, to, bytes);
            }
            Content::Tensors { paths, skip, take, .. } => (paths, *skip, *take),
        };
        for path in paths {
            let end = net.get_with(path, |part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                let part = &part[skipped..];
                let part = &part[..take.min(part.len())];
                take -= part.len();
                match self.put(tensor, part, to, bytes) {
                    Ok(()) if take > 0 => ControlFlow::Continue(()),
                    result => ControlFlow::Break(result),
                }
            });
            if let ControlFlow::Break(result) = end.map_err(failed)? {
                return result;
            }
        }
        Ok(())
    }

    /// Writes elements in the type of the file.
    fn put(&self, tensor: &Written, values: &[f32], to: &mut impl Write, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.clear();
        encode(values, self.mapping.dtype, bytes).map_err(|value| {
            self.failed(&format!("`{}` has the value {value}, too large for F16; save it as Bf16 or F32", tensor.name))
        })?;
        to.write_all(bytes).map_err(|error| self.failed(&error))
    }
}

impl Written {
    /// Returns its type in the file.
    fn dtype(&self, dtype: Dtype) -> safetensors::Dtype {
        match (&self.content, dtype) {
            (Content::Steps, _) => safetensors::Dtype::I64,
            (_, Dtype::F32) => safetensors::Dtype::F32,
            (_, Dtype::F16) => safetensors::Dtype::F16,
            (_, Dtype::Bf16) => safetensors::Dtype::BF16,
        }
    }

    /// Returns its bytes in the file.
    fn bytes(&self, dtype: Dtype) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype(dtype).bitsize() as u64 / 8
    }
}

/// Returns the tensors of the file in the order in which they are written: the counters first, as safetensors sorts by alignment, then by
/// name.
fn written(own: &[Own], mapping: &Mapping, wrong: &mut Vec<String>) -> Vec<Written> {
    let mut all = Vec::new();
    let mut wholes: BTreeMap<String, (Vec<String>, Vec<Option<&Own>>)> = BTreeMap::new();
    let mut put = |name: String, mut shape: Vec<u64>, paths: Vec<String>, [skip, take]: [u64; 2]| {
        let is_transposed = mapping.transposes(&name) && shape.len() > 1;
        if let ([.., a, b], true) = (&mut shape[..], is_transposed) {
            std::mem::swap(a, b);
        }
        let ones = mapping.least_axes(&name).min(MOST_AXES).saturating_sub(shape.len());
        shape.splice(0..0, vec![1; ones]);
        let content = Content::Tensors { paths, skip: skip as usize, take: take as usize, is_transposed };
        all.push(Written { name, shape, content });
    };
    for own in own {
        let name = mapping.written_name(&own.name);
        if mapping.skips(&own.name, &name) {
            continue;
        }
        let elements = own.shape.iter().product::<u64>();
        if let Some((rule, parts)) = mapping.joined.iter().find_map(|rule| Some((rule, rule.parts_of(&own.name)?))) {
            let total = own.shape.first().copied().unwrap_or(0);
            let equal = vec![total / parts.len().max(1) as u64; parts.len()];
            let rows = rule.rows.as_ref().unwrap_or(&equal);
            if own.shape.is_empty() || rows.iter().sum::<u64>() != total || rows.len() != parts.len() {
                wrong.push(format!(
                    "`{}` has {total} rows, which are not the {rows:?} of its parts; use `.join_rows(..)`",
                    own.name
                ));
                continue;
            }
            let (each, mut first) = (elements / total.max(1), 0);
            for (part, &rows) in parts.into_iter().zip(rows) {
                let mut shape = own.shape.clone();
                shape[0] = rows;
                put(part, shape, vec![own.path.clone()], [first * each, rows * each]);
                first += rows;
            }
        } else if let Some(((number, whole), rule)) =
            mapping.split.iter().find_map(|rule| Some((rule.whole_of(&own.name)?, rule)))
        {
            let parts = rule.parts_of(&whole).unwrap_or_default();
            let none = || (parts.clone(), vec![None; parts.len()]);
            wholes.entry(whole).or_insert_with(none).1[number] = Some(own);
        } else {
            put(name, own.shape.clone(), vec![own.path.clone()], [0, elements]);
        }
    }
    for (whole, (names, parts)) in wholes {
        let Some(parts) = parts.into_iter().collect::<Option<Vec<&Own>>>() else {
            wrong.push(format!("`{whole}` is split into {}, which the network has not all", names.join(", ")));
            continue;
        };
        let mut shape = parts[0].shape.clone();
        if shape.is_empty() || parts.iter().any(|part| part.shape.get(1..) != shape.get(1..)) {
            wrong.push(format!("{} have other shapes than in rows and cannot be the one `{whole}`", names.join(", ")));
            continue;
        }
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
        let elements = shape.iter().product();
        put(whole, shape, parts.iter().map(|part| part.path.clone()).collect(), [0, elements]);
    }
    for (second, first) in &mapping.tied {
        let found = all.iter().find(|tensor| tensor.name == *first).cloned();
        all.extend(found.map(|tensor| Written { name: second.clone(), ..tensor }));
    }
    for counter in counters(own) {
        let name = mapping.written_name(&counter);
        if !mapping.skips(&counter, &name) {
            all.push(Written { name, shape: Vec::new(), content: Content::Steps });
        }
    }
    all.sort_by(|a, b| is_steps(b).cmp(&is_steps(a)).then_with(|| a.name.cmp(&b.name)));
    let names: BTreeSet<&str> = all.iter().map(|tensor| tensor.name.as_str()).collect();
    if names.len() < all.len() && wrong.is_empty() {
        let twice =
            all.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| format!("`{}`", pair[0].name));
        wrong.push(format!("{} would be there twice; change `.rename(..)`", twice.collect::<Vec<_>>().join(", ")));
    }
    wrong.extend(mapping.idle(names.iter().copied()));
    all
}

fn is_steps(tensor: &Written) -> bool {
    matches!(tensor.content, Content::Steps)
}

/// Returns the length of the header and the header.
fn header(all: &[Written], dtype: Dtype) -> Result<Vec<u8>, String> {
    let mut start = 0_usize;
    let mut infos = Vec::new();
    for tensor in all {
        let shape: Vec<usize> = tensor.shape.iter().map(|&dim| dim as usize).collect();
        let end = start + tensor.bytes(dtype) as usize;
        let dtype = tensor.dtype(dtype);
        infos.push((tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) }));
        start = end;
    }
    // transformers refuses files without this entry.
    let about = HashMap::from([("format".to_string(), "pt".to_string())]);
    let metadata = Metadata::new(Some(about), infos).map_err(|error| error.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}

/// Returns the elements of a tensor that is transposed in the file.
fn transposed<N: Network, D: Device>(
    net: &mut Net<N, D>,
    tensor: &Written,
) -> Result<Vec<f32>, gpumem_core::error::Error> {
    let Content::Tensors { paths, skip, take, .. } = &tensor.content else { return Ok(Vec::new()) };
    let mut values = Vec::with_capacity(skip + take);
    for path in paths {
        values.extend(net.get(path)?);
    }
    values.truncate(skip + take);
    values.drain(..skip);
    // `rows` and `columns` are the sizes in the file.
    let &[.., rows, columns] = &tensor.shape[..] else { return Ok(values) };
    let (rows, columns) = (rows as usize, columns as usize);
    let matrices = values.chunks_exact((rows * columns).max(1));
    Ok(matrices
        .flat_map(|matrix| (0..rows * columns).map(move |at| matrix[at % columns * rows + at / columns]))
        .collect())
}

/// Appends the values in the type of the file. The error is a value beyond the range of F16.
fn encode(values: &[f32], dtype: Dtype, bytes: &mut Vec<u8>) -> Result<(), f32> {
    match dtype {
        Dtype::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Dtype::Bf16 => bytes.extend(values.iter().flat_map(|value| Half::Bf16.narrow(*value).to_le_bytes())),
        Dtype::F16 => {
            let is_lost = |value: &&f32| value.is_finite() && Half::F16.widen(Half::F16.narrow(**value)).is_infinite();
            if let Some(value) = values.iter().find(is_lost) {
                return Err(*value);
            }
            bytes.extend(values.iter().flat_map(|value| Half::F16.narrow(*value).to_le_bytes()));
        }
    }
    Ok(())
}
