//! Implements `cargo gpumem diff`, which compares the memory and the least time of each network before and after a change.

mod rows;
mod worktree;

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, Built, unread};
use crate::network::{Network, has_instance};
use crate::options::{Comparison, Diff};
use crate::output::{print, say, warn};
use crate::plan::{PlannedProgram, steps};
use gpumem_core::memory::budget::{Budget, Line};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use worktree::Worktree;

/// A program before and after a change. One side is `None` if the program is new or gone.
struct Change {
    title: String,
    /// The name in tables.
    label: String,
    package: Option<String>,
    before: Option<(PlannedProgram, Budget)>,
    after: Option<(PlannedProgram, Budget)>,
}

pub fn run(arguments: &Diff) -> Result<ExitCode, Failure> {
    arguments.settings.refuse_largest()?;
    let now = complete(networks_of(&arguments.build, Path::new("."), None)?, ANOTHER_VERSION)?;
    if !arguments.build.quiet {
        say(&format!("the same at {}:", arguments.revision));
    }
    let another =
        format!("compare with a revision that has the gpumem of now, for `{}` has another", arguments.revision);
    let before = complete(Worktree::new(&arguments.revision)?.networks(&arguments.build)?, &another)?;
    print(&report(&before, &now, arguments)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text that compares the networks of both revisions.
pub fn report(before: &[Network], now: &[Network], arguments: &Diff) -> Result<String, Failure> {
    let changes = changes(planned(before, arguments)?, planned(now, arguments)?);
    if changes.is_empty() {
        return Err("neither revision has a network with a batch".into());
    }
    Ok(match arguments.format {
        Comparison::Table => rows::table(&changes, &arguments.revision),
        Comparison::Markdown => rows::markdown(&changes, &arguments.revision),
        Comparison::Json => format!("{:#}\n", as_json(&changes)),
    })
}

/// Returns the networks. Fails if some could not be read, because a network that is missing for that reason is neither new nor gone.
fn complete(built: Built, advice: &str) -> Result<Vec<Network>, Failure> {
    match built.unreadable {
        0 => Ok(built.networks),
        count => Err(format!("{}: {advice}", unread(count)).into()),
    }
}

fn planned(networks: &[Network], arguments: &Diff) -> Result<Vec<(PlannedProgram, Budget)>, Failure> {
    let mut planned = Vec::new();
    for network in networks {
        let steps = match steps(network, &arguments.settings) {
            Ok(steps) => steps,
            // The instances of a generic network are compared instead of it.
            Err(_) if has_instance(networks, network) => continue,
            // A network that is generic over its batch has no figures without a batch.
            Err(failure) => {
                warn(&format!("left out: {failure}"));
                continue;
            }
        };
        for step in steps {
            let budget = step.written()?;
            planned.push((step, budget));
        }
    }
    Ok(planned)
}

/// Pairs every program with its earlier version.
fn changes(before: Vec<(PlannedProgram, Budget)>, after: Vec<(PlannedProgram, Budget)>) -> Vec<Change> {
    let named = |steps: &[(PlannedProgram, Budget)]| -> Vec<(String, String)> {
        steps.iter().map(|(step, _)| (step.file.clone(), step.title.clone())).collect()
    };
    let pairs = paired(&named(&before), &named(&after));
    let mut before: Vec<Option<(PlannedProgram, Budget)>> = before.into_iter().map(Some).collect();
    let beside = |(now, old): ((PlannedProgram, Budget), Option<usize>)| {
        let old = old.and_then(|old| before[old].take());
        let PlannedProgram { title, label, package, .. } = &now.0;
        Change { title: title.clone(), label: label.clone(), package: package.clone(), before: old, after: Some(now) }
    };
    let mut changes: Vec<Change> = after.into_iter().zip(pairs).map(beside).collect();
    let gone = before.into_iter().flatten();
    changes.extend(gone.map(|old| {
        let PlannedProgram { title, label, package, .. } = &old.0;
        Change { title: title.clone(), label: label.clone(), package: package.clone(), before: Some(old), after: None }
    }));
    changes
}

/// Returns for each later program, by file and title, the index of the earlier one to compare it with. `None` if it is new.
///
/// Titles need not be unique, and networks may move. So programs in the same file are paired first, and the others by title alone.
fn paired(before: &[(String, String)], after: &[(String, String)]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; after.len()];
    let mut free = vec![true; before.len()];
    for has_moved in [false, true] {
        for (now, pair) in after.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let is_same = |old: &(String, String)| old.1 == now.1 && (has_moved || old.0 == now.0);
            *pair = (0..before.len()).find(|&old| free[old] && is_same(&before[old]));
            if let Some(old) = *pair {
                free[old] = false;
            }
        }
    }
    pairs
}

fn as_json(changes: &[Change]) -> Value {
    let side = |side: &Option<(PlannedProgram, Budget)>| match side {
        None => Value::Null,
        Some((step, budget)) => {
            let lines = Line::parts().chain([Line::Arena]).map(|line| (line.name().to_string(), budget[line].into()));
            json!({
                "batch": step.plan.batch,
                "precision": step.plan.precision.name(),
                "parameters": step.plan.parameters(),
                "macs": step.plan.macs(),
                "cards": rows::on_cards((step, budget)).map(|(card, left)| json!({
                    "card": card.slug,
                    "left": i64::try_from(left).unwrap_or_default(),
                    "fits": left >= 0,
                    "ms": rows::least_time(step, card),
                })).collect::<Vec<_>>(),
                "budget": lines.collect::<serde_json::Map<String, Value>>(),
            })
        }
    };
    let change = |change: &Change| {
        json!({
            "network": change.title,
            "package": change.package,
            "before": side(&change.before),
            "after": side(&change.after),
        })
    };
    json!({ "version": 1, "networks": changes.iter().map(change).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::{Built, complete, paired};

    #[test]
    fn a_side_that_cannot_be_read_is_no_side() {
        let side = |unreadable| complete(Built { unreadable, ..Built::default() }, "do this");
        assert!(side(0).is_ok_and(|networks| networks.is_empty()));
        assert_eq!(side(3).err().unwrap().to_string(), "3 records could not be read: do this");
    }

    #[test]
    fn programs_are_beside_those_of_their_file_and_moved_ones_beside_those_of_their_title() {
        let named = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|&(file, title)| (file.into(), title.into())).collect()
        };
        let before = named(&[("a.rs", "Net"), ("b.rs", "Net"), ("b.rs", "Gone"), ("c.rs", "Moved")]);
        let after = named(&[("z.rs", "Net"), ("b.rs", "Net"), ("d.rs", "Moved"), ("b.rs", "New")]);
        assert_eq!(paired(&before, &after), [Some(0), Some(1), Some(3), None]);
        // If one of two networks is new, the other is still paired with its old version.
        let after = named(&[("a0.rs", "Net"), ("a.rs", "Net"), ("b.rs", "Net")]);
        assert_eq!(paired(&before, &after), [None, Some(0), Some(1)]);
    }
}
