//! Building, and the records in what was built.

use crate::Failure;
use crate::network::{Built, networks};
use crate::options::Build;
use crate::packages::has_library;
use cargo_metadata::{Message, MetadataCommand};
use gpumem_core::memory::record::records;
use gpumem_core::memory::refusal::UNCHECKED;
use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The section that records are in.
const SECTIONS: [&str; 2] = [".gpumem", "__gpumem"];

/// Builds what was asked for from a folder and returns its networks. What begins like a record and is none is counted, and named on
/// standard error. Without a `target` it builds in a folder of its own inside the one where cargo does.
pub fn networks_of(build: &Build, folder: &Path, target: Option<&Path>) -> Result<Built, Failure> {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    for path in artefacts(build, folder, target)? {
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let (records, damaged) = records_of(&path, &bytes);
        found.extend(records);
        unreadable += damaged;
    }
    let built = networks(found);
    Ok(Built { unreadable: built.unreadable + unreadable, ..built })
}

/// The records in the bytes of a file, each a text and a blueprint, and how many others could not be read.
pub fn records_of(path: &Path, bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, usize) {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    for section in sections(bytes) {
        for record in records(&section) {
            match record {
                Ok(record) => found.push((record.text.to_string(), record.blueprint.to_vec())),
                Err(error) => {
                    eprintln!("warning: skipped in {}: {error}", path.display());
                    unreadable += 1;
                }
            }
        }
    }
    (found, unreadable)
}

/// Builds, and returns the files that were made of the workspace's packages.
fn artefacts(build: &Build, folder: &Path, target: Option<&Path>) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut metadata = MetadataCommand::new();
    metadata.current_dir(folder).no_deps();
    if let Some(manifest) = &build.manifest_path {
        metadata.manifest_path(manifest);
    }
    let metadata = metadata.exec()?;
    // A folder of its own: what is built here is not checked, and nobody shall take it for what is.
    let target = target.map_or_else(|| metadata.target_directory.join("gpumem").into_std_path_buf(), Path::to_path_buf);
    let mut child = cargo(build, folder, &target, has_library(&metadata, build))
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut files = BTreeSet::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artefact) = message?
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
    Ok(files)
}

/// The build, with everything that records are read from.
fn cargo(build: &Build, folder: &Path, target: &Path, has_library: bool) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).args(["build", "--bins", "--examples"]);
    command.arg("--message-format=json-render-diagnostics").arg("--target-dir").arg(target);
    let profile = build.profile();
    command.args(["--profile", profile]);
    // What is optimised at the end is no object file before: a library would have no sections.
    for setting in ["debug=0", "strip=\"none\"", "lto=\"off\""] {
        command.arg("--config").arg(format!("profile.{profile}.{setting}"));
    }
    command.env("__GPUMEM_CHECK", UNCHECKED);
    // They are for the compiler's check. Without it they would still decide what `batch: Largest` is.
    for variable in ["GPUMEM_CARDS", "GPUMEM_VRAM", "GPUMEM_HEADROOM"] {
        command.env_remove(variable);
    }
    for (option, given) in [
        // An error where there is none.
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

/// The bytes of all sections with records: of an executable or a library, or of every object in an archive. Anything else has none.
fn sections(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Ok(archive) = ArchiveFile::parse(bytes) else { return sections_of_object(bytes) };
    let members = archive.members().filter_map(|member| member.ok()?.data(bytes).ok());
    members.flat_map(sections_of_object).collect()
}

fn sections_of_object(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let sections = file.sections().filter(|section| section.name().is_ok_and(|name| SECTIONS.contains(&name)));
    sections.filter_map(|section| section.data().ok().map(<[u8]>::to_vec)).collect()
}
