//! Finds the one network that a command is about: in a build, or in a source file without a build.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, chosen, only, single, unread};
use crate::files;
use crate::network::Network;
use crate::options::{Build, is_source};
use crate::output::warn;
use gpumem_language::source::Overrides;
use std::path::Path;

/// Returns the network of this name, or the only one without a name. `src/net.rs` is the only network of a file, and `src/net.rs::Net` one of
/// several.
///
/// Warns of records that cannot be read. A network of the same name may be among them.
pub fn network(name: Option<&str>, build: &Build) -> Result<Network, Failure> {
    let (file, of_file) = match name.and_then(|name| name.split_once(".rs::")) {
        Some((file, network)) => (Some(format!("{file}.rs")), Some(network)),
        None => (name.filter(|name| is_source(name)).map(String::from), None),
    };
    let (built, name) = match file {
        Some(file) => (files::networks(&[file], &Overrides::default())?, of_file),
        None => (networks_of(build, Path::new("."), None)?, name),
    };
    let built = chosen(built, name.map(String::from).as_slice())?;
    let network = if name.is_some() { single(&built.networks)? } else { only(&built)? };
    if built.unreadable > 0 {
        warn(&format!("{}: {ANOTHER_VERSION}", unread(built.unreadable)));
    }
    Ok(network.clone())
}
