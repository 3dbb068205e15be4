//! Reads the networks of a build from their records, and selects those that the command line names.

use crate::Failure;
use crate::facts::Facts;
use crate::network::{LeftOut, Network, has_instance};
use crate::output::warn;
use crate::together::{Together, gathered};
use cargo_metadata::Metadata;
use gpumem_core::lower::Blueprint;
use gpumem_core::suggest::nearest;

/// Everything that a build contains.
#[derive(Default)]
pub struct Built {
    /// The networks, in the order of their files and lines.
    pub networks: Vec<Network>,
    /// The `fits!` with cards or several networks.
    pub together: Vec<Together>,
    /// Networks of a `fits!` that were not found.
    pub left_out: Vec<LeftOut>,
    /// The number of records and sections that could not be read. Each was named on standard error.
    pub unreadable: usize,
    /// Cargo's description of the workspace. `None` for networks that were not built here.
    pub workspace: Option<Metadata>,
}

/// Returns the networks of records, each a text and a blueprint. `package` returns the package that a file is in.
///
/// Records that occur several times are read once: every artefact that a network is linked into has its record.
pub fn networks(mut records: Vec<(String, Vec<u8>)>, package: &dyn Fn(&str) -> Option<String>) -> Built {
    records.sort();
    records.dedup();
    let (mut found, mut generic, mut instances) = (Vec::new(), Vec::new(), Vec::new());
    let mut built = Built::default();
    for (text, blueprint) in records {
        match read(&text, &blueprint) {
            Ok((facts, None)) => instances.push(facts),
            Ok((facts, Some(blueprint))) => {
                let to = if facts.is_generic { &mut generic } else { &mut found };
                to.push(declared(facts, blueprint, package));
            }
            Err(why) => {
                warn(&why);
                built.unreadable += 1;
            }
        }
    }
    let mut asked = Vec::new();
    for facts in instances {
        let of_generic = declaration(&generic, &facts).map(|network| instance(network, &facts, package));
        let plain = || declaration(&found, &facts).map(|network| served(network.clone(), &facts));
        match of_generic.as_ref().cloned().or_else(plain) {
            Some(member) => asked.extend(facts.fits.map(|fits| (facts.place.0, fits, member))),
            None => built.left_out.push(lost(&facts, package)),
        }
        // An instance that several `fits!` ask for is added once.
        let is_new = |instance: &Network| {
            let is_same = |other: &Network| other.name == instance.name && other.declared == instance.declared;
            !found.iter().any(is_same)
        };
        found.extend(of_generic.filter(is_new));
    }
    found.append(&mut generic);
    found.sort_by(|a, b| (&a.file, a.line, &a.name).cmp(&(&b.file, b.line, &b.name)));
    label(&mut found);
    for (.., member) in &mut asked {
        let is_same = |network: &&Network| network.name == member.name && network.declared == member.declared;
        if let Some(network) = found.iter().find(is_same) {
            member.label.clone_from(&network.label);
        }
    }
    let (together, mut parts) = gathered(asked);
    built.left_out.append(&mut parts);
    Built { networks: found, together, ..built }
}

/// Reads a record: its text and, for a network, its blueprint. Fails with a message about what is skipped, and why.
fn read(text: &str, blueprint: &[u8]) -> Result<(Facts, Option<Blueprint>), String> {
    let facts = Facts::read(text).map_err(|why| {
        let said: Option<serde_json::Value> = serde_json::from_str(text).ok();
        let name = said.as_ref().and_then(|said| said.get("name")?.as_str());
        let what = name.map_or_else(|| "a record".into(), |name| format!("the record of `{name}`"));
        format!("skipped {what}: {why}; another version of gpumem wrote it")
    })?;
    if blueprint.is_empty() {
        return Ok((facts, None));
    }
    match Blueprint::decode(blueprint) {
        Some(blueprint) => Ok((facts, Some(blueprint))),
        None => Err(format!("skipped `{}`: its program was written by another version of gpumem", facts.name)),
    }
}

/// Returns the network of a record with a blueprint.
fn declared(facts: Facts, blueprint: Blueprint, package: &dyn Fn(&str) -> Option<String>) -> Network {
    let largest = largest(&blueprint, &facts);
    let (file, line) = facts.place;
    Network {
        label: facts.name.clone(),
        name: facts.name,
        package: package(&file),
        declared: (file.clone(), line),
        file,
        line,
        is_largest: largest.is_some(),
        blueprint: largest.unwrap_or(blueprint),
        train: facts.train.written,
        infer: facts.infer.written,
    }
}

