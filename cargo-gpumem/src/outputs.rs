//! Files that a command writes: all of them whole, or none.

use crate::Failure;
use crate::output::say;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// A file that is complete under a temporary name in the folder of its place.
pub struct Staged {
    part: TempPath,
    path: PathBuf,
    contents: String,
}

impl Staged {
    /// Creates an empty file in the folder of `path`.
    pub fn new(path: &Path) -> Result<Staged, Failure> {
        let part = gpumem_import::write::temporary(folder(path)).map_err(|error| failed(path, &error))?;
        Ok(Staged { part: part.into_temp_path(), path: path.into(), contents: String::new() })
    }

    /// Returns the temporary place.
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Writes the contents.
    pub fn write(&self, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
        std::fs::write(&self.part, contents).map_err(|error| failed(&self.path, &error))
    }

    /// Adds what it contains, in words for the user.
    pub fn told(self, contents: String) -> Staged {
        Staged { contents, ..self }
    }
}

/// Moves files to their places. If one cannot be moved, those that are new are removed again.
pub fn keep(all: Vec<Staged>, may_replace: bool) -> Result<(), Failure> {
    let (mut new, mut told) = (Vec::new(), Vec::new());
    for Staged { part, path, contents } in all {
        let is_new = !path.exists();
        let moved = if may_replace { part.persist(&path) } else { part.persist_noclobber(&path) };
        if let Err(error) = moved {
            for path in new {
                let _ = std::fs::remove_file(path);
            }
            return Err(failed(&path, &error.error));
        }
        told.push(format!("wrote {contents} to {}", path.display()));
        if is_new {
            new.push(path);
        }
    }
    told.iter().for_each(|line| say(line));
    Ok(())
}

/// Fails unless files can be written to these places: their folders exist, no two are one, none is one that is read, and none exists unless
/// it may be replaced.
pub fn refuse(outputs: &[&Path], inputs: &[&Path], may_replace: bool) -> Result<(), Failure> {
    let mut places: Vec<PathBuf> = Vec::new();
    for path in outputs {
        let shown = path.display();
        refuse_existing(path, may_replace)?;
        if path.is_dir() {
            return Err(format!("{shown} is a folder; name a file in it").into());
        }
        let folder = folder(path);
        let (Ok(within), Some(name)) = (folder.canonicalize(), path.file_name()) else {
            return Err(format!("{shown} cannot be written: there is no folder {}; create it", folder.display()).into());
        };
        // Links are followed: a file that exists is compared under its own name.
        let place = path.canonicalize().unwrap_or_else(|_| within.join(name));
        if places.contains(&place) {
            return Err(format!("{shown} is named for two outputs; name two files").into());
        }
        if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == place)) {
            return Err(format!("{shown} is read by this command; name another file to write").into());
        }
        places.push(place);
    }
    Ok(())
}

/// Fails if a file exists that must not be replaced.
pub fn refuse_existing(path: &Path, may_replace: bool) -> Result<(), Failure> {
    match path.exists() && !may_replace {
        true => Err(exists(path)),
        false => Ok(()),
    }
}

fn exists(path: &Path) -> Failure {
    format!("{} exists; `--force` replaces it", path.display()).into()
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => format!("cannot write {}: {error}", path.display()).into(),
    }
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(path: &Path, text: &str) -> Staged {
        let staged = Staged::new(path).unwrap();
        staged.write(text).unwrap();
        staged.told("text".into())
    }

    #[test]
    fn files_are_written_all_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        keep(vec![staged(&a, "1"), staged(&b, "2")], false).unwrap();
        assert_eq!(
            (std::fs::read_to_string(&a).unwrap(), std::fs::read_to_string(&b).unwrap()),
            ("1".into(), "2".into())
        );
        // The second exists by now, so the first goes too.
        std::fs::remove_file(&a).unwrap();
        let message = keep(vec![staged(&a, "3"), staged(&b, "4")], false).unwrap_err().to_string();
        assert_eq!(message, format!("{} exists; `--force` replaces it", b.display()));
        assert!(!a.exists());
        keep(vec![staged(&a, "3"), staged(&b, "4")], true).unwrap();
        assert_eq!(std::fs::read_to_string(&b).unwrap(), "4");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn places_are_looked_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, model] = ["a", "b", "model"].map(|name| folder.path().join(name));
        std::fs::write(&model, "").unwrap();
        let message = |outputs: &[&Path], may_replace| refuse(outputs, &[&model], may_replace).unwrap_err().to_string();
        refuse(&[&a, &b], &[&model], false).unwrap();
        assert!(message(&[&a, &a], false).ends_with("a is named for two outputs; name two files"));
        assert!(message(&[&a, &folder.path().join("./a")], true).contains("two outputs"));
        assert!(message(&[&model], false).ends_with("model exists; `--force` replaces it"));
        assert!(message(&[&model], true).ends_with("model is read by this command; name another file to write"));
        assert!(message(&[folder.path()], true).ends_with("is a folder; name a file in it"));
        let nowhere = message(&[&folder.path().join("none/a")], true);
        assert!(nowhere.contains("cannot be written: there is no folder") && nowhere.ends_with("none; create it"));
    }
}
