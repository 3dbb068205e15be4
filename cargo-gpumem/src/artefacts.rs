//! Builds packages, and reads the records in the files that were built.

use crate::Failure;
use crate::built::{Built, networks};
use crate::options::Build;
use crate::output::{print, warn};
use crate::packages::has_library;
use cargo_metadata::{Message, Metadata, MetadataCommand};
use gpumem_core::memory::record::records;
use gpumem_core::memory::target_cards::UNCHECKED;
use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names of sections that hold records.
const SECTIONS: [&str; 2] = [".gpumem", "__gpumem"];

/// Builds in `folder` and returns the networks that were built.
///
/// Records and sections that cannot be read are counted, and named on standard error. Without a `target`, builds in a folder inside cargo's target
/// folder.
pub fn networks_of(build: &Build, folder: &Path, target: Option<&Path>) -> Result<Built, Failure> {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    let (metadata, files) = artefacts(build, folder, target)?;
    for path in files {
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let (records, damaged) = records_of(&path, &bytes);
        found.extend(records);
        unreadable += damaged;
    }
    let built = networks(found, &|file| package_of(&metadata, Path::new(file)));
    Ok(Built { unreadable: built.unreadable + unreadable, workspace: Some(metadata), ..built })
}

/// Returns the records in the bytes of a file, and the number of unreadable records. A record is a text and a blueprint.
pub fn records_of(path: &Path, bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, usize) {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    let mut skipped = |error: &dyn std::fmt::Display| {
        warn(&format!("skipped in {}: {error}", path.display()));
        unreadable += 1;
    };
    for section in sections(bytes) {
        match &section {
            Ok(section) => records(section).for_each(|record| match record {
                Ok(record) => found.push((record.text.to_string(), record.blueprint.to_vec())),
                Err(error) => skipped(&error),
            }),
            Err(error) => skipped(error),
        }
    }
    (found, unreadable)
}

/// Returns the package of the workspace that a file is in. `None` for files outside.
///
/// The compiler gets the paths of the workspace's files relative to its root.
fn package_of(metadata: &Metadata, file: &Path) -> Option<String> {
    let path = metadata.workspace_root.as_std_path().join(file);
    let packages = metadata.packages.iter().filter_map(|package| {
        let folder = package.manifest_path.parent()?;
        path.starts_with(folder).then(|| (folder.components().count(), package.name.to_string()))
    });
    packages.max().map(|(_, name)| name)
}

/// Builds, and returns cargo's description of the workspace and the files that were built from its packages.
fn artefacts(build: &Build, folder: &Path, target: Option<&Path>) -> Result<(Metadata, BTreeSet<PathBuf>), Failure> {
    let mut metadata = MetadataCommand::new();
    metadata.current_dir(folder).no_deps();
    if let Some(manifest) = &build.manifest_path {
        metadata.manifest_path(manifest);
    }
    let metadata = metadata.exec()?;
    // A separate folder, because these files are built without the check and must not be used as if they were checked.
    let target = target.map_or_else(|| metadata.target_directory.join("gpumem").into_std_path_buf(), Path::to_path_buf);
    let mut child = cargo(build, folder, &target, has_library(&metadata, build))
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut files = BTreeSet::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        // Other lines are printed by programs that cargo runs.
        let Ok(message) = serde_json::from_str(&line) else { continue };
        // The end is that of the command.
        if build.prints_messages && !matches!(message, Message::BuildFinished(_)) {
            print(&format!("{line}\n"))?;
        }
        if let Message::CompilerArtifact(artefact) = message
            && metadata.workspace_members.contains(&artefact.package_id)
        {
            let is_object = |path: &&cargo_metadata::camino::Utf8PathBuf| {
                !matches!(path.extension(), Some("rmeta" | "d" | "pdb" | "dSYM" | "dwp"))
            };
            let paths = artefact.filenames.iter().filter(is_object).chain(&artefact.executable);
            files.extend(paths.map(|path| path.clone().into_std_path_buf()));
        }
    }
    if !child.wait()?.success() {
        return Err("the build failed; mend what cargo says above".into());
    }
    Ok((metadata, files))
}

