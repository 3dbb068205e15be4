//! Implements `cargo gpumem diff`, which compares the memory of each network before and after a change.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, Built, unread};
use crate::network::{Network, has_instance};
use crate::options::{Build, Diff, Plain};
use crate::output::{print, say, warn};
use crate::plan::{PlannedProgram, steps};
use crate::text::{bytes, difference, table};
use gpumem_core::memory::budget::{Budget, Line};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A worktree of git that is removed when it is dropped.
struct Worktree {
    repository: PathBuf,
    folder: PathBuf,
}

impl Worktree {
    /// Checks `revision` out into a new folder.
    fn new(revision: &str) -> Result<Worktree, Failure> {
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
    fn networks(&self, build: &Build) -> Result<Built, Failure> {
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

/// A program before and after a change. One side is `None` if the program is new or gone.
struct Change {
    title: String,
    /// The name in tables.
    label: String,
    package: Option<String>,
    before: Option<(PlannedProgram, Budget)>,
    after: Option<(PlannedProgram, Budget)>,
}

pub fn run(arguments: &Diff) -> Result<ExitCode, Failure> {
    arguments.plan.settings.refuse_largest()?;
    let now = complete(networks_of(&arguments.plan.build, Path::new("."), None)?, ANOTHER_VERSION)?;
    if !arguments.plan.build.quiet {
        say(&format!("the same at {}:", arguments.revision));
    }
    let another =
        format!("compare with a revision that has the gpumem of now, for `{}` has another", arguments.revision);
    let before = complete(Worktree::new(&arguments.revision)?.networks(&arguments.plan.build)?, &another)?;
    print(&report(&before, &now, arguments)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text that compares the networks of both revisions.
pub fn report(before: &[Network], now: &[Network], arguments: &Diff) -> Result<String, Failure> {
    let changes = changes(planned(before, arguments)?, planned(now, arguments)?);
    if changes.is_empty() {
        return Err("neither revision has a network with a batch".into());
    }
    Ok(match arguments.plan.format {
        Plain::Table => text(&changes, &arguments.revision),
        Plain::Json => format!("{:#}\n", as_json(&changes)),
    })
}

/// Returns the networks. Fails if some could not be read, because a network that is missing for that reason is neither new nor gone.
fn complete(built: Built, advice: &str) -> Result<Vec<Network>, Failure> {
    match built.unreadable {
        0 => Ok(built.networks),
        count => Err(format!("{}: {advice}", unread(count)).into()),
    }
}

fn planned(networks: &[Network], arguments: &Diff) -> Result<Vec<(PlannedProgram, Budget)>, Failure> {
    let mut planned = Vec::new();
    for network in networks {
        let steps = match steps(network, &arguments.plan.settings) {
            Ok(steps) => steps,
            // The instances of a generic network are compared instead of it.
            Err(_) if has_instance(networks, network) => continue,
            // A network that is generic over its batch has no figures without a batch.
            Err(failure) => {
                warn(&format!("left out: {failure}"));
                continue;
            }
        };
        for step in steps {
            let budget = step.written()?;
            planned.push((step, budget));
        }
    }
    Ok(planned)
}

/// Pairs every program with its earlier version.
fn changes(before: Vec<(PlannedProgram, Budget)>, after: Vec<(PlannedProgram, Budget)>) -> Vec<Change> {
    let named = |steps: &[(PlannedProgram, Budget)]| -> Vec<(String, String)> {
        steps.iter().map(|(step, _)| (step.file.clone(), step.title.clone())).collect()
    };
    let pairs = paired(&named(&before), &named(&after));
    let mut before: Vec<Option<(PlannedProgram, Budget)>> = before.into_iter().map(Some).collect();
    let beside = |(now, old): ((PlannedProgram, Budget), Option<usize>)| {
        let old = old.and_then(|old| before[old].take());
        let PlannedProgram { title, label, package, .. } = &now.0;
        Change { title: title.clone(), label: label.clone(), package: package.clone(), before: old, after: Some(now) }
    };
    let mut changes: Vec<Change> = after.into_iter().zip(pairs).map(beside).collect();
    let gone = before.into_iter().flatten();
    changes.extend(gone.map(|old| {
        let PlannedProgram { title, label, package, .. } = &old.0;
        Change { title: title.clone(), label: label.clone(), package: package.clone(), before: Some(old), after: None }
    }));
    changes
}

/// Returns for each later program, by file and title, the index of the earlier one to compare it with. `None` if it is new.
///
/// Titles need not be unique, and networks may move. So programs in the same file are paired first, and the others by title alone.
fn paired(before: &[(String, String)], after: &[(String, String)]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; after.len()];
    let mut free = vec![true; before.len()];
    for has_moved in [false, true] {
        for (now, pair) in after.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let is_same = |old: &(String, String)| old.1 == now.1 && (has_moved || old.0 == now.0);
            *pair = (0..before.len()).find(|&old| free[old] && is_same(&before[old]));
            if let Some(old) = *pair {
                free[old] = false;
            }
        }
    }
    pairs
}

fn parameters(step: &PlannedProgram) -> u64 {
    step.plan.parameters()
}

fn macs(step: &PlannedProgram) -> u64 {
    step.plan.macs()
}

fn text(changes: &[Change], revision: &str) -> String {
    let heading = ["network", "", revision, "now", "change"];
    let mut rows = vec![heading.map(String::from)];
    for change in changes {
        let (before, after) = match (&change.before, &change.after) {
            (Some(before), Some(after)) => (before, after),
            (None, Some((_, budget))) => {
                let arena = bytes(budget[Line::Arena]);
                rows.push([change.label.clone(), "arena".into(), String::new(), arena, "new".into()]);
                continue;
            }
            (Some((_, budget)), None) => {
                let arena = bytes(budget[Line::Arena]);
                rows.push([change.label.clone(), "arena".into(), arena, String::new(), "gone".into()]);
                continue;
            }
            (None, None) => continue,
        };
        let mut title = change.label.clone();
        let mut row = |name: &str, cells: [String; 3]| {
            let [before, after, change] = cells;
            rows.push([std::mem::take(&mut title), name.into(), before, after, change]);
        };
        let arenas = [before, after].map(|(_, budget)| budget[Line::Arena]);
        row("arena", [bytes(arenas[0]), bytes(arenas[1]), difference(arenas[0], arenas[1])]);
        for line in Line::parts() {
            let [old, new] = [before, after].map(|(_, budget)| budget[line]);
            if old != new {
                row(line.name(), [bytes(old), bytes(new), difference(old, new)]);
            }
        }
        let counts = [before, after].map(|(step, _)| [step.plan.batch, parameters(step), macs(step)]);
        for (index, name) in ["batch", "parameters", "MACs"].into_iter().enumerate() {
            let [old, new] = [counts[0][index], counts[1][index]];
            if old != new {
                let change = i128::from(new) - i128::from(old);
                row(name, [old.to_string(), new.to_string(), format!("{change:+}")]);
            }
        }
        let [old, new] = [&before.0, &after.0].map(|step| step.plan.precision.name());
        if old != new {
            row("precision", [old.into(), new.into(), String::new()]);
        }
    }
    table(&rows, &[2, 3, 4])
}

fn as_json(changes: &[Change]) -> Value {
    let side = |side: &Option<(PlannedProgram, Budget)>| match side {
        None => Value::Null,
        Some((step, budget)) => {
            let lines = Line::parts().chain([Line::Arena]).map(|line| (line.name().to_string(), budget[line].into()));
            json!({
                "batch": step.plan.batch,
                "precision": step.plan.precision.name(),
                "parameters": parameters(step),
                "macs": macs(step),
                "budget": lines.collect::<serde_json::Map<String, Value>>(),
            })
        }
    };
    let change = |change: &Change| {
        json!({
            "network": change.title,
            "package": change.package,
            "before": side(&change.before),
            "after": side(&change.after),
        })
    };
    json!({ "version": 1, "networks": changes.iter().map(change).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::{Built, complete, empty_folder, paired};

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

    #[test]
    fn a_side_that_cannot_be_read_is_no_side() {
        let side = |unreadable| complete(Built { unreadable, ..Built::default() }, "do this");
        assert!(side(0).is_ok_and(|networks| networks.is_empty()));
        assert_eq!(side(3).err().unwrap().to_string(), "3 records could not be read: do this");
    }

    #[test]
    fn programs_are_beside_those_of_their_file_and_moved_ones_beside_those_of_their_title() {
        let named = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|&(file, title)| (file.into(), title.into())).collect()
        };
        let before = named(&[("a.rs", "Net"), ("b.rs", "Net"), ("b.rs", "Gone"), ("c.rs", "Moved")]);
        let after = named(&[("z.rs", "Net"), ("b.rs", "Net"), ("d.rs", "Moved"), ("b.rs", "New")]);
        assert_eq!(paired(&before, &after), [Some(0), Some(1), Some(3), None]);
        // If one of two networks is new, the other is still paired with its old version.
        let after = named(&[("a0.rs", "Net"), ("a.rs", "Net"), ("b.rs", "Net")]);
        assert_eq!(paired(&before, &after), [None, Some(0), Some(1)]);
    }
}
