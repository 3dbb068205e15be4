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
    if let Some((file, network)) = name.and_then(|name| name.split_once(".rs::")) {
        return in_file(&format!("{file}.rs"), Some(network));
    }
    if let Some(file) = name.filter(|name| is_source(name)) {
        return in_file(file, None);
    }
    let built = chosen(networks_of(build, Path::new("."), None)?, name.map(String::from).as_slice())?;
    let network = if name.is_some() { single(&built.networks)? } else { only(&built)? };
    if built.unreadable > 0 {
        warn(&format!("{}: {ANOTHER_VERSION}", unread(built.unreadable)));
    }
    Ok(network.clone())
}

/// Returns the network of this name in a source file, or the only one.
fn in_file(file: &str, name: Option<&str>) -> Result<Network, Failure> {
    let built = files::networks(&[file.to_string()], &Overrides::default())?;
    if let Some(name) = name {
        return Ok(single(&chosen(built, &[name.to_string()])?.networks)?.clone());
    }
    match built.networks.as_slice() {
        [network] => Ok(network.clone()),
        all => {
            let names: Vec<&str> = all.iter().map(|network| network.name.as_str()).collect();
            let (first, all) = (names.first().unwrap_or(&""), names.join(", "));
            Err(format!("{file} has several networks: {all}; name one, as `{file}::{first}`").into())
        }
    }
}
