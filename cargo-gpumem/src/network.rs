//! Networks, as their records say.

use crate::Failure;
use gpumem_core::Precision;
use gpumem_core::cards::{Card, find};
use gpumem_core::lower::Blueprint;
use gpumem_core::train::Train;
use serde_json::Value;

/// What was built.
pub struct Built {
    /// In the order of their files and lines.
    pub networks: Vec<Network>,
    /// Records that could not be read, each of which was named.
    pub unreadable: usize,
}

/// A network that was built.
#[derive(Clone)]
pub struct Network {
    /// `Vgg16`, or `Vgg16<64>` for an instance of a network that is generic over its batch.
    pub name: String,
    /// The file that declares it, as the compiler was given it, and the line of its batch.
    pub file: String,
    pub line: u64,
    /// The same of its declaration: an instance stands elsewhere.
    pub declared: (String, u64),
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

/// The networks of records, each a text and a blueprint. The same record stands in every artefact that a network is linked into.
pub fn networks(mut records: Vec<(String, Vec<u8>)>) -> Built {
    records.sort();
    records.dedup();
    let (mut found, mut generic, mut instances, mut unreadable) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (text, blueprint) in records {
        let Ok(facts) = serde_json::from_str::<Value>(&text) else {
            eprintln!("warning: skipped a record whose text is no JSON");
            unreadable += 1;
            continue;
        };
        if blueprint.is_empty() {
            instances.push(facts);
            continue;
        }
        let Some(blueprint) = Blueprint::decode(&blueprint) else {
            eprintln!("warning: skipped `{}`: its program was written by another version of gpumem", name(&facts));
            unreadable += 1;
            continue;
        };
        if facts["generic"] == true { &mut generic } else { &mut found }.push(declared(&facts, blueprint));
    }
    for facts in instances {
        match declaration(&generic, &facts) {
            Some(network) => found.push(instance(network, &facts)),
            // The record of one that is not generic has everything already.
            None if found.iter().any(|network| is_of(&facts, network)) => {}
            None => eprintln!("warning: {}", skipped(&facts)),
        }
    }
    found.append(&mut generic);
    found.sort_by(|a, b| (&a.file, a.line, &a.name).cmp(&(&b.file, b.line, &b.name)));
    Built { networks: found, unreadable }
}

/// The network of a record with a blueprint.
fn declared(facts: &Value, blueprint: Blueprint) -> Network {
    let (file, line) = place(facts);
    Network {
        name: name(facts).to_string(),
        declared: (file.clone(), line),
        file,
        line,
        blueprint,
        train: written(facts, "train"),
        infer: written(facts, "infer"),
    }
}

fn name(facts: &Value) -> &str {
    facts["name"].as_str().unwrap_or_default()
}

/// The file and the line that a record has.
fn place(facts: &Value) -> (String, u64) {
    (facts["file"].as_str().unwrap_or_default().to_string(), facts["line"].as_u64().unwrap_or_default())
}

/// Whether the record of an instance is of this network. Names need not be unique: it has the place of the declaration. One of a version
/// that did not write it has the name alone.
fn is_of(facts: &Value, network: &Network) -> bool {
    facts["name"] == network.name && facts.get("of").is_none_or(|of| network.declared == place(of))
}

/// The generic network of an instance, where there is one that it must be of.
fn declaration<'n>(generic: &'n [Network], facts: &Value) -> Option<&'n Network> {
    let mut all = generic.iter().filter(|network| is_of(facts, network));
    all.next().filter(|first| all.all(|other| other.declared == first.declared))
}

