//! Loads files into a network. Everything is matched and checked before the first tensor is set.

use crate::error::{Error, Lone, Mismatch, Shapes};
use crate::mapping::Mapping;
use crate::names::nearest;
use crate::source::{Kind, Source, View, elements};
use gpumem_core::network::Network;
use gpumem_core::network::torch_name;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::{self, Net};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

/// The tensor that PyTorch's batch norms count their steps in.
pub(crate) const TRACKED: &str = "num_batches_tracked";

/// A report of the tensors that were loaded, and of those that were not.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Names in the network of the tensors that were set.
    pub loaded: Vec<String>,
    /// Elements that were set.
    pub elements: u64,
    /// Tensors of the network that the file lacks, without `strict`.
    pub missing: Vec<String>,
    /// Tensors of the file that the network has no place for, without `strict`.
    pub unexpected: Vec<String>,
    /// Names in the file of the tensors that `skip` left out.
    pub skipped: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (were, s) = if self.loaded.len() == 1 { ("was", "") } else { ("were", "s") };
        write!(f, "{} tensor{s} with {} elements {were} loaded", self.loaded.len(), self.elements)?;
        let lists = [
            (&self.missing, ["is missing", "are missing"]),
            (&self.unexpected, ["is unexpected", "are unexpected"]),
            (&self.skipped, ["was skipped", "were skipped"]),
        ];
        for (names, [one, several]) in lists {
            if !names.is_empty() {
                let what = if names.len() == 1 { one } else { several };
                write!(f, "; {} {what}: {}", names.len(), names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A tensor of the network: its name there, its name in files before renaming, and its shape.
pub(crate) struct Own {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) is_statistic: bool,
}

/// Returns the parameters and running statistics of a network, and the mistakes in their names.
pub(crate) fn owned<N: Network, D: Device>(net: &Net<N, D>) -> (Vec<Own>, Vec<String>) {
    let mut seen: HashMap<String, String> = HashMap::new();
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for tensor in net.tensors() {
        let is_statistic = match tensor.kind {
            net::Kind::Parameter => false,
            net::Kind::Statistic => true,
            _ => continue,
        };
        let (path, name) = (tensor.name.to_string(), torch_name(tensor.name));
        if let Some(other) = seen.insert(name.clone(), path.clone()) {
            wrong.push(format!(
                "`{other}` and `{path}` are both `{name}` in files; give one of the layers another `name`"
            ));
        }
        all.push(Own { path, name, shape: tensor.shape.to_vec(), is_statistic });
    }
    (all, wrong)
}

/// Returns the name of the step counter of each norm with running statistics.
pub(crate) fn counters(own: &[Own]) -> BTreeSet<String> {
    let counter = |own: &Own| {
        let norm = own.name.strip_suffix("running_mean").filter(|norm| norm.is_empty() || norm.ends_with('.'));
        norm.filter(|_| own.is_statistic).map(|norm| format!("{norm}{TRACKED}"))
    };
    own.iter().filter_map(counter).collect()
}

/// The source of one tensor of the network: views whose rows follow each other.
struct Filled<'o> {
    own: &'o Own,
    views: Vec<View>,
}

/// Loads the tensors of `source` into the network.
pub(crate) fn load<N: Network, D: Device>(
    source: &Source,
    mapping: &Mapping,
    strict: bool,
    net: &mut Net<N, D>,
) -> Result<Report, Error> {
    let (own, wrong) = owned(net);
    let mut matching = Matching::new(source, mapping, &own);
    matching.mismatch.others = wrong;
    let filled = matching.run();
    let Matching { mut mismatch, report, .. } = matching;
    mismatch.path = source.path.clone();
    mismatch.network = N::NAME;
    let mut report = report;
    if strict {
        mismatch.others.extend(mapping.idle(source.tensors.keys().map(String::as_str)));
    } else {
        let names = |lone: Vec<Lone>| lone.into_iter().map(|lone| lone.name).collect();
        report.missing = names(std::mem::take(&mut mismatch.missing));
        report.unexpected = names(std::mem::take(&mut mismatch.unexpected));
    }
    if !mismatch.is_empty() {
        explain(&mut mismatch, source, mapping, &own);
        return Err(Error::Mismatch(Box::new(mismatch)));
    }
    check_bytes(source, mapping, &filled)?;
    let failed = |error| Error::net(&source.path, error);
    // Only statistics can have values that are refused. They are small, and are read twice.
    for filled in filled.iter().filter(|filled| filled.own.is_statistic) {
        let mut values = vec![0.0; filled.elements() as usize];
        filled.read(source, 0, &mut values);
        net.check(&filled.own.path, &values).map_err(failed)?;
    }
    for filled in filled {
        net.set_with(&filled.own.path, |first, part| filled.read(source, first as u64, part)).map_err(failed)?;
        report.elements += filled.elements();
        report.loaded.push(filled.own.path.clone());
    }
    Ok(report)
}

/// Checks the bytes that will be read against the checksums of their archive.
#[cfg(feature = "pickle")]
fn check_bytes(source: &Source, mapping: &Mapping, filled: &[Filled<'_>]) -> Result<(), Error> {
    let views = filled.iter().flat_map(|filled| filled.views.iter().map(|view| (filled.own.name.as_str(), view)));
    source.check(views).map_err(|(name, what)| {
        let name = mapping.written_name(name);
        Error::file(&source.path, format!("`{name}` is damaged: {what}; copy or download it again"))
    })
}

#[cfg(not(feature = "pickle"))]
fn check_bytes(_: &Source, _: &Mapping, _: &[Filled<'_>]) -> Result<(), Error> {
    Ok(())
}

impl Filled<'_> {
    /// Returns the number of elements of the network's tensor.
    fn elements(&self) -> u64 {
        elements(&self.own.shape).unwrap_or(0)
    }

    /// Reads elements in the network's order into `out`, from element `first` on.
    fn read(&self, source: &Source, mut first: u64, mut out: &mut [f32]) {
        for view in &self.views {
            let count = elements(&view.shape).unwrap_or(0);
            let taken = count.saturating_sub(first).min(out.len() as u64) as usize;
            let (part, rest) = out.split_at_mut(taken);
            view.read(source, first, part);
            (first, out) = (first.saturating_sub(count), rest);
        }
    }
}

/// The matching of a file's tensors with those of a network.
struct Matching<'a> {
    source: &'a Source,
    mapping: &'a Mapping,
    own: &'a [Own],
    /// Views of the file by their name in the network, with the name in the file.
    open: BTreeMap<String, (String, View)>,
    /// Names of views that a tensor of the network uses or `skip` leaves out. Several tensors may use one view.
    used: HashSet<String>,
    mismatch: Mismatch,
    report: Report,
}

impl<'a> Matching<'a> {
    fn new(source: &'a Source, mapping: &'a Mapping, own: &'a [Own]) -> Matching<'a> {
        let (open, used) = (BTreeMap::new(), HashSet::new());
        Matching { source, mapping, own, open, used, mismatch: Mismatch::default(), report: Report::default() }
    }

    /// Matches all tensors, and returns the sources of those of the network. Tensors that do not fit are in `mismatch`.
    fn run(&mut self) -> Vec<Filled<'a>> {
        self.rename();
        let own = self.own;
        let mut filled = Vec::new();
        for own in own {
            let written = self.mapping.written_name(&own.name);
            if self.mapping.skips(&own.name, &written) {
                self.report.skipped.push(written);
                self.used.insert(own.name.clone());
                continue;
            }
            if let Some(views) = self.views(own) {
                filled.push(Filled { own, views });
            }
        }
        self.leftover();
        filled
    }

    /// Gives each tensor of the file the network's name, and transposes it if the mapping says so.
    fn rename(&mut self) {
        let (source, mapping) = (self.source, self.mapping);
        let seconds: HashMap<&str, &str> =
            mapping.tied.iter().map(|(second, first)| (second.as_str(), first.as_str())).collect();
        for (name, view) in &source.tensors {
            let mut kept = name.as_str();
            if let Some(first) = seconds.get(kept) {
                match source.tensors.get(*first) {
                    None => kept = first,
                    Some(other) if other.equals(view, source) => continue,
                    Some(_) => {
                        let what = format!(
                            "`{name}` and `{first}` are tied, but differ in the file; leave out `.tied(..)`, or `.skip` one of them"
                        );
                        self.mismatch.others.push(what);
                        continue;
                    }
                }
            }
            let view = if mapping.transposes(name) { view.clone().transposed() } else { view.clone() };
            let read = mapping.read_name(kept);
            if let Some((other, _)) = self.open.insert(read.clone(), (name.clone(), view)) {
                self.mismatch
                    .others
                    .push(format!("`{other}` and `{name}` are both renamed to `{read}`; change `.rename(..)`"));
            }
        }
    }

    /// Returns the views that fill a tensor of the network. `None` after a mistake, which is added to `mismatch`.
    fn views(&mut self, own: &Own) -> Option<Vec<View>> {
        let mapping = self.mapping;
        if let Some((rule, parts)) = mapping.joined.iter().find_map(|rule| Some((rule, rule.parts_of(&own.name)?))) {
            return self.joined(own, parts, rule.rows.as_deref());
        }
        let split = mapping.split.iter().find_map(|rule| Some((rule.whole_of(&own.name)?, rule)));
        if let Some(((number, whole), rule)) = split {
            let captured = rule.parts_of(&whole).unwrap_or_default();
            let rows_of = |name: &String| self.own.iter().find(|own| own.name == *name)?.shape.first().copied();
            let rows: Option<Vec<u64>> = captured.iter().map(rows_of).collect();
            let Some(rows) = rows else {
                self.mismatch
                    .others
                    .push(format!("`{whole}` is split into {}, which the network has not all", captured.join(", ")));
                return None;
            };
            let (view, name) = self.source_of(&mapping.read_name(&whole), own)?;
            let mut expected = own.shape.clone();
            let (first, all): (u64, u64) = (rows[..number].iter().sum(), rows.iter().sum());
            if let Some(rows) = expected.first_mut() {
                *rows = all;
            }
            let view = self.shaped(&name, view, &expected)?;
            return Some(vec![view.rows(first, rows[number])?]);
        }
        let (view, name) = self.source_of(&own.name, own)?;
        Some(vec![self.shaped(&name, view, &own.shape)?])
    }

    /// Returns the views of a tensor that is several in the file. `None` after a mistake, which is added to `mismatch`.
    fn joined(&mut self, own: &Own, parts: Vec<String>, rows: Option<&[u64]>) -> Option<Vec<View>> {
        let count = parts.len().max(1) as u64;
        let total = own.shape.first().copied().unwrap_or(0);
        let equal = vec![total / count; parts.len()];
        let rows = rows.unwrap_or(&equal);
        if own.shape.is_empty() || rows.iter().sum::<u64>() != total || rows.len() != parts.len() {
            self.mismatch.others.push(format!(
                "`{}` has {total} rows, which are not the {rows:?} of its parts; use `.join_rows(..)`",
                own.name
            ));
            return None;
        }
        // Collect all views first, so that all missing ones are reported.
        let views: Vec<Option<View>> = parts
            .iter()
            .zip(rows)
            .map(|(part, &rows)| {
                let mut expected = own.shape.clone();
                expected[0] = rows;
                let (view, name) = self.source_of(&self.mapping.read_name(part), own)?;
                self.shaped(&name, view, &expected)
            })
            .collect();
        views.into_iter().collect()
    }

    /// Returns the view of a name and its name in the file. `None` if it is missing, which is added to `mismatch` with the network's shape.
    fn source_of(&mut self, name: &str, own: &Own) -> Option<(View, String)> {
        let Some((written, view)) = self.open.get(name) else {
            let name = self.mapping.written_name(name);
            // Report it once, even if several tensors are parts of it.
            if !self.mismatch.missing.iter().any(|lone| lone.name == name) {
                self.mismatch.missing.push(Lone { name, shape: own.shape.clone(), nearest: None });
            }
            return None;
        };
        self.used.insert(name.into());
        Some((view.clone(), written.clone()))
    }

    /// Checks type and shape. Additional first axes of size 1 are accepted, since they change no element. `None` after a mistake.
    fn shaped(&mut self, name: &str, mut view: View, expected: &[u64]) -> Option<View> {
        if !view.kind.is_float() {
            let what = format!(
                "`{name}` is made of {}, not of numbers F32, F16, BF16 or F64; convert it before it is saved",
                view.kind.name()
            );
            self.mismatch.others.push(what);
            return None;
        }
        let significant = |shape: &[u64]| shape.iter().copied().skip_while(|dim| *dim == 1).collect::<Vec<u64>>();
        if significant(&view.shape) != significant(expected) || elements(expected).is_none() {
            let (name, expected, found) = (name.into(), expected.to_vec(), view.shape);
            self.mismatch.shapes.push(Shapes { name, expected, found });
            return None;
        }
        view.reshape_ones(expected.len());
        Some(view)
    }

    /// Adds the unused tensors of the file to `mismatch` or the report.
    fn leftover(&mut self) {
        let counters = counters(self.own);
        for (name, (written, view)) in &self.open {
            if self.used.contains(name) {
                continue;
            }
            if self.mapping.skips(name, written) {
                self.report.skipped.push(written.clone());
            } else if counters.contains(name) {
                let is_scalar = elements(&view.shape) == Some(1);
                if !(is_scalar && view.kind == Kind::I64) {
                    let what = format!(
                        "`{written}` is {:?} of {}, not one I64; save the model again",
                        view.shape,
                        view.kind.name()
                    );
                    self.mismatch.others.push(what);
                }
            } else {
                self.mismatch.unexpected.push(Lone { name: written.clone(), shape: view.shape.clone(), nearest: None });
            }
        }
        self.report.skipped.sort();
        self.report.skipped.dedup();
    }
}

/// Adds the nearest names, and the renaming that would help.
fn explain(mismatch: &mut Mismatch, source: &Source, mapping: &Mapping, own: &[Own]) {
    let others: Vec<String> = mismatch.unexpected.iter().map(|lone| lone.name.clone()).collect();
    let wanted: Vec<String> = mismatch.missing.iter().map(|lone| lone.name.clone()).collect();
    let all: Vec<&str> = source.tensors.keys().map(String::as_str).collect();
    let written: Vec<String> = own.iter().map(|own| mapping.written_name(&own.name)).collect();
    let written: Vec<&str> =
        written.iter().map(String::as_str).filter(|name| !others.iter().any(|other| other == name)).collect();
    let (left, open): (Vec<&str>, Vec<&str>) =
        (others.iter().map(String::as_str).collect(), wanted.iter().map(String::as_str).collect());
    let most = |known: &[&str]| (MOST_COMPARED / known.len().max(1)).max(FEWEST);
    // Prefer unused names of the other side.
    for lone in mismatch.missing.iter_mut().take(most(&all)) {
        lone.nearest = nearest(&lone.name, &left).or_else(|| nearest(&lone.name, &all)).map(String::from);
    }
    for lone in mismatch.unexpected.iter_mut().take(most(&written)) {
        lone.nearest = nearest(&lone.name, &open).or_else(|| nearest(&lone.name, &written)).map(String::from);
    }
    mismatch.renaming = prefix(&open, &left).map(|prefix| (prefix, String::new()));
    if mismatch.renaming.is_none() {
        mismatch.renaming = prefix(&left, &open).map(|prefix| (String::new(), prefix));
    }
}

/// The most pairs of names that are compared on each side: comparing thousands of names would take longer than reading the file.
const MOST_COMPARED: usize = 1_000_000;
/// The number of tensors whose nearest name is always searched for.
const FEWEST: usize = 20;

/// Returns the prefix with which at least half of the `short` names are `long` ones. `None` if there is none.
fn prefix(short: &[&str], long: &[&str]) -> Option<String> {
    let short: HashSet<&str> = short.iter().copied().collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in long {
        for (dot, _) in name.match_indices('.') {
            if short.contains(&name[dot + 1..]) {
                *counts.entry(&name[..=dot]).or_default() += 1;
            }
        }
    }
    let (prefix, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (2 * count >= short.len()).then(|| prefix.to_string())
}
