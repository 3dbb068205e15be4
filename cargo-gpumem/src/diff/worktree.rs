//! Worktrees of git, in which another revision is built.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::Built;
use crate::options::Build;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A worktree of git that is removed when it is dropped.
pub struct Worktree {
    repository: PathBuf,
    folder: PathBuf,
}

impl Worktree {
    /// Checks `revision` out into a new folder.
    pub fn new(revision: &str) -> Result<Worktree, Failure> {
        let repository = PathBuf::from(git(Path::new("."), &["rev-parse", "--show-toplevel"])?);
        let commit = git(&repository, &["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")])
            .map_err(|_| format!("git knows no revision `{revision}`"))?;
        let folder = empty_folder(&repository, &format!("cargo-gpumem-{}-{}", &commit[..12], std::process::id()))?;
        // From here on, dropping the worktree removes it, whatever fails.
        let worktree = Worktree { repository, folder };
        let path = worktree.folder.to_str().ok_or("the path of the repository is no text")?;
        git(&worktree.repository, &["worktree", "add", "--detach", "--quiet", path, &commit])?;
        Ok(worktree)
    }

    /// Returns the path in the worktree that corresponds to `path` in the repository.
    fn inside(&self, path: &Path) -> Result<PathBuf, Failure> {
        let (path, repository) = (path.canonicalize()?, self.repository.canonicalize()?);
        let inside = path.strip_prefix(&repository);
        let inside = inside.map_err(|_| format!("{} is not in {}", path.display(), repository.display()))?;
        Ok(self.folder.join(inside))
    }

    /// Builds and returns the networks of the revision.
    ///
    /// They are built inside the worktree even if cargo builds elsewhere by default, because cargo takes packages at the same place of two worktrees
    /// for one.
    pub fn networks(&self, build: &Build) -> Result<Built, Failure> {
        let manifest_path = build.manifest_path.as_deref().map(|path| self.inside(path)).transpose()?;
        let target = self.folder.join("target").join("gpumem");
        networks_of(&Build { manifest_path, ..build.clone() }, &self.inside(Path::new("."))?, Some(&target))
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        if let Some(path) = self.folder.to_str() {
            let _ = git(&self.repository, &["worktree", "remove", "--force", path]);
        }
        // If git did not create the worktree, the folder is empty.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Makes a folder for a worktree next to the repository.
///
/// There `path = "../gpumem"` leads to the same place, and cargo finds the same configuration above it. If that folder cannot be created, makes one
/// among temporary files.
fn empty_folder(repository: &Path, name: &str) -> Result<PathBuf, Failure> {
    let beside = repository.parent().map(|parent| parent.join(name));
    if let Some(folder) = beside.filter(|folder| std::fs::create_dir(folder).is_ok()) {
        return Ok(folder);
    }
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs git and returns its output, without the newline at the end.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("git").current_dir(folder).args(arguments).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::empty_folder;

    #[test]
    fn a_worktree_is_beside_its_repository_or_a_temporary_folder() {
        let parent = tempfile::tempdir().unwrap();
        let name = format!("cargo-gpumem-test-{}", std::process::id());
        let beside = empty_folder(&parent.path().join("repository"), &name).unwrap();
        assert_eq!(beside, parent.path().join(&name));
        // Nothing can be made there: it does not exist.
        let elsewhere = empty_folder(&parent.path().join("none/repository"), &name).unwrap();
        assert_eq!(elsewhere, std::env::temp_dir().join(&name));
        assert!(empty_folder(&parent.path().join("none/repository"), &name).is_err(), "it is there already");
        std::fs::remove_dir(elsewhere).unwrap();
    }
}
