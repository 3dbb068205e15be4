//! Finds the name that the manifest of the compiled crate gives this library.

use std::path::Path;

/// Returns the name that the manifest gives this library, if that is not `gpumem`.
///
/// `None` too if the manifest cannot be found or read, or if it inherits the name from its workspace.
pub(crate) fn other_name() -> Option<String> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")?;
    let text = std::fs::read_to_string(Path::new(&folder).join("Cargo.toml")).ok()?;
    name_in(&text)
}

/// Returns `gm` for `gm = { package = "gpumem" }`, and for `[dependencies.gm]` with `package = "gpumem"` below it.
fn name_in(manifest: &str) -> Option<String> {
    let (mut other, mut table) = (None, "");
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').rsplit('.').next().unwrap_or_default();
            if table == "gpumem" {
                return None;
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim();
        if key == "gpumem" || key.starts_with("gpumem.") {
            return None;
        }
        let compact: String = value.chars().filter(|letter| !letter.is_whitespace()).collect();
        if compact.contains("package=\"gpumem\"") {
            other = Some(key.to_string());
        } else if compact == "\"gpumem\"" {
            let name = if key == "package" { Some(table) } else { key.strip_suffix(".package") };
            other = name.map(ToString::to_string).or(other);
        }
    }
    let name = other?.trim_matches('"').replace('-', "_");
    syn::parse_str::<syn::Ident>(&name).is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::name_in;

    #[test]
    fn names_in_manifests() {
        for (manifest, name) in [
            ("[dependencies]\ngpumem = \"0.1\"", None),
            ("[dependencies]\ngpumem.workspace = true", None),
            ("[dependencies]\ngm = { package = \"gpumem\", path = \"..\" } # short", Some("gm")),
            ("[dependencies]\ngpu-mem = { version = \"0.1\", package=\"gpumem\" }", Some("gpu_mem")),
            ("[dependencies.gm]\nversion = \"0.1\"\npackage = \"gpumem\"\n[features]", Some("gm")),
            ("[dependencies]\ngm = { package = \"gpumem\" }\n[dev-dependencies.gpumem]\npath = \"..\"", None),
            ("[dependencies]\ngm.package = \"gpumem\"\ngm.version = \"0.1\"", Some("gm")),
            ("[package]\nname = \"gpumem\"", None),
            ("[dependencies]\n# gm = { package = \"gpumem\" }\nserde = \"1\"", None),
        ] {
            assert_eq!(name_in(manifest).as_deref(), name, "{manifest}");
        }
    }
}
