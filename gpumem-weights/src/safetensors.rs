//! Reads files of safetensors: one, or several with an index.

use crate::error::{Error, Mib};
use crate::source::{Kind, Source, View, map};
use safetensors::tensor::TensorInfo;
use safetensors::{Dtype, SafeTensors};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::{Component, Path};

/// The longest header that is read. One of 100 000 tensors has about 10 MiB.
const LONGEST_HEADER: u64 = 32 << 20;
/// The longest index that is read.
const LONGEST_INDEX: u64 = 32 << 20;
/// The most files that an index may name.
const MOST_SHARDS: usize = 4096;

/// Maps a file, and returns its tensors by name from the header.
pub(crate) fn tensors(source: &mut Source, path: &Path) -> Result<BTreeMap<String, View>, Error> {
    let map = map(path)?;
    let length = map.len() as u64;
    let cut = |what: String| {
        Error::file(path, format!("{what}; it is cut off or no safetensors file: copy or download it again"))
    };
    let Some(&header) = map.first_chunk() else { return Err(cut(format!("has {length} bytes, less than a header"))) };
    let header = u64::from_le_bytes(header);
    if header > length - 8 {
        return Err(cut(format!("says that its header has {}, but the file has {}", Mib(header), Mib(length))));
    }
    if header > LONGEST_HEADER {
        let (has, most) = (Mib(header), Mib(LONGEST_HEADER));
        return Err(Error::file(
            path,
            format!("has a header of {has}, and at most {most} are read; save it in several files"),
        ));
    }
    let (_, metadata) = SafeTensors::read_metadata(&map).map_err(|error| cut(format!("cannot be read: {error}")))?;
    let text = &map[8..8 + header as usize];
    serde_json::from_slice::<Names>(text).map_err(|error| cut(format!("cannot be read: {error}")))?;
    let file = source.keep(map);
    let view = |(name, info): (String, &TensorInfo)| {
        let shape: Vec<u64> = info.shape.iter().map(|&dim| dim as u64).collect();
        let (start, end) = info.data_offsets;
        let range = [8 + header + start as u64, 8 + header + end as u64];
        match View::new((file, kind(info.dtype)), range, 0, shape, None) {
            Ok(view) => Ok((name, view)),
            Err(what) => Err(cut(format!("has `{name}`, which is damaged: {what}"))),
        }
    };
    metadata.tensors().into_iter().map(view).collect()
}

/// A header in which each name occurs once. JSON would take the last of several.
struct Names;

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Names, D::Error> {
        deserializer.deserialize_map(Names)
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let mut seen = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            if let Some(twice) = seen.replace(name) {
                return Err(A::Error::custom(format_args!("`{twice}` is there twice")));
            }
        }
        Ok(Names)
    }
}

fn kind(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::F32 => Kind::F32,
        Dtype::F16 => Kind::F16,
        Dtype::BF16 => Kind::Bf16,
        Dtype::F64 => Kind::F64,
        Dtype::I64 => Kind::I64,
        Dtype::I32 => Kind::Other("I32", 4),
        Dtype::I16 => Kind::Other("I16", 2),
        Dtype::I8 => Kind::Other("I8", 1),
        Dtype::U8 => Kind::Other("U8", 1),
        Dtype::BOOL => Kind::Other("BOOL", 1),
        Dtype::U16 => Kind::Other("U16", 2),
        Dtype::U32 => Kind::Other("U32", 4),
        Dtype::U64 => Kind::Other("U64", 8),
        Dtype::C64 => Kind::Other("C64", 8),
        Dtype::F8_E4M3 => Kind::Other("F8_E4M3", 1),
        Dtype::F8_E5M2 => Kind::Other("F8_E5M2", 1),
        Dtype::F8_E8M0 => Kind::Other("F8_E8M0", 1),
        Dtype::F8_E4M3FNUZ => Kind::Other("F8_E4M3FNUZ", 1),
        Dtype::F8_E5M2FNUZ => Kind::Other("F8_E5M2FNUZ", 1),
        // A type of less than a byte, or a newer one. The byte range was checked with the header, and is never read.
        _ => Kind::Other("a type of quantized numbers", 0),
    }
}

/// The part of an index that maps tensors to files.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The advice for an index that cannot be read.
const AGAIN: &str = "write it as `save_pretrained` of transformers does";

/// Reads an index as Hugging Face writes it, and the tensors that it names.
pub(crate) fn add_index(source: &mut Source, path: &Path) -> Result<(), Error> {
    let index = index(path)?;
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, shard) in &index.weight_map {
        shards.entry(shard).or_default().push(name);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let absent: Vec<String> =
        shards.keys().filter(|shard| !folder.join(shard).is_file()).map(|shard| format!("`{shard}`")).collect();
    if !absent.is_empty() {
        return Err(Error::file(
            path,
            format!("names {}, not found beside it; copy or download them too", absent.join(", ")),
        ));
    }
    let mut lacking = Vec::new();
    for (shard, names) in shards {
        let found = tensors(source, &folder.join(shard))?;
        for name in names {
            match found.get(name) {
                Some(view) => drop(source.tensors.insert(name.into(), view.clone())),
                None => lacking.push(format!("`{name}` in `{shard}`")),
            }
        }
    }
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Error::file(
        path,
        format!("says that there are {}, but they are not; copy or download the files again", lacking.join(", ")),
    ))
}

/// Reads an index whose files are in its folder.
fn index(path: &Path) -> Result<Index, Error> {
    let map = map(path)?;
    if map.len() as u64 > LONGEST_INDEX {
        let what =
            format!("has {}, and an index of at most {} is read; {AGAIN}", Mib(map.len() as u64), Mib(LONGEST_INDEX));
        return Err(Error::file(path, what));
    }
    let index: Index = serde_json::from_slice(&map)
        .map_err(|error| Error::file(path, format!("is no index of safetensors files: {error}; {AGAIN}")))?;
    let shards: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    let outside: Vec<String> =
        shards.iter().filter(|shard| !is_plain(shard)).map(|shard| format!("`{shard}`")).collect();
    if !outside.is_empty() {
        let what =
            format!("names {}, which may lie outside its folder; put all files beside the index", outside.join(", "));
        return Err(Error::file(path, what));
    }
    if shards.len() > MOST_SHARDS {
        let what = format!("names {} files, and at most {MOST_SHARDS} are read; {AGAIN}", shards.len());
        return Err(Error::file(path, what));
    }
    Ok(index)
}

/// Returns the names of the files that an index names, each once.
#[cfg(feature = "hub")]
pub(crate) fn shards_of(path: &Path) -> Result<BTreeSet<String>, Error> {
    Ok(index(path)?.weight_map.into_values().collect())
}

/// True if it is the name of a file, and no path to another folder.
fn is_plain(shard: &str) -> bool {
    let mut parts = Path::new(shard).components();
    let is_name = matches!(parts.next(), Some(Component::Normal(name)) if name == shard);
    is_name && parts.next().is_none() && !shard.contains(['/', '\\', ':', '\0'])
}
