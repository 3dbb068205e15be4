//! Finds out which packages of a workspace cargo builds.

use crate::options::Build;
use cargo_metadata::{Metadata, Package, Target};

/// True if one of the packages that cargo will build has a library. `metadata` is that of the folder or the manifest that is built.
pub fn has_library(metadata: &Metadata, build: &Build) -> bool {
    let all = metadata.workspace_packages();
    let mut chosen = all.iter().filter(|package| is_chosen(package, metadata, build));
    chosen.any(|package| package.targets.iter().any(is_library))
}

fn is_chosen(package: &Package, metadata: &Metadata, build: &Build) -> bool {
    if build.workspace || build.package.is_empty() {
        return build.workspace || metadata.workspace_default_members.contains(&package.id);
    }
    let version = package.version.to_string();
    build.package.iter().any(|spec| is_meant(spec, &package.name, &version, &package.id.repr))
}

fn is_library(target: &Target) -> bool {
    let is_other = [Target::is_bin, Target::is_example, Target::is_test, Target::is_bench, Target::is_custom_build];
    !is_other.iter().any(|is_it| is_it(target))
}

/// True if `--package` means this package: `name`, `name@1.2`, `path+file:///folder#name@1.2`, or a pattern of names.
fn is_meant(spec: &str, name: &str, version: &str, id: &str) -> bool {
    if spec.contains("://") {
        let (address, rest) = spec.split_once('#').unwrap_or((spec, name));
        let plain = |address| str::strip_prefix(address, "path+").unwrap_or(address);
        let own = id.split_once('#').map_or(id, |(own, _)| own);
        return plain(address) == plain(own) && (is_named(rest, name, version) || is_version(rest, version));
    }
    if spec.contains(['*', '?', '[', ']']) {
        let [pattern, name] = [spec, name].map(|text| text.chars().collect::<Vec<char>>());
        return is_like(&name, &pattern);
    }
    is_named(spec, name, version)
}

/// True if a spec is `name`, or `name` with a version after it.
fn is_named(spec: &str, name: &str, version: &str) -> bool {
    match spec.split_once(['@', ':']) {
        Some((named, wanted)) => named == name && is_version(wanted, version),
        None => spec == name,
    }
}

/// True if a version begins with the wanted one: `1`, `1.2` or `1.2.3`.
fn is_version(wanted: &str, version: &str) -> bool {
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
}

/// True if a name matches a pattern with `*`, `?` and `[a-z]`.
fn is_like(name: &[char], pattern: &[char]) -> bool {
    match (pattern, name) {
        (['*', rest @ ..], _) => (0..=name.len()).any(|skipped| is_like(&name[skipped..], rest)),
        (['?', rest @ ..], [_, after @ ..]) => is_like(after, rest),
        (['[', inside @ ..], [first, after @ ..]) => {
            class(inside).is_some_and(|class| class.has(*first) && is_like(after, class.rest))
        }
        ([wanted, rest @ ..], [first, after @ ..]) => wanted == first && is_like(after, rest),
        (rest, after) => rest.is_empty() && after.is_empty(),
    }
}

/// A class of characters, `a-z_]` or `!a-z_]`, and the pattern after it.
struct Class<'p> {
    is_negated: bool,
    members: &'p [char],
    rest: &'p [char],
}

/// Parses a class. `None` if it has no closing bracket. A bracket that comes first is a member.
fn class(inside: &[char]) -> Option<Class<'_>> {
    let (is_negated, inside) = match inside {
        ['!', rest @ ..] => (true, rest),
        _ => (false, inside),
    };
    let end = 1 + inside.get(1..)?.iter().position(|&letter| letter == ']')?;
    Some(Class { is_negated, members: &inside[..end], rest: &inside[end + 1..] })
}

impl Class<'_> {
    fn has(&self, letter: char) -> bool {
        let (mut members, mut is_in) = (self.members, false);
        while let Some((&first, rest)) = members.split_first() {
            let (last, rest) = match rest {
                ['-', last, rest @ ..] => (*last, rest),
                _ => (first, rest),
            };
            is_in |= (first..=last).contains(&letter);
            members = rest;
        }
        is_in != self.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cargo_metadata::MetadataCommand;

    #[test]
    fn packages_are_meant_as_cargo_means_them() {
        let is_meant = |spec: &str| is_meant(spec, "nets", "1.2.3", "path+file:///home/me/nets#1.2.3");
        for spec in [
            "nets",
            "nets@1",
            "nets@1.2",
            "nets@1.2.3",
            "nets:1.2.3",
            "n*",
            "*",
            "?ets",
            "ne[st]s",
            "n[a-f]ts",
            "n[!a]ts",
            "*[]s]",
            "path+file:///home/me/nets",
            "file:///home/me/nets#1.2",
            "file:///home/me/nets#nets@1.2.3",
        ] {
            assert!(is_meant(spec), "{spec}");
        }
        for spec in [
            "net",
            "nets2",
            "nets@1.3",
            "nets@1.2.30",
            "nets@12",
            "n",
            "?",
            "nets?",
            "n[!e]ts",
            "n[f-z]ts",
            "ne[ts",
            "N*",
            "file:///home/me/net",
            "file:///home/me/nets#2",
            "file:///home/me/nets#other",
        ] {
            assert!(!is_meant(spec), "{spec}");
        }
    }

    /// A workspace whose default member has no library, and another that has one.
    #[test]
    fn a_library_is_that_of_what_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[workspace]\nmembers = [\"app\", \"nets\"]\ndefault-members = [\"app\"]\nresolver = \"3\"\n",
        );
        for name in ["app", "nets"] {
            let manifest = format!("[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n");
            write(&format!("{name}/Cargo.toml"), &manifest);
        }
        write("app/src/main.rs", "fn main() {}");
        write("nets/src/lib.rs", "");
        let has = |inside: &str, build: Build| {
            let mut command = MetadataCommand::new();
            has_library(&command.current_dir(folder.path().join(inside)).no_deps().exec().unwrap(), &build)
        };
        let package = |spec: &str| Build { package: vec![spec.to_string()], ..Build::default() };
        assert!(!has("", Build::default()) && !has("app", Build::default()) && has("nets", Build::default()));
        assert!(has("", Build { workspace: true, ..Build::default() }) && has("app", package("nets@1.2")));
        assert!(has("", package("net*")) && !has("nets", package("a*")) && !has("", package("nets@2")));
    }
}
