//! Finding and opening a library of CUDA: in folders that the user names, by the loader, in Python's packages, in the toolkit.

use libloading::Library;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Version of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Major and minor version of the library itself.
    pub number: (i32, i32),
    /// The major version of CUDA that it is built for; 0 for the driver. A driver runs libraries of its own major version and older ones.
    pub cuda: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { number: (major, minor), cuda } = self;
        write!(f, "version {major}.{minor}")?;
        // cuDNN's version numbers differ from CUDA's.
        if ![0, *major].contains(cuda) { write!(f, " for CUDA {cuda}") } else { Ok(()) }
    }
}

/// A description of a library: its names, and a function that reads its version.
pub(crate) struct Kind {
    /// Stems of its file names, which are `lib{stem}.so` with a number.
    pub stems: &'static [&'static str],
    /// Names under which the loader is asked for it, in order. If there are none, they are those that cudarc tries.
    pub names: &'static [&'static str],
    /// Stems of the libraries in its folder that it opens by name: the loader does not look into that folder for them.
    pub companions: &'static [&'static str],
    /// The oldest accepted version.
    pub oldest: (i32, i32),
    /// True if cudarc opens it again by name. The library that the loader finds under that name must then be acceptable as well.
    pub by_name: bool,
    /// Returns the version, or a text that says what the library lacks.
    pub version: fn(&Library) -> Result<Version, String>,
}

impl Kind {
    fn fits(&self, version: Version, driver: Option<i32>) -> bool {
        version.number >= self.oldest && driver.is_none_or(|driver| version.cuda <= driver)
    }

    /// Returns the names under which the loader is asked for it, in order.
    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let stems = if self.names.is_empty() { self.stems } else { &[] };
        let candidates = stems.iter().flat_map(|stem| cudarc::get_lib_name_candidates(stem));
        self.names.iter().map(ToString::to_string).chain(candidates)
    }
}

/// A library that is open and has an accepted version.
#[derive(Debug)]
pub(crate) struct Found {
    /// The library. It must stay open while its functions are in use.
    pub library: Library,
    /// Its version.
    pub version: Version,
    /// Its path, or the name under which the loader found it.
    pub place: String,
}

/// Folders in which libraries are searched.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Folders that are searched before the loader's, in order.
    pub named: Vec<PathBuf>,
    /// Groups of folders that are searched after the loader's. Within a group the newest library is used.
    pub known: Vec<Vec<PathBuf>>,
}

impl Places {
    /// Returns the folders that `GPUMEM_CUDA` names, those of Python's packages, and the toolkit's.
    pub fn of_this_machine() -> Places {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = variable("GPUMEM_CUDA").map(|value| std::env::split_paths(&value).collect()).unwrap_or_default();
        let mut known: Vec<Vec<PathBuf>> = site_packages().iter().map(|site| wheel_folders(site)).collect();
        let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH"), Some("/usr/local/cuda".into())];
        known.extend(toolkits.into_iter().flatten().map(|root| vec![PathBuf::from(root).join("lib64")]));
        Places { named, known }
    }
}

/// Finds a library of an accepted version and opens it in such a way that it can be found by its name.
///
/// `driver` is the major version of CUDA that the driver runs, if it is known.
///
/// # Errors
/// A text about the library that was found instead and why it is not accepted; `None` if there was none.
pub(crate) fn find(kind: &Kind, driver: Option<i32>, places: &Places) -> Result<Found, Option<String>> {
    let files = |folders: &[PathBuf]| files(kind, driver, folders);
    let named = places.named.iter().flat_map(|folder| files(std::slice::from_ref(folder)));
    let by_loader = kind.names().map(PathBuf::from);
    let known = places.known.iter().flat_map(|group| files(group));
    let mut refused = None;
    let mut found = None;
    for path in named.chain(by_loader).chain(known) {
        match open_fitting(kind, driver, &path) {
            Ok(library) => {
                found = Some(library);
                break;
            }
            Err(why) => refused = refused.or(why),
        }
    }
    let found = found.ok_or(refused)?;
    if !kind.by_name {
        return Ok(found);
    }
    // A library that was opened by its path can be found by its own name only. The loader may find another one under a name that is earlier in the
    // list, and cudarc would use that one.
    let first = kind.names().find_map(|name| open(Path::new(&name)).ok().map(|library| (name, library)));
    let (name, library) = first.ok_or_else(|| Some(format!("only {}, whose name is unknown", found.place)))?;
    let version = (kind.version)(&library).map_err(|what| Some(format!("{name}, which {what}")))?;
    if !kind.fits(version, driver) {
        return Err(Some(format!("{version} ({name}, which the loader finds before {})", found.place)));
    }
    if version == found.version {
        return Ok(found);
    }
    Ok(Found { library, version, place: name })
}

/// Opens a file by its path or name. `Err(None)` if there is no such file.
fn open_fitting(kind: &Kind, driver: Option<i32>, path: &Path) -> Result<Found, Option<String>> {
    let place = path.display().to_string();
    let beside: Vec<Library> = match path.parent() {
        Some(folder) if folder != Path::new("") => companions(kind, folder),
        _ => Vec::new(),
    };
    let library = open(path).map_err(|error| {
        let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        // The loader uses these words for a name that it does not find. About any other library they are worth reporting.
        let is_missing =
            if cfg!(unix) { error.starts_with(&place) && error.contains("No such file") } else { !path.is_file() };
        (!is_missing).then(|| format!("{place}, which cannot be opened ({error}),"))
    })?;
    let version = (kind.version)(&library).map_err(|what| Some(format!("{place}, which {what},")))?;
    if !kind.fits(version, driver) {
        return Err(Some(format!("{version} ({place})")));
    }
    // The library may open them by name at any time, so they are never closed.
    beside.into_iter().for_each(std::mem::forget);
    Ok(Found { library, version, place })
}