/// Returns the blueprint of the step that a record names as the largest. `None` if the network has no named steps.
fn largest(blueprint: &Blueprint, facts: &Facts) -> Option<Blueprint> {
    let name = facts.train.step.as_ref()?;
    blueprint.step(blueprint.parts.all.iter().position(|part| part.name == *name)?)
}

/// True if the record of an instance is of this network.
///
/// Names need not be unique, so a record has the place of the declaration. Records of older versions do not, and are compared by name alone.
fn is_of(facts: &Facts, network: &Network) -> bool {
    facts.name == network.name && facts.of.as_ref().is_none_or(|of| network.declared == *of)
}

/// Returns the network of an instance. `None` if there is none, or if several could be meant.
fn declaration<'n>(networks: &'n [Network], facts: &Facts) -> Option<&'n Network> {
    let mut all = networks.iter().filter(|network| is_of(facts, network));
    all.next().filter(|first| all.all(|other| other.declared == first.declared))
}

/// Returns an entry for an instance whose network was not found.
fn lost(facts: &Facts, package: &dyn Fn(&str) -> Option<String>) -> LeftOut {
    let why = match facts.of {
        Some(_) => "the network that it is of is not among those that were built and read",
        None => {
            "its gpumem does not say which of the networks with that name it is of; `cargo update -p gpumem` brings one \
             that does"
        }
    };
    LeftOut {
        label: facts.name.clone(),
        name: facts.name.clone(),
        program: None,
        package: package(&facts.place.0),
        file: facts.place.0.clone(),
        line: facts.place.1,
        why: why.into(),
    }
}

/// Returns the network of `fits!(Net<64>)`: the generic network at the batch of the record.
fn instance(network: &Network, facts: &Facts, package: &dyn Fn(&str) -> Option<String>) -> Network {
    let mut network = network.clone();
    if let Some(largest) = largest(&network.blueprint, facts) {
        (network.blueprint, network.is_largest) = (largest, true);
    }
    for (written, program) in [(&mut network.train, &facts.train), (&mut network.infer, &facts.infer)] {
        if let Some(written) = written {
            written.batch = program.batch;
        }
    }
    let batch = [&facts.train, &facts.infer].into_iter().find_map(|program| program.batch);
    network.name = format!("{}<{}>", network.name, batch.unwrap_or_default());
    network.label.clone_from(&network.name);
    (network.file, network.line) = facts.place.clone();
    network.package = package(&network.file);
    served(network, facts)
}

/// Returns the network without its training, if the record is that of a `Serving<Net>`; otherwise unchanged.
fn served(mut network: Network, facts: &Facts) -> Network {
    if network.train.is_some() && network.infer.is_some() && facts.train.batch.is_none() {
        network.train = None;
        network.name = format!("Serving<{}>", network.name);
        network.label.clone_from(&network.name);
    }
    network
}

/// Labels networks that share a name with their packages or, if these are equal or unknown, with their places.
pub fn label(networks: &mut [Network]) {
    let label = |index: usize| {
        let Network { name, package, file, line, .. } = &networks[index];
        let others = networks.iter().enumerate().filter(|(other, network)| *other != index && network.name == *name);
        let packages: Vec<&Option<String>> = others.map(|(_, network)| &network.package).collect();
        match package {
            _ if packages.is_empty() => name.clone(),
            Some(own) if !packages.contains(&package) => format!("{name} ({own})"),
            // The line is that of a source, which nobody has seen of a model.
            _ if !file.ends_with(".rs") => format!("{name} ({file})"),
            _ => format!("{name} ({file}:{line})"),
        }
    };
    let labels: Vec<String> = (0..networks.len()).map(label).collect();
    networks.iter_mut().zip(labels).for_each(|(network, label)| network.label = label);
}

/// Formats a count: `1 record could not be read`.
pub fn unread(count: usize) -> String {
    format!("{count} record{} could not be read", if count == 1 { "" } else { "s" })
}

/// Advice for records that could not be read.
pub const ANOTHER_VERSION: &str = "what another version of gpumem wrote needs the command of that version: install that of the \
                                   commit in Cargo.lock, with `cargo install --locked --git \
                                   https://github.com/gpumem/gpumem --rev COMMIT cargo-gpumem`; what is damaged is built anew \
                                   after `cargo clean`";

