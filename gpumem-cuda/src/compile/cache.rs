//! Compiled kernels on disk: one file for each source, options, card architecture and compiler version. It also keeps records of the memory that
//! loading networks took: one small file for each card with its driver and libraries.
//!
//! A file is written under another name and renamed when it is complete. A damaged file is never trusted: its kernel is compiled again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"gpumemK1";

/// File extension of compiled kernels.
const KERNEL: &str = "cubin";

/// File extension of records.
const RECORD: &str = "measured";

/// A folder with compiled kernels.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// Opens the folder that `GPUMEM_CACHE` names, or `gpumem` in the user's cache folder. Without either, nothing is stored.
    pub fn open() -> Cache {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        Cache::at(variable("GPUMEM_CACHE").or_else(|| user.map(|user| user.join("gpumem"))))
    }

    /// Returns a cache in this folder, or one that stores nothing if there is none.
    pub fn at(folder: Option<PathBuf>) -> Cache {
        Cache { folder: folder.filter(|folder| std::fs::create_dir_all(folder).is_ok()) }
    }

    /// Returns the content stored under `key`; `None` if it is absent or damaged.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.read(&self.path(key, KERNEL)?)
    }

    /// Returns the record stored under `key`; `None` if it is absent or damaged.
    pub(crate) fn record(&self, key: &str) -> Option<Vec<u8>> {
        self.read(&self.path(key, RECORD)?)
    }

    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = std::fs::read(path).ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (sum, content) = rest.split_first_chunk::<16>()?;
        (magic == MAGIC && *sum == digest(&[content])).then(|| content.to_vec())
    }

    /// Stores `content`. A failure to write is no error: the kernel is compiled again next time.
    pub fn put(&self, key: &str, content: &[u8]) {
        self.write(self.path(key, KERNEL), content);
    }

    /// Stores a record. A failure to write is no error: the record is measured again.
    pub(crate) fn put_record(&self, key: &str, content: &[u8]) {
        self.write(self.path(key, RECORD), content);
    }

    fn write(&self, path: Option<PathBuf>, content: &[u8]) {
        let Some(path) = path else { return };
        // Other processes and other threads may store the same file at the same time.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let unfinished = path.with_extension(format!("{}-{count}.unfinished", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&unfinished)?;
            file.write_all(MAGIC)?;
            file.write_all(&digest(&[content]))?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)
        };
        if write().is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
    }

    fn path(&self, key: &str, extension: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key}.{extension}")))
    }
}

/// Returns the name under which a kernel is stored: a hash of everything that its code depends on.
pub fn key(parts: &[&str]) -> String {
    let bytes: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns FNV-1a over 128 bits, with the length of each part, so that parts do not run into each other. It guards against damage, not against an
/// attacker, who could replace the program as well.
fn digest(parts: &[&[u8]]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |bytes: &[u8]| bytes.iter().for_each(|&byte| hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    for part in parts {
        add(&(part.len() as u64).to_le_bytes());
        add(part);
    }
    hash.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str) -> (Cache, PathBuf) {
        let folder = std::env::temp_dir().join(format!("gpumem-cache-{name}-{}", std::process::id()));
        (Cache::at(Some(folder.clone())), folder)
    }

    #[test]
    fn what_was_stored_comes_back() {
        let (cache, folder) = cache("round-trip");
        let key = key(&["source", "-arch=sm_90", "13.0"]);
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"code");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"code"[..]));
        cache.put(&key, b"other code");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"other code"[..]));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_entry_is_not_trusted() {
        let (cache, folder) = cache("damage");
        cache.put("k", b"some compiled code");
        let path = folder.join("k.cubin");
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(cache.get("k"), None, "cut off after {end} bytes");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get("k"), None, "byte {place} differs");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Returns the content that a writer stores. The length depends on `round`, so that a mixture of two would show.
    fn content(round: usize) -> Vec<u8> {
        vec![round as u8; 1000 + 37 * (round % 97)]
    }

    #[test]
    fn several_writers_never_leave_a_mixture() {
        const NAME: &str = "compile::cache::tests::several_writers_never_leave_a_mixture";
        // This test starts itself once more as a second process, which only writes.
        if let Some(folder) = std::env::var_os("GPUMEM_TEST_WRITER") {
            let cache = Cache::at(Some(folder.into()));
            (0..300).for_each(|round| cache.put("k", &content(round)));
            return;
        }
        let (cache, folder) = cache("writers");
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact"])
            .env("GPUMEM_TEST_WRITER", &folder)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let write = || (0..300).for_each(|round| cache.put("k", &content(round)));
        std::thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(write);
            cache.put("k", &content(0));
            for _ in 0..1000 {
                let read = cache.get("k").expect("renaming leaves the old file or the new one, never none");
                assert_eq!(read.len(), 1000 + 37 * ((read.len() - 1000) / 37));
                assert!(read.iter().all(|byte| *byte == read[0]));
            }
        });
        assert!(writer.wait().unwrap().success());
        assert!(cache.get("k").is_some());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keys_depend_on_every_part_and_its_length() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["a"]), key(&["a", ""]));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
    }

    #[test]
    fn no_folder_is_no_failure() {
        let cache = Cache::at(None);
        cache.put("k", b"code");
        assert_eq!(cache.get("k"), None);
    }
}