fn companions(kind: &Kind, folder: &Path) -> Vec<Library> {
    let paths = kind.companions.iter().flat_map(|stem| files_of(stem, folder));
    paths.filter_map(|(_, path)| open(&path).ok()).collect()
}

/// Opens a library with global visibility, so that it can be found by name from now on.
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: by its name it is a library of CUDA, and using it means to run its initialisers.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: as above. Windows finds an open library by its name.
    unsafe { Library::new(path) }
}

/// Returns the library's files in these folders, the best first. Files that the driver can run by their number come first, and among them the
/// newest.
fn files(kind: &Kind, driver: Option<i32>, folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut files: Vec<(Vec<u32>, PathBuf)> =
        kind.stems.iter().flat_map(|stem| folders.iter().flat_map(move |folder| files_of(stem, folder))).collect();
    let can_run = |number: &[u32]| {
        number.first().is_none_or(|&major| driver.is_none_or(|driver| i64::from(major) <= i64::from(driver)))
    };
    files.sort_by(|(a, at_a), (b, at_b)| (can_run(b), b, at_b).cmp(&(can_run(a), a, at_a)));
    files.into_iter().map(|(_, path)| path).collect()
}

/// Returns the files `lib{stem}.so` of a folder, with any number, and that number.
fn files_of(stem: &str, folder: &Path) -> Vec<(Vec<u32>, PathBuf)> {
    let prefix = format!("lib{stem}.so");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: &Path| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(&prefix)?;
        rest.split('.').skip(1).map(|part| part.parse().ok()).collect()
    };
    entries.map(|entry| entry.path()).filter_map(|path| Some((number(&path)?, path))).collect()
}

/// Returns the folders `nvidia/*/lib` of a site-packages folder.
fn wheel_folders(site: &Path) -> Vec<PathBuf> {
    let folders = subfolders(&site.join("nvidia")).into_iter().map(|folder| folder.join("lib"));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// Returns the folders in which Python keeps packages: of the active environment, of the user, of the system.
fn site_packages() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME").map(|home| home.join(".local"));
    let roots =
        [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), home, Some("/usr/local".into()), Some("/usr".into())];
    roots.into_iter().flatten().flat_map(|root| packages_below(&root)).collect()
}

fn packages_below(root: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<PathBuf> = ["lib", "lib64"].iter().flat_map(|lib| subfolders(&root.join(lib))).collect();
    versions.retain(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")));
    versions.sort();
    versions.iter().flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.join(name))).collect()
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind {
        stems: &["gpumemfake"],
        names: &[],
        companions: &[],
        oldest: (12, 2),
        by_name: false,
        version: |_| Err("is only a test".into()),
    };

    /// Makes a separate folder for each test, with these empty files.
    fn folder(name: &str, files: &[&str]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("gpumem-library-{name}-{}", std::process::id()));
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "this is no library").unwrap();
        }
        root
    }

    #[test]
    fn the_newest_that_the_driver_runs_comes_first() {
        let root = folder(
            "order",
            &[
                "site/nvidia/cu13/lib/libgpumemfake.so.13",
                "site/nvidia/cuda_fake/lib/libgpumemfake.so.12",
                "site/nvidia/cuda_fake/lib/libgpumemfake.alt.so.12",
                "site/nvidia/cuda_fake/lib/libgpumemfake-builtins.so.12.9",
                "site/nvidia/old/lib/libgpumemfake.so.9",
                "site/nvidia/empty/include/none",
            ],
        );
        let folders = wheel_folders(&root.join("site"));
        assert_eq!(folders.len(), 3);
        let order = |driver| -> Vec<String> {
            let files = files(&KIND, driver, &folders);
            files.iter().map(|path| path.extension().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(order(Some(13)), ["13", "12", "9"]);
        assert_eq!(order(Some(12)), ["12", "9", "13"], "9 after 12 is by number, not by text");
        assert_eq!(order(None), ["13", "12", "9"]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn packages_of_every_python_are_looked_into() {
        let root = folder("python", &["lib/python3.11/x", "lib64/python3/x", "lib/perl/x"]);
        let found = packages_below(&root);
        let names = ["lib/python3.11", "lib64/python3"]
            .iter()
            .flat_map(|version| ["site-packages", "dist-packages"].map(|name| root.join(version).join(name)));
        assert_eq!(found, names.collect::<Vec<_>>());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_loader_is_asked_for_the_names_of_a_library() {
        let own = Kind { names: &["libgpumemfake.so.2"], ..KIND };
        assert_eq!(own.names().collect::<Vec<String>>(), ["libgpumemfake.so.2"]);
        assert!(KIND.names().any(|name| name.contains("gpumemfake")));
    }

    #[test]
    fn a_damaged_file_is_named_and_nothing_is_nothing() {
        let root = folder("damaged", &["libgpumemfake.so.13"]);
        let places = Places { named: vec![root.clone()], known: Vec::new() };
        let what = find(&KIND, Some(13), &places).unwrap_err().unwrap();
        assert!(what.contains("libgpumemfake.so.13, which cannot be opened"), "{what}");
        std::fs::remove_dir_all(root).unwrap();
        assert_eq!(find(&KIND, Some(13), &Places::default()).unwrap_err(), None);
    }
}