/// Selects the networks with these names, in their order, or all if `names` is empty. Keeps each `fits!` that contains one of them.
pub fn chosen(built: Built, names: &[String]) -> Result<Built, Failure> {
    let Built { networks, together, left_out, unreadable, workspace } = built;
    if networks.is_empty() && unreadable > 0 {
        return Err(format!("no network could be read ({}): {ANOTHER_VERSION}", unread(unreadable)).into());
    }
    if networks.is_empty() {
        return Err("no network was built: none of the libraries, binaries and examples that were built declares one \
                    (examples with `required-features` need `--features`)"
            .into());
    }
    if names.is_empty() {
        return Ok(Built { networks, together, left_out, unreadable, workspace });
    }
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        found.extend(networks.iter().filter(|network| network.name == *name).cloned());
        if found.len() == before {
            return Err(unknown(name, &networks, unreadable).into());
        }
    }
    let is_named = |member: &Network| found.iter().any(|network: &Network| network.declared == member.declared);
    let together = together.into_iter().filter(|together| together.members.iter().any(is_named)).collect();
    Ok(Built { networks: found, together, left_out: Vec::new(), unreadable, workspace })
}

/// Returns the error for a name that no network has.
fn unknown(name: &str, networks: &[Network], unreadable: usize) -> String {
    let mut known: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    known.dedup();
    let advice = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there is {}", known.join(", ")),
    };
    let unread = if unreadable > 0 { format!(" ({})", unread(unreadable)) } else { String::new() };
    format!("no network is called `{name}`; {advice}{unread}")
}

/// Returns the only network in the list. Fails if several have the name.
pub fn single(networks: &[Network]) -> Result<&Network, Failure> {
    match networks {
        [network] => Ok(network),
        _ => {
            let name = networks.first().map(|network| network.name.as_str()).unwrap_or_default();
            let places = networks.iter().map(|network| match &network.package {
                Some(package) => format!("{}:{} of package {package}", network.file, network.line),
                None => format!("{}:{}", network.file, network.line),
            });
            let places = places.collect::<Vec<_>>().join(", ");
            Err(format!(
                "several networks are called `{name}`: {places}; choose the package of one with `--package`, or give one another name"
            )
            .into())
        }
    }
}