/// Returns the command that builds everything that may contain records.
fn cargo(build: &Build, folder: &Path, target: &Path, has_library: bool) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).args(["build", "--bins", "--examples"]);
    let messages = if build.prints_messages { "json" } else { "json-render-diagnostics" };
    command.arg(format!("--message-format={messages}")).arg("--target-dir").arg(target);
    let profile = build.profile();
    command.args(["--profile", profile]);
    // With LTO, a library would not contain object files, and so no sections.
    for setting in ["debug=0", "strip=\"none\"", "lto=\"off\""] {
        command.arg("--config").arg(format!("profile.{profile}.{setting}"));
    }
    command.env("__GPUMEM_CHECK", UNCHECKED);
    // These variables are for the compiler's check. Without it, they would still change the batch of `batch: Largest`.
    for variable in ["GPUMEM_CARDS", "GPUMEM_VRAM", "GPUMEM_HEADROOM"] {
        command.env_remove(variable);
    }
    for (option, given) in [
        // cargo fails if there is no library.
        ("--lib", has_library),
        ("--workspace", build.workspace),
        ("--all-features", build.all_features),
        ("--no-default-features", build.no_default_features),
        ("--quiet", build.quiet),
    ] {
        if given {
            command.arg(option);
        }
    }
    command.args(build.package.iter().flat_map(|package| ["--package", package]));
    command.args(build.features.iter().flat_map(|features| ["--features", features]));
    if let Some(manifest) = &build.manifest_path {
        command.arg("--manifest-path").arg(manifest);
    }
    command
}

/// The bytes of a section, or the reason why they cannot be read.
type Section = Result<Vec<u8>, String>;

/// The first bytes of an archive.
const ARCHIVE: &[u8] = b"!<arch>\n";

/// Returns all sections with records: those of an executable or a library, or of every object in an archive. Other files have none.
fn sections(bytes: &[u8]) -> Vec<Section> {
    if !bytes.starts_with(ARCHIVE) {
        return sections_of_object(bytes);
    }
    let damaged = |error: object::Error| vec![Err(format!("an archive that cannot be read: {error}"))];
    let archive = match ArchiveFile::parse(bytes) {
        Ok(archive) => archive,
        Err(error) => return damaged(error),
    };
    let members = archive.members().map(|member| member.and_then(|member| member.data(bytes)));
    members.flat_map(|member| member.map_or_else(damaged, sections_of_object)).collect()
}

fn sections_of_object(bytes: &[u8]) -> Vec<Section> {
    use object::FileKind::{Coff, CoffBig, Elf32, Elf64, MachO32, MachO64, Pe32, Pe64};
    // Files that are not objects, such as a library's metadata, have no sections.
    if !matches!(object::FileKind::parse(bytes), Ok(Coff | CoffBig | Elf32 | Elf64 | MachO32 | MachO64 | Pe32 | Pe64)) {
        return Vec::new();
    }
    let file = match object::File::parse(bytes) {
        Ok(file) => file,
        Err(error) => return vec![Err(format!("an object that cannot be read: {error}"))],
    };
    let sections = file.sections().filter(|section| section.name().is_ok_and(|name| SECTIONS.contains(&name)));
    let read = |section: object::Section<'_, '_>| match section.data() {
        Ok(data) => Ok(data.to_vec()),
        Err(error) => Err(format!("a section that cannot be read: {error}")),
    };
    sections.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_no_silence() {
        assert!(sections(b"").is_empty() && sections(b"text of any kind").is_empty());
        let error = |bytes: &[u8]| {
            let sections = sections(bytes);
            let [Err(error)] = sections.as_slice() else { panic!("it can be read") };
            error.clone()
        };
        assert!(error(b"!<arch>\nname without an end").starts_with("an archive that cannot be read: "));
        assert!(error(b"\x7fELF\x02\x01\x01 and no more").starts_with("an object that cannot be read: "));
    }

    #[test]
    fn a_file_is_in_the_package_whose_folder_is_nearest() {
        let metadata = MetadataCommand::new().no_deps().exec().unwrap();
        let package = |file: &str| package_of(&metadata, Path::new(file));
        assert_eq!(package("cargo-gpumem/src/main.rs").as_deref(), Some("cargo-gpumem"));
        assert_eq!(package("examples/vgg16.rs").as_deref(), Some("gpumem"));
        assert_eq!(package("/elsewhere/src/lib.rs"), None);
    }
}