/// What is said of an instance without its network.
fn skipped(facts: &Value) -> String {
    let ((file, line), name) = (place(facts), name(facts));
    match facts.get("of") {
        Some(_) => {
            format!(
                "skipped `{name}` at {file}:{line}: the network that it is of is not among those that were built and read"
            )
        }
        None => format!(
            "skipped `{name}` at {file}:{line}: its gpumem does not say which of the networks with that name it is of; \
             `cargo update -p gpumem` brings one that does"
        ),
    }
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
    (network.file, network.line) = place(facts);
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

/// `1 record could not be read`
pub fn unread(count: usize) -> String {
    format!("{count} record{} could not be read", if count == 1 { "" } else { "s" })
}

/// What is done about them.
pub const ANOTHER_VERSION: &str = "what another version of gpumem wrote needs the command of that version: install that of the \
                                   commit in Cargo.lock, with `cargo install --locked --git \
                                   https://github.com/gpumem/gpumem --rev COMMIT cargo-gpumem`";

/// The networks with these names, in their order; all of them if none is named.
pub fn chosen(built: Built, names: &[String]) -> Result<Vec<Network>, Failure> {
    let Built { networks, unreadable } = built;
    if networks.is_empty() && unreadable > 0 {
        return Err(format!("no network could be read ({}): {ANOTHER_VERSION}", unread(unreadable)).into());
    }
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

/// The network, where no other has its name.
pub fn single(networks: &[Network]) -> Result<&Network, Failure> {
    match networks {
        [network] => Ok(network),
        _ => {
            let name = networks.first().map(|network| network.name.as_str()).unwrap_or_default();
            let places = networks.iter().map(|network| format!("{}:{}", network.file, network.line));
            let places = places.collect::<Vec<_>>().join(", ");
            Err(format!(
                "several networks are called `{name}`: {places}; choose the package of one with `--package`, or give one another name"
            )
            .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::graph::{Graph, Type};
    use gpumem_core::shape::Shape;

    /// A record as the macros write it: an instance has no blueprint.
    fn record(place: &str, batch: &str, rest: &str, blueprint: &[u8]) -> (String, Vec<u8>) {
        let (file, line) = place.split_once(':').unwrap();
        let text = format!(
            r#"{{"name":"Net","file":"{file}","line":{line},{rest}"selected":[],"settings":{{"train":{{"precision":"F32",
            "headroom":{line},"cards":[]}},"infer":null}},"train":{batch},"infer":null}}"#
        );
        (text, blueprint.to_vec())
    }

    fn generic(place: &str) -> (String, Vec<u8>) {
        let mut graph = Graph::default();
        let input = graph.input(Type::numbers(Shape::new(&[3]))).unwrap();
        let blueprint = Blueprint { graph, outputs: vec![input], training: None, cached: None };
        record(place, "null", r#""generic":true,"#, &blueprint.encode())
    }

    fn instance(place: &str, of: Option<&str>) -> (String, Vec<u8>) {
        let of = of.and_then(|of| of.split_once(':'));
        let of = of.map(|(file, line)| format!(r#""of":{{"file":"{file}","line":{line}}},"#)).unwrap_or_default();
        record(place, r#"{"batch":64}"#, &format!(r#""generic":false,{of}"#), &[])
    }

    /// Names, places, and the headroom, which is another one of each network that is declared.
    fn found(records: &[(String, Vec<u8>)]) -> Vec<(String, String, u64)> {
        let networks = networks(records.to_vec()).networks;
        let headroom = |network: &Network| network.train.as_ref().unwrap().headroom;
        let place = |network: &Network| format!("{}:{}", network.file, network.line);
        networks.iter().map(|network| (network.name.clone(), place(network), headroom(network))).collect()
    }

    #[test]
    fn instances_are_of_the_network_that_they_name() {
        let [one, other] = ["a.rs:3", "b.rs:9"].map(generic);
        let expected = |name: &str, place: &str, headroom| (name.to_string(), place.to_string(), headroom);
        let of_one = instance("c.rs:1", Some("a.rs:3"));
        let all = [one.clone(), other, of_one, instance("c.rs:2", Some("b.rs:9"))];
        let both = [expected("Net", "a.rs:3", 3), expected("Net", "b.rs:9", 9)];
        let instances = [expected("Net<64>", "c.rs:1", 3), expected("Net<64>", "c.rs:2", 9)];
        assert_eq!(found(&all), [&both[..], &instances].concat());
        // The record of another version, which has only the name, will do where there is one such network.
        let old = instance("c.rs:1", None);
        assert_eq!(found(&[one.clone(), old.clone()]), [both[0].clone(), instances[0].clone()]);
        assert_eq!(found(&[&all[..2], &[old]].concat()), both);
        // What was not built is not taken for another one.
        assert_eq!(found(&[one, instance("c.rs:2", Some("b.rs:9"))]), [both[0].clone()]);
    }

    #[test]
    fn a_name_that_several_networks_have_is_told_with_their_places() {
        let networks = networks(vec![generic("a.rs:3"), generic("b.rs:9")]).networks;
        assert_eq!(single(&networks[1..]).unwrap().file, "b.rs");
        let message = single(&networks).err().unwrap().to_string();
        assert_eq!(
            message,
            "several networks are called `Net`: a.rs:3, b.rs:9; choose the package of one with `--package`, or give one another name"
        );
    }

    #[test]
    fn what_cannot_be_read_is_counted() {
        let mut other = generic("b.rs:9");
        other.1.push(0);
        let none = || networks(vec![other.clone(), ("{".into(), vec![1])]);
        assert_eq!((none().networks.len(), none().unreadable), (0, 2));
        let message = chosen(none(), &[]).err().unwrap().to_string();
        assert!(
            message.starts_with("no network could be read (2 records could not be read): what another version"),
            "{message}"
        );
        let some = networks(vec![generic("a.rs:3"), other]);
        assert_eq!((some.networks.len(), unread(some.unreadable).as_str()), (1, "1 record could not be read"));
    }
}
