//! Reads state dicts that `torch.save` wrote: a zip archive of a pickle and a record for each storage. No code is executed.

mod machine;

use crate::error::{Error, Mib};
use crate::source::{Record, Source, View, map};
use machine::{Machine, Value};
use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// The longest pickle that is read, in bytes: 200 for each of 100 000 tensors are 20 MiB.
const LONGEST_PICKLE: u64 = 32 << 20;
/// The first bytes of files that `torch.save` wrote before PyTorch 1.6.
const LEGACY: [u8; 4] = [0x80, 0x02, 0x8a, 0x0a];
/// Keys under which training scripts keep the model, the likeliest first.
const USUAL: [&str; 6] = ["state_dict", "model_state_dict", "model", "module", "net", "network"];
/// The most entries of a state dict. One takes a kilobyte in memory, and few bytes in a file.
const MOST_TENSORS: usize = 200_000;
/// The depth to which dicts inside dicts are searched.
const DEEPEST: usize = 3;

/// Adds the tensors of a state dict to `source`: of the dict under `key`, or if that is `None` of the dict with the model.
pub(crate) fn add(source: &mut Source, path: &Path, key: Option<&str>) -> Result<(), Error> {
    let map = map(path)?;
    let records = records(path, &map)?;
    let save_again = "save it again with `torch.save(model.state_dict(), path)`";
    let damaged = |what: String| {
        Error::file(path, format!("its pickle is damaged: {what}; copy or download it again, or {save_again}"))
    };
    let Some((prefix, pickle)) = records.iter().find_map(|(name, record)| {
        let prefix = name.strip_suffix("data.pkl")?;
        (prefix.is_empty() || (prefix.ends_with('/') && prefix.matches('/').count() == 1)).then_some((prefix, record))
    }) else {
        return Err(Error::file(
            path,
            format!("is an archive without `data.pkl`, so not one of `torch.save`; {save_again}"),
        ));
    };
    let length = pickle.end - pickle.start;
    if length > LONGEST_PICKLE {
        let what =
            format!("has a pickle of {}, and at most {} are read; {save_again}", Mib(length), Mib(LONGEST_PICKLE));
        return Err(Error::file(path, what));
    }
    pickle.check(&map).map_err(damaged)?;
    let bytes = |record: &Record| &map[record.start as usize..record.end as usize];
    if records.get(&format!("{prefix}byteorder")).is_some_and(|order| bytes(order) != b"little") {
        return Err(Error::file(path, format!("was written with the big end first; {save_again} on another machine")));
    }
    let mut machine = Machine::default();
    let value = machine.run(bytes(pickle)).map_err(damaged)?;
    if !machine.refused.is_empty() {
        return Err(Error::Refused { path: path.into(), globals: machine.refused.into_iter().collect() });
    }
    let dict = model(&machine, value, key).map_err(|what| Error::file(path, what))?;
    let mut views = Vec::new();
    for &(name, value) in &machine.dicts[dict] {
        let (Value::Text(name), Value::Tensor(tensor)) = (name, value) else { continue };
        let tensor = &machine.tensors[tensor];
        let storage = machine.storages[tensor.storage];
        let record = records.get(&format!("{prefix}data/{}", storage.key));
        let Some(&record) = record else { return Err(damaged(format!("`{name}` has no data in the file"))) };
        let used = storage.elements.checked_mul(storage.kind.bytes()).and_then(|bytes| bytes.checked_add(record.start));
        let Some(used) = used.filter(|used| *used <= record.end) else {
            return Err(damaged(format!(
                "the storage of `{name}` says that it has {} elements, and has fewer",
                storage.elements
            )));
        };
        if views.len() == MOST_TENSORS {
            let what = format!("has more than {MOST_TENSORS} tensors; save them in several files");
            return Err(Error::file(path, what));
        }
        views.push((name.to_string(), (storage.kind, used), record, tensor.clone()));
    }
    let file = source.keep(map);
    for (name, (kind, used), record, tensor) in views {
        source.note(file, record);
        let view = View::new((file, kind), [record.start, used], tensor.offset, tensor.shape, Some(tensor.strides))
            .map_err(|what| damaged(format!("of `{name}`, {what}")))?;
        source.tensors.insert(name, view);
    }
    Ok(())
}

/// Returns the place and the checksum of each record of the archive. They must be stored without compression, since a compressed record
/// could expand to any size.
fn records(path: &Path, map: &[u8]) -> Result<HashMap<String, Record>, Error> {
    let again = "copy or download it again";
    if map.starts_with(&LEGACY) {
        let what = "was written by PyTorch before 1.6, or in its old format; load it there and save it again with `torch.save(state, path)`";
        return Err(Error::file(path, what));
    }
    let failed = |error: zip::result::ZipError| {
        Error::file(path, format!("is no archive of `torch.save`, or is cut off: {error}; {again}"))
    };
    let mut archive = ZipArchive::new(Cursor::new(map)).map_err(failed)?;
    let mut records = HashMap::new();
    for index in 0..archive.len() {
        let record = archive.by_index_raw(index).map_err(failed)?;
        let name = record.name().map_err(failed)?.into_owned();
        if record.compression() != CompressionMethod::Stored
            || record.encrypted()
            || record.size() != record.compressed_size()
        {
            let what = format!(
                "has the record `{name}` compressed or encrypted, as `torch.save` never writes it; unpack the archive and pack it with \
                 `zip -0`"
            );
            return Err(Error::file(path, what));
        }
        let start = record.data_start().unwrap_or(u64::MAX);
        let end = start.checked_add(record.size()).filter(|end| *end <= map.len() as u64);
        let Some(end) = end else { return Err(Error::file(path, format!("has the record `{name}` cut off; {again}"))) };
        records.insert(name, Record { start, end, checksum: record.crc32() });
    }
    Ok(records)
}

