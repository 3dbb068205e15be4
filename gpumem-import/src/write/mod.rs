//! Writers of files with networks.

pub mod onnx;
mod weights;

pub use weights::Safetensors;

use std::io;
use std::path::Path;
use tempfile::NamedTempFile;

/// Creates a temporary file in a folder, with the permissions that a file usually has. It is removed unless it is renamed.
///
/// # Errors
/// The folder is missing, or no file can be created in it.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gpumem");
    #[cfg(unix)]
    {
        // A temporary file would be accessible to its owner alone.
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