/// Returns the network to show if none is named: the only one.
pub fn only(built: &Built) -> Result<&Network, Failure> {
    let is_alone = |network: &&Network| !has_instance(&built.networks, network);
    let candidates: Vec<&Network> = built.networks.iter().filter(is_alone).collect();
    match candidates.as_slice() {
        [] => Err("no network was built".into()),
        [network] if built.unreadable == 0 => Ok(network),
        all => {
            let names: Vec<&str> = all.iter().map(|network| network.label.as_str()).collect();
            let unread = if built.unreadable > 0 { format!(" ({})", unread(built.unreadable)) } else { String::new() };
            Err(format!("name the network to show: there is {}{unread}", names.join(", ")).into())
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
        let blueprint =
            Blueprint { graph, outputs: vec![input], training: None, cached: None, parts: Default::default() };
        record(place, "null", r#""generic":true,"#, &blueprint.encode())
    }

    /// `a.rs` is in the package `a`; `x.rs` is in none.
    fn package(file: &str) -> Option<String> {
        file.strip_suffix(".rs").filter(|name| *name != "x").map(String::from)
    }

    fn instance(place: &str, of: Option<&str>) -> (String, Vec<u8>) {
        let of = of.and_then(|of| of.split_once(':'));
        let of = of.map(|(file, line)| format!(r#""of":{{"file":"{file}","line":{line}}},"#)).unwrap_or_default();
        record(place, r#"{"batch":64}"#, &format!(r#""generic":false,{of}"#), &[])
    }

    /// Names, places, and the headroom, which is another one of each network that is declared.
    fn found(records: &[(String, Vec<u8>)]) -> Vec<(String, String, u64)> {
        let networks = networks(records.to_vec(), &package).networks;
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
        // A record of another version, which has only the name, is enough if only one network has that name.
        let old = instance("c.rs:1", None);
        assert_eq!(found(&[one.clone(), old.clone()]), [both[0].clone(), instances[0].clone()]);
        assert_eq!(found(&[&all[..2], &[old]].concat()), both);
        // A network that was not built is not mistaken for another one.
        assert_eq!(found(&[one, instance("c.rs:2", Some("b.rs:9"))]), [both[0].clone()]);
    }

    #[test]
    fn a_name_that_several_networks_have_is_told_with_their_places() {
        let networks = networks(vec![generic("a.rs:3"), generic("b.rs:9")], &package).networks;
        assert_eq!(single(&networks[1..]).unwrap().file, "b.rs");
        let message = single(&networks).err().unwrap().to_string();
        assert_eq!(
            message,
            "several networks are called `Net`: a.rs:3 of package a, b.rs:9 of package b; choose the package of one with `--package`, or give one another name"
        );
    }

    #[test]
    fn what_cannot_be_read_is_counted() {
        let mut other = generic("b.rs:9");
        other.1.push(0);
        let none = || networks(vec![other.clone(), ("{".into(), vec![1])], &package);
        assert_eq!((none().networks.len(), none().unreadable), (0, 2));
        let message = chosen(none(), &[]).err().unwrap().to_string();
        assert!(
            message.starts_with("no network could be read (2 records could not be read): what another version"),
            "{message}"
        );
        let some = networks(vec![generic("a.rs:3"), other], &package);
        assert_eq!((some.networks.len(), unread(some.unreadable).as_str()), (1, "1 record could not be read"));
    }

    #[test]
    fn networks_of_one_name_have_their_package_or_their_place() {
        let labels = |places: &[&str]| -> Vec<String> {
            let records = places.iter().map(|place| generic(place)).collect();
            networks(records, &package).networks.into_iter().map(|network| network.label).collect()
        };
        assert_eq!(labels(&["a.rs:3"]), ["Net"]);
        assert_eq!(labels(&["a.rs:3", "b.rs:9"]), ["Net (a)", "Net (b)"]);
        assert_eq!(labels(&["a.rs:3", "a.rs:5", "b.rs:9"]), ["Net (a.rs:3)", "Net (a.rs:5)", "Net (b)"]);
        assert_eq!(labels(&["a.rs:3", "x.rs:9"]), ["Net (a)", "Net (x.rs:9)"]);
    }

    #[test]
    fn a_name_that_is_near_is_offered_and_what_could_not_be_read_is_told() {
        let message = |name: &str, unreadable| {
            let built = Built { unreadable, ..networks(vec![generic("a.rs:3")], &package) };
            chosen(built, &[name.to_string()]).err().unwrap().to_string()
        };
        assert_eq!(message("net", 0), "no network is called `net`; did you mean `Net`?");
        assert_eq!(message("Vgg16", 0), "no network is called `Vgg16`; there is Net");
        assert_eq!(
            message("Neet", 2),
            "no network is called `Neet`; did you mean `Net`? (2 records could not be read)"
        );
    }

    #[test]
    fn no_name_means_the_only_network() {
        let one = networks(vec![generic("a.rs:3"), instance("c.rs:1", Some("a.rs:3"))], &package);
        assert_eq!(only(&one).unwrap().name, "Net<64>");
        let message = only(&Built { unreadable: 1, ..one }).err().unwrap().to_string();
        assert_eq!(message, "name the network to show: there is Net<64> (1 record could not be read)");
        let two = networks(vec![generic("a.rs:3"), generic("b.rs:9")], &package);
        assert_eq!(only(&two).err().unwrap().to_string(), "name the network to show: there is Net (a), Net (b)");
    }

    /// An instance that `fits!` asks for twice is one, and one without its network is left out by name.
    #[test]
    fn instances_are_counted_once_and_lost_ones_are_named() {
        let records = vec![
            generic("a.rs:3"),
            instance("c.rs:1", Some("a.rs:3")),
            instance("c.rs:2", Some("a.rs:3")),
            instance("c.rs:5", Some("b.rs:9")),
        ];
        let built = networks(records, &package);
        let names: Vec<&str> = built.networks.iter().map(|network| network.name.as_str()).collect();
        assert_eq!(names, ["Net", "Net<64>"]);
        let [lost] = built.left_out.as_slice() else { panic!("one is lost") };
        assert_eq!((lost.name.as_str(), lost.file.as_str(), lost.line), ("Net", "c.rs", 5));
        assert!(lost.why.starts_with("the network that it is of is not among"), "{}", lost.why);
    }

    /// The record of another version has a right digest: it is counted, and nothing panics.
    #[test]
    fn a_record_that_lacks_something_is_counted() {
        let (text, blueprint) = generic("a.rs:3");
        for (from, to) in
            [(r#","cards":[]"#, ""), (r#""precision":"F32","#, ""), (r#""selected":[],"#, ""), ("Net", "Net\\")]
        {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let built = networks(vec![(changed, blueprint.clone())], &package);
            assert_eq!((built.networks.len(), built.unreadable), (0, 1), "{from}");
        }
        let why = read(&text.replacen(r#","cards":[]"#, "", 1), &blueprint).err().unwrap();
        assert_eq!(
            why,
            "skipped the record of `Net`: it has no `settings.train.cards` that can be read; another version of gpumem wrote it"
        );
    }
}
