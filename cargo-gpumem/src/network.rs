//! Networks, as their records say.

use crate::Failure;
use gpumem_core::Precision;
use gpumem_core::cards::{Card, find};
use gpumem_core::lower::Blueprint;
use gpumem_core::train::Train;
use serde_json::Value;
use std::collections::BTreeMap;

/// A network that was built.
#[derive(Clone)]
pub struct Network {
    /// `Vgg16`, or `Vgg16<64>` for an instance of a network that is generic over its batch.
    pub name: String,
    /// The file that declares it, as the compiler was given it, and the line of its batch.
    pub file: String,
    pub line: u64,
    pub blueprint: Blueprint,
    pub train: Option<Written>,
    pub infer: Option<Written>,
}

/// What `TRAIN` or `INFER` says.
#[derive(Clone)]
pub struct Written {
    /// Not known of a network that is generic over its batch.
    pub batch: Option<u64>,
    pub precision: Precision,
    pub headroom: u64,
    pub convolution_workspace: u64,
    /// Those that are written, and those of Cargo features.
    pub cards: Vec<&'static Card>,
}

/// The networks of records, each a text and a blueprint, in the order of their files and lines. The same record stands in every
/// artefact that a network is linked into.
pub fn networks(mut records: Vec<(String, Vec<u8>)>) -> Result<Vec<Network>, Failure> {
    records.sort();
    records.dedup();
    let mut found = Vec::new();
    let mut generic: BTreeMap<String, Network> = BTreeMap::new();
    let mut instances = Vec::new();
    for (text, blueprint) in records {
        let facts: Value = serde_json::from_str(&text).map_err(|error| format!("a record is no JSON: {error}"))?;
        if blueprint.is_empty() {
            instances.push(facts);
            continue;
        }
        let name = facts["name"].as_str().unwrap_or_default().to_string();
        let Some(blueprint) = Blueprint::decode(&blueprint) else {
            eprintln!(
                "warning: skipped `{name}`: its program was written by another version of gpumem; install the same"
            );
            continue;
        };
        let network = Network {
            file: facts["file"].as_str().unwrap_or_default().to_string(),
            line: facts["line"].as_u64().unwrap_or_default(),
            train: written(&facts, "train"),
            infer: written(&facts, "infer"),
            blueprint,
            name: name.clone(),
        };
        if facts["generic"] == true {
            generic.insert(name, network);
        } else {
            found.push(network);
        }
    }
    for facts in instances {
        let Some(network) = facts["name"].as_str().and_then(|name| generic.get(name)) else { continue };
        found.push(instance(network, &facts));
    }
    found.extend(generic.into_values());
    found.sort_by(|a, b| (&a.file, a.line, &a.name).cmp(&(&b.file, b.line, &b.name)));
    Ok(found)
}

/// `fits!(Net<64>)`: the generic network at the batch that the record has.
fn instance(network: &Network, facts: &Value) -> Network {
    let mut network = network.clone();
    for (written, program) in [(&mut network.train, "train"), (&mut network.infer, "infer")] {
        if let Some(written) = written {
            written.batch = facts[program]["batch"].as_u64();
        }
    }
    let batch = network.train.iter().chain(&network.infer).find_map(|written| written.batch);
    network.name = format!("{}<{}>", network.name, batch.unwrap_or_default());
    network.file = facts["file"].as_str().unwrap_or_default().to_string();
    network.line = facts["line"].as_u64().unwrap_or_default();
    network
}

fn written(facts: &Value, program: &str) -> Option<Written> {
    let settings = facts["settings"][program].as_object()?;
    // As the compiler does: those that are written, and those of Cargo features.
    let mut cards: Vec<&'static Card> = Vec::new();
    for slug in settings["cards"].as_array()?.iter().chain(facts["selected"].as_array().into_iter().flatten()) {
        cards.extend(slug.as_str().and_then(find).filter(|card| !cards.iter().any(|known| known.slug == card.slug)));
    }
    Some(Written {
        batch: facts[program]["batch"].as_u64(),
        precision: precision(settings["precision"].as_str()?)?,
        headroom: settings["headroom"].as_u64()?,
        convolution_workspace: settings
            .get("conv_workspace")
            .and_then(Value::as_u64)
            .unwrap_or(Train::DEFAULT.conv_workspace),
        cards,
    })
}

fn precision(name: &str) -> Option<Precision> {
    Precision::ALL.into_iter().find(|precision| precision.name() == name)
}

/// The networks with these names, in their order; all of them if none is named.
pub fn chosen(networks: Vec<Network>, names: &[String]) -> Result<Vec<Network>, Failure> {
    if networks.is_empty() {
        return Err("no network was built: none of the libraries, binaries and examples that were built declares one \
                    (examples with `required-features` need `--features`)"
            .into());
    }
    if names.is_empty() {
        return Ok(networks);
    }
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        found.extend(networks.iter().filter(|network| network.name == *name).cloned());
        if found.len() == before {
            let known: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
            return Err(format!("no network is called `{name}`; there is {}", known.join(", ")).into());
        }
    }
    Ok(found)
}