/// Returns the number of the dict with the model. The error lists the others.
fn model(machine: &Machine<'_>, value: Value<'_>, key: Option<&str>) -> Result<usize, String> {
    let Value::Dict(mut dict) = value else {
        return Err("holds no dict; save the tensors alone, with `torch.save(model.state_dict(), path)`".into());
    };
    if let Some(key) = key {
        for name in key.split('.') {
            let inner = entry(machine, dict, name);
            let keys = || keys(machine, dict).join(", ");
            dict = inner.ok_or_else(|| format!("has no dict `{key}`; there are {}", keys()))?;
        }
    }
    for _ in 0..DEEPEST {
        if has_tensors(machine, dict) {
            return Ok(dict);
        }
        let usual = USUAL.iter().find_map(|name| entry(machine, dict, name));
        let inner: Vec<usize> = machine.dicts[dict].iter().filter_map(|(_, value)| as_dict(*value)).collect();
        dict = match (usual, &inner[..]) {
            (Some(usual), _) => usual,
            (None, &[only]) => only,
            _ => break,
        };
    }
    let keys = keys(machine, dict);
    if keys.is_empty() {
        return Err("has no tensors; save them with `torch.save(model.state_dict(), path)`".into());
    }
    Err(format!(
        "has several dicts, {}; say which is the model, as `Weights::open_at(path, \"model\")`",
        keys.join(", ")
    ))
}

fn as_dict(value: Value<'_>) -> Option<usize> {
    match value {
        Value::Dict(dict) => Some(dict),
        _ => None,
    }
}

/// Returns the dict inside a dict, under this key. `None` if there is none.
fn entry(machine: &Machine<'_>, dict: usize, key: &str) -> Option<usize> {
    let mut entries = machine.dicts[dict].iter().rev();
    entries.find_map(|&(name, value)| as_dict(value).filter(|_| name == Value::Text(key)))
}

/// Returns the keys of the dicts inside a dict.
fn keys(machine: &Machine<'_>, dict: usize) -> Vec<String> {
    let key = |&(name, value): &(Value<'_>, Value<'_>)| match (name, value) {
        (Value::Text(name), Value::Dict(_)) => Some(format!("`{name}`")),
        _ => None,
    };
    machine.dicts[dict].iter().filter_map(key).collect()
}

fn has_tensors(machine: &Machine<'_>, dict: usize) -> bool {
    let is_tensor = |entry: &(Value<'_>, Value<'_>)| matches!(entry, (Value::Text(_), Value::Tensor(_)));
    machine.dicts[dict].iter().any(is_tensor)
}

#[cfg(all(test, feature = "safetensors"))]
mod tests {
    use crate::source::{Kind, Source};
    use std::path::{Path, PathBuf};

    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
    }

    /// Compares transposed, sliced, expanded and tied views, halves and a Parameter with PyTorch's contiguous tensors.
    #[test]
    fn views_are_what_pytorch_sees() {
        let (pt, st) = (golden("views.pt"), golden("views.safetensors"));
        let (mut found, mut expected) = (Source::new(&pt), Source::new(&st));
        super::add(&mut found, &pt, None).unwrap();
        expected.tensors = crate::safetensors::tensors(&mut expected, &st).unwrap();
        assert_eq!(found.tensors.keys().collect::<Vec<_>>(), expected.tensors.keys().collect::<Vec<_>>());
        assert_eq!(found.tensors.len(), 13);
        for (name, view) in &found.tensors {
            let other = &expected.tensors[name];
            assert_eq!(view.shape, other.shape, "{name}");
            let count = crate::source::elements(&view.shape).unwrap() as usize;
            let (mut values, mut others) = (vec![0.0; count], vec![0.0; count]);
            view.read(&found, 0, &mut values);
            other.read(&expected, 0, &mut others);
            assert_eq!(values, others, "{name}");
            // From any element on, and as many as fit.
            for first in 0..count {
                let mut part = vec![f32::NAN; (count - first).min(1 + first % 5)];
                view.read(&found, first as u64, &mut part);
                assert_eq!(part, values[first..first + part.len()], "{name} from {first}");
            }
        }
        let kind = |name: &str| found.tensors[name].kind;
        assert_eq!(["half", "bf16", "double", "integer"].map(kind), [Kind::F16, Kind::Bf16, Kind::F64, Kind::I64]);
        // One storage, not two copies.
        assert_eq!(found.tensors["tied"], found.tensors["again"]);
        assert!(found.tensors["tied"].equals(&found.tensors["t"].clone().transposed(), &found));
        assert!(!found.tensors["tied"].equals(&found.tensors["parameter"], &found));
    }
}
