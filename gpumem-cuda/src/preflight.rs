//! Which libraries are there, before anything is called: a missing one is an error that says what to install.
//!
//! All of CUDA is loaded at run time. The driver's library comes with the driver; NVRTC comes with the toolkit or in a Python
//! wheel, whose folder the loader does not know: it is opened by its path first, and found by its name afterwards.

use cudarc::{driver, nvrtc};
use gpumem_core::error::Error;
use std::path::{Path, PathBuf};

/// The oldest CUDA whose driver and compiler are used.
const OLDEST: (i32, i32) = (12, 2);
const WANTED: &str = "12.2 or newer";

/// Checks that the driver and NVRTC are there and new enough, and initialises the driver.
///
/// # Errors
/// [`Error::Library`] with what was found and what brings the library; [`Error::Device`] if the driver does not start.
pub fn check() -> Result<(), Error> {
    driver_is_there()?;
    compiler_is_there()
}

fn text((major, minor): (i32, i32)) -> String {
    format!("{major}.{minor}")
}

fn driver_is_there() -> Result<(), Error> {
    let missing = |found| Error::Library {
        name: "the NVIDIA driver (libcuda) with CUDA",
        found,
        wanted: WANTED,
        package: "an NVIDIA driver, version 535 or newer (Debian: nvidia-driver; in a container: nvidia-container-toolkit)",
    };
    // SAFETY: opening the driver's library runs its initialisers, which is what using it means.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err(missing(None));
    }
    driver::result::init().map_err(|error| Error::Device {
        device: "CUDA",
        what: format!("the driver does not start ({error}); does `nvidia-smi` list a card?"),
    })?;
    let mut version = 0;
    // SAFETY: `version` is a valid place for the one integer that is written.
    let _ = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    let found = (version / 1000, version % 1000 / 10);
    if found < OLDEST { Err(missing(Some(text(found)))) } else { Ok(()) }
}

fn compiler_is_there() -> Result<(), Error> {
    let missing = |found| Error::Library {
        name: "NVRTC (libnvrtc)",
        found,
        wanted: WANTED,
        package: "the package nvidia-cuda-nvrtc with pip, or cuda-nvrtc of the CUDA toolkit; GPUMEM_CUDA names its folder \
                  if it is in an unusual place",
    };
    // SAFETY: as for the driver.
    if !unsafe { nvrtc::sys::is_culib_present() } && !open_from_folders() {
        return Err(missing(None));
    }
    match compiler_version() {
        Some(found) if found >= OLDEST => Ok(()),
        found => Err(missing(found.map(text))),
    }
}

/// Version of NVRTC, if it is there.
pub fn compiler() -> Option<(i32, i32)> {
    // SAFETY: as in `compiler_is_there`.
    let is_there = unsafe { nvrtc::sys::is_culib_present() } || open_from_folders();
    is_there.then(compiler_version).flatten()
}

/// Version of NVRTC, which must be loadable.
pub(crate) fn compiler_version() -> Option<(i32, i32)> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for the integers that are written; the library was found before.
    let result = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    (result == nvrtc::sys::nvrtcResult::NVRTC_SUCCESS).then_some((major, minor))
}

/// Opens NVRTC from the folders of Python wheels and of `GPUMEM_CUDA`, so that its name finds it from now on.
fn open_from_folders() -> bool {
    let named = std::env::var_os("GPUMEM_CUDA").map(PathBuf::from);
    let folders = named.into_iter().chain(site_packages().into_iter().flat_map(|site| wheel_folders(&site)));
    folders.into_iter().any(|folder| open_library(&folder))
}

/// `nvidia/*/lib` of a site-packages folder, newest CUDA first.
fn wheel_folders(site: &Path) -> Vec<PathBuf> {
    let mut folders = subfolders(&site.join("nvidia"));
    folders.sort();
    folders.reverse();
    folders.into_iter().map(|folder| folder.join("lib")).filter(|folder| folder.is_dir()).collect()
}

/// Folders where Python keeps packages: of the active environment, of the user, of the system.
fn site_packages() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME").map(|home| home.join(".local"));
    let roots =
        [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), home, Some("/usr/local".into()), Some("/usr".into())];
    let versions = roots.into_iter().flatten().flat_map(|root| subfolders(&root.join("lib")));
    let versions =
        versions.filter(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")));
    versions.flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.join(name))).collect()
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(unix)]
fn open_library(folder: &Path) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut libraries: Vec<PathBuf> = files
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with("libnvrtc.so") && !name.contains(".alt.")
        })
        .collect();
    libraries.sort();
    libraries.into_iter().rev().any(|path| {
        // SAFETY: it is NVIDIA's library by its name, and opening it is what using it means. It is never closed: functions
        // that were looked up in it are kept.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.map(std::mem::forget).is_ok()
    })
}

#[cfg(not(unix))]
fn open_library(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_cuda_gets_an_error_that_says_what_to_install() {
        // On a machine with a driver and NVRTC there is nothing to complain about.
        if let Err(error) = check() {
            let text = error.to_string();
            assert!(text.contains("install") || text.contains("nvidia-smi"), "{text}");
        }
    }

    #[test]
    fn wheels_are_looked_for_newest_first() {
        let site = std::env::temp_dir().join(format!("gpumem-preflight-{}", std::process::id()));
        for folder in ["cu12/lib", "cu13/lib", "cuda_nvrtc/lib", "empty"] {
            std::fs::create_dir_all(site.join("nvidia").join(folder)).unwrap();
        }
        let found = wheel_folders(&site);
        std::fs::remove_dir_all(&site).unwrap();
        let expected: Vec<PathBuf> =
            ["cuda_nvrtc/lib", "cu13/lib", "cu12/lib"].map(|folder| site.join("nvidia").join(folder)).to_vec();
        assert_eq!(found, expected);
    }
}
